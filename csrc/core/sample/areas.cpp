#include "sample/areas.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/error.h"
#include "transform/nearest.h"
#include "transform/pixels/warp.h"

namespace fastload {
namespace {

constexpr uint32_t kMaxSide = 1 << 24;              // pixels; a view's, too
constexpr uint64_t kMostMoved = uint64_t{1} << 30;  // pixels of an object that is moved whole

// Words of a value, taken from the front.
class Words {
 public:
  explicit Words(std::span<const uint8_t> bytes) : bytes_(bytes) {
    if (bytes_.size() % 4 != 0) refuse();
  }
  uint32_t take() {
    if (left() == 0) refuse();
    uint32_t word = 0;
    std::memcpy(&word, bytes_.data() + at_, sizeof(word));
    at_ += sizeof(word);
    return word;
  }
  [[nodiscard]] size_t left() const { return (bytes_.size() - at_) / 4; }
  [[noreturn]] void refuse() const {
    throw Error(ErrorKind::kFormat, "the value of " + std::to_string(bytes_.size()) +
                                        " bytes has no areas of objects. Pack again.");
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

struct Head {
  uint32_t height, width, runs;
};

// Run lengths column by column, zeros' first.
class Runs {
 public:
  void add(bool inside, uint32_t length) {
    if (inside != inside_) {
      runs.push_back(0);
      inside_ = inside;
    }
    runs.back() += length;
  }
  std::vector<uint32_t> runs{0};

 private:
  bool inside_ = false;
};

// Where each of the object's runs ends, in pixels column by column.
std::vector<uint64_t> ends_of(Words& words, const Head& head) {
  const bool sized = head.height - 1 < kMaxSide && head.width - 1 < kMaxSide;
  if (!sized || head.runs > words.left()) words.refuse();
  std::vector<uint64_t> ends(head.runs);
  uint64_t end = 0;
  for (uint64_t& one : ends) one = end += words.take();
  if (end != uint64_t{head.height} * head.width) words.refuse();
  return ends;
}

std::vector<uint32_t> seen(const std::vector<uint64_t>& ends, const Head& head, const View& view) {
  std::vector<int> columns, rows;
  nearest_positions(view, columns, rows);
  Runs found;
  for (const int column : columns) {
    auto run = ends.begin();
    bool begun = false;
    for (const int row : rows) {
      const bool within = column >= 0 && row >= 0 && column < static_cast<int>(head.width) &&
                          row < static_cast<int>(head.height);
      if (!within) {
        found.add(false, 1);
        continue;
      }
      const uint64_t at = static_cast<uint64_t>(column) * head.height + static_cast<uint64_t>(row);
      if (!begun) run = std::upper_bound(run, ends.end(), at);
      begun = true;
      while (*run <= at) ++run;  // rows do not fall, and the last run ends with the picture
      found.add((run - ends.begin()) % 2 != 0, 1);
    }
  }
  return std::move(found.runs);
}

// The runs of a picture of that size, after its pixels were moved.
std::vector<uint32_t> moved(const std::vector<uint32_t>& runs, int width, int height,
                            std::span<const Motion> motions) {
  const auto [w, h] =
      std::array<size_t, 2>{static_cast<size_t>(width), static_cast<size_t>(height)};
  std::vector<uint8_t> pixels(w * h), others(w * h);
  size_t at = 0;  // column by column
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const size_t end = at + runs[i]; at < end; ++at) {
      pixels[at % h * w + at / h] = static_cast<uint8_t>(i % 2);
    }
  }
  const uint8_t outside = 0;
  for (const Motion& motion : motions) {
    move_nearest(motion, false, 1, width, height, pixels.data(), &outside, others.data());
    pixels.swap(others);
  }
  Runs found;
  for (size_t i = 0; i < w * h; ++i) found.add(pixels[i % h * w + i / h] != 0, 1);
  return std::move(found.runs);
}

// Where the runs of a whole object end after its picture, of that size as drawn, was moved.
std::vector<uint64_t> moved_before(const std::vector<uint64_t>& ends, const Head& head,
                                   std::span<const Motion> motions, std::pair<int, int> drawn) {
  const uint64_t pixels = uint64_t{head.height} * head.width;
  if (pixels > kMostMoved) {
    throw Error(ErrorKind::kLimit, "areas of " + std::to_string(kMostMoved) +
                                       " pixels at most are moved before the crop. Found: " +
                                       std::to_string(head.width) + "x" +
                                       std::to_string(head.height) + ".");
  }
  const auto width = static_cast<int>(head.width), height = static_cast<int>(head.height);
  std::vector<uint32_t> runs;
  for (size_t i = 0; i < ends.size(); ++i) {
    runs.push_back(static_cast<uint32_t>(ends[i] - (i == 0 ? 0 : ends[i - 1])));
  }
  const double x = static_cast<double>(drawn.first) / width;
  const double y = static_cast<double>(drawn.second) / height;
  std::vector<Motion> own(motions.begin(), motions.end());
  for (Motion& motion : own) motion = motion.at_size(x, y);
  std::vector<uint64_t> found;
  uint64_t end = 0;
  for (const uint32_t run : moved(runs, width, height, own)) found.push_back(end += run);
  return found;
}

void append(std::vector<uint8_t>& to, std::span<const uint32_t> words) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words.data());
  to.insert(to.end(), bytes, bytes + words.size_bytes());
}

}  // namespace

std::vector<uint8_t> move_areas(std::span<const uint8_t> bytes, const ViewAt& view_at,
                                const Motions& motions, std::pair<int, int> drawn) {
  if (bytes.empty()) return {};
  Words words(bytes);
  const uint32_t count = words.take();
  if (count > words.left() / 3) words.refuse();
  std::vector<Head> heads(count);
  for (Head& head : heads) head = {words.take(), words.take(), words.take()};
  std::vector<uint8_t> found, runs;
  append(found, std::vector<uint32_t>{count});
  for (const Head& head : heads) {
    std::vector<uint64_t> ends = ends_of(words, head);
    if (!motions.source.empty()) ends = moved_before(ends, head, motions.source, drawn);
    const View view = view_at(static_cast<int>(head.width), static_cast<int>(head.height));
    std::vector<uint32_t> own = seen(ends, head, view);
    if (!motions.cut.empty()) own = moved(own, view.window.width, view.window.height, motions.cut);
    append(found, std::vector<uint32_t>{static_cast<uint32_t>(view.window.height),
                                        static_cast<uint32_t>(view.window.width),
                                        static_cast<uint32_t>(own.size())});
    append(runs, own);
  }
  if (words.left() != 0) words.refuse();
  found.insert(found.end(), runs.begin(), runs.end());
  return found;
}

}  // namespace fastload
