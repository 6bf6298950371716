#include "sample/shapes.h"

#include <cstring>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

constexpr size_t kAlign = 8;  // of the points of kMixed, in bytes of the value

size_t point_bytes(PointFormat format) {
  return 2 * (format == PointFormat::kMixed ? sizeof(double) : sizeof(float));
}

void append(std::vector<uint8_t>& to, std::span<const uint8_t> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void append(std::vector<uint8_t>& to, uint32_t word) {
  append(to, {reinterpret_cast<const uint8_t*>(&word), sizeof(word)});
}

}  // namespace

// Every sum is bounded by the bytes that there are before it is used.
Shapes::Shapes(std::span<const uint8_t> bytes, PointFormat format)
    : bytes_(bytes), format_(format) {
  if (bytes.empty()) return;
  if (bytes.size() % 4 != 0) refuse();
  const uint32_t count = take();
  if (count > bytes.size() / 4) refuse();
  objects_.resize(count);
  for (Object& object : objects_) {
    if (format == PointFormat::kMixed) {
      const uint32_t form = take();
      if (form > 1) refuse();
      object.is_area = form == 1;
    } else {
      object.is_area = format == PointFormat::kAreas;
    }
  }
  uint64_t polygons = 0;
  for (Object& object : objects_) {
    if (object.is_area) continue;
    object.first = static_cast<uint32_t>(polygons);
    polygons += object.count = take();
    if (polygons > bytes.size() / 4) refuse();
  }
  polygons_.resize(polygons);
  for (Polygon& polygon : polygons_) polygon.points = take();
  for (Object& object : objects_) {
    if (!object.is_area) continue;
    object.height = take();
    object.width = take();
    object.runs = take();
  }
  if (format == PointFormat::kMixed) at_ = (at_ + kAlign - 1) / kAlign * kAlign;
  const auto pass = [&](uint64_t size) {
    if (at_ > bytes.size() || size > bytes.size() - at_) refuse();
    const size_t begin = at_;
    at_ += size;
    return begin;
  };
  for (Polygon& polygon : polygons_) polygon.at = pass(polygon.points * point_bytes(format));
  for (Object& object : objects_) {
    if (object.is_area) object.at = pass(uint64_t{object.runs} * sizeof(uint32_t));
  }
  if (at_ != bytes.size()) refuse();
}

uint32_t Shapes::take() {
  if (bytes_.size() - at_ < sizeof(uint32_t)) refuse();
  uint32_t word = 0;
  std::memcpy(&word, bytes_.data() + at_, sizeof(word));
  at_ += sizeof(word);
  return word;
}

void Shapes::refuse() const {
  throw Error(ErrorKind::kFormat, "the value of " + std::to_string(bytes_.size()) +
                                      " bytes has no " +
                                      (format_ == PointFormat::kAreas ? "areas" : "outlines") +
                                      " of objects. Pack again.");
}

void Shapes::points(const Polygon& polygon, std::vector<double>& to) const {
  to.resize(2 * size_t{polygon.points});
  const uint8_t* const from = bytes_.data() + polygon.at;
  if (format_ == PointFormat::kMixed) {
    if (!to.empty()) std::memcpy(to.data(), from, to.size() * sizeof(double));
    return;
  }
  for (size_t i = 0; i < to.size(); ++i) {
    float one = 0;
    std::memcpy(&one, from + i * sizeof(one), sizeof(one));
    to[i] = one;
  }
}

void Shapes::runs(const Object& area, std::vector<uint32_t>& to) const {
  to.resize(area.runs);
  if (!to.empty()) std::memcpy(to.data(), bytes_.data() + area.at, to.size() * sizeof(uint32_t));
}

std::vector<uint8_t> Shapes::of(std::span<const uint32_t> numbers) const {
  if (bytes_.empty() && numbers.empty()) return {};
  std::vector<uint8_t> found;
  append(found, static_cast<uint32_t>(numbers.size()));
  const auto each = [&](const auto& use) {
    for (const uint32_t number : numbers) {
      if (number >= objects_.size()) refuse();
      use(objects_[number]);
    }
  };
  const auto each_polygon = [&](const auto& use) {
    each([&](const Object& object) {
      for (uint32_t i = 0; i < object.count; ++i) use(polygons_[object.first + i]);
    });
  };
  if (format_ == PointFormat::kMixed) {
    each([&](const Object& object) { append(found, object.is_area ? 1U : 0U); });
  }
  each([&](const Object& object) {
    if (!object.is_area) append(found, object.count);
  });
  each_polygon([&](const Polygon& polygon) { append(found, polygon.points); });
  each([&](const Object& object) {
    if (!object.is_area) return;
    for (const uint32_t word : {object.height, object.width, object.runs}) append(found, word);
  });
  if (format_ == PointFormat::kMixed) found.resize((found.size() + kAlign - 1) / kAlign * kAlign);
  each_polygon([&](const Polygon& polygon) {
    append(found, bytes_.subspan(polygon.at, polygon.points * point_bytes(format_)));
  });
  each([&](const Object& object) {
    if (object.is_area) append(found, bytes_.subspan(object.at, 4 * size_t{object.runs}));
  });
  return found;
}

void ShapesMaker::begin_outlines(uint32_t count) {
  forms_.push_back(0);
  polygons_.push_back(count);
}

void ShapesMaker::add_outline(std::span<const double> xy) {
  points_.push_back(static_cast<uint32_t>(xy.size() / 2));
  numbers_.insert(numbers_.end(), xy.begin(), xy.end());
}

void ShapesMaker::add_area(uint32_t height, uint32_t width, std::span<const uint32_t> runs) {
  forms_.push_back(1);
  heads_.insert(heads_.end(), {height, width, static_cast<uint32_t>(runs.size())});
  runs_.insert(runs_.end(), runs.begin(), runs.end());
}

std::vector<uint8_t> ShapesMaker::value() const {
  const bool mixed = format_ == PointFormat::kMixed;
  const std::vector<uint32_t> count{static_cast<uint32_t>(forms_.size())};
  std::vector<const std::vector<uint32_t>*> words{&count};
  if (mixed) words.push_back(&forms_);
  words.insert(words.end(), {&polygons_, &points_, &heads_});
  size_t size = 0;
  for (const auto* const some : words) size += some->size() * sizeof(uint32_t);
  if (mixed) size = (size + kAlign - 1) / kAlign * kAlign;
  const size_t numbers_at = size;
  size += numbers_.size() * (mixed ? sizeof(double) : sizeof(float));
  std::vector<uint8_t> made(size + runs_.size() * sizeof(uint32_t));
  uint8_t* to = made.data();
  const auto add = [&](const auto& numbers) {
    const size_t bytes = numbers.size() * sizeof(numbers.front());
    if (bytes != 0) std::memcpy(to, numbers.data(), bytes);
    to += bytes;
  };
  for (const auto* const some : words) add(*some);
  to = made.data() + numbers_at;
  if (mixed) {
    add(numbers_);
  } else {
    add(std::vector<float>(numbers_.begin(), numbers_.end()));
  }
  add(runs_);
  return made;
}

}  // namespace fastload
