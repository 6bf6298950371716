#include "transform/cut.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastload {
namespace {

std::variant<Store, PictureStore> make_store(const CutSpec& spec) {
  if (spec.format.is_rgb8() && spec.store.dtype <= DType::kFloat32) return Store(spec.store);
  return PictureStore(spec.store, spec.format);
}

// Whether nothing is seen, or shown.
bool is_empty(const Rect& rect) { return rect.width == 0 || rect.height == 0; }

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// A pixel of fill. Throws Error(kValue) for numbers that the format does not hold.
std::vector<uint8_t> fill_of(const CutSpec& spec) {
  const std::vector<int> given = spec.nearest ? std::vector{spec.fill} : spec.colour;
  const auto channels = static_cast<size_t>(spec.format.channels);
  const int most = spec.format.bits == 16 ? 65535 : 255;
  std::string found;
  bool fits = given.size() <= 1 || given.size() == channels;
  for (const int one : given) {
    found += (found.empty() ? "" : ", ") + std::to_string(one);
    fits = fits && one >= 0 && one <= most;
  }
  if (!fits) {
    throw Error(ErrorKind::kValue, "fill must be one number or one for each channel, in [0, " +
                                       std::to_string(most) + "], for " + format_text(spec.format) +
                                       ". Found: " + found + ".");
  }
  std::vector<uint8_t> pixel(spec.format.pixel_bytes());
  for (size_t i = 0; i < channels && !given.empty(); ++i) {
    const auto value = static_cast<uint16_t>(given[given.size() == 1 ? 0 : i]);
    if (spec.format.bits == 8) pixel[i] = static_cast<uint8_t>(value);
    if (spec.format.bits == 16) std::memcpy(&pixel[2 * i], &value, sizeof(value));
  }
  return pixel;
}

CutSpec checked(CutSpec spec) {
  check_format(spec.format);
  if (spec.format.ids && !spec.nearest) {
    throw Error(ErrorKind::kValue,
                "Ids are cut by the nearest pixel: any mean of two ids is another id.");
  }
  const bool works = !spec.pixels.empty() || !spec.source.empty();
  if (works && !spec.format.is_rgb8() && !spec.format.ids) {
    throw Error(ErrorKind::kValue, "Operations on pixels take 3 channels of 8 bits. Found: " +
                                       format_text(spec.format) + ".");
  }
  if (spec.store.erase.probability > 0 && !spec.format.is_rgb8()) {
    throw Error(ErrorKind::kValue,
                "Erasing takes 3 channels of 8 bits. Found: " + format_text(spec.format) + ".");
  }
  if (spec.nearest ? !spec.colour.empty() : spec.fill != 0) {
    throw Error(ErrorKind::kValue,
                "Pictures that are filtered have a colour, those of the nearest pixel a fill.");
  }
  return spec;
}

}  // namespace

CutPlan::CutPlan(CutSpec spec)
    : spec_(checked(std::move(spec))),
      number_(next_number()),
      fill_(fill_of(spec_)),
      store_(make_store(spec_)) {}

bool CutPlan::may_take_whole(const SampleRng& rng, DrawnPixels& drawn) const {
  const PixelSpec& source = spec_.source;
  if (source.empty() || (spec_.format.ids && source.moving() == nullptr)) return false;
  source.draw(rng, drawn);
  return drawn.whole_steps() > 0;
}

void Cutter::begin(const View& view, const CutPlan& plan, const StorePlace& place,
                   const SampleRng& rng, const WholeSize& whole) {
  const CutSpec& spec = plan.spec();
  if (number_ != plan.number()) {
    number_ = 0;  // if copying throws
    store_ = plan.store();
    number_ = plan.number();
  }
  is_nearest_ = spec.nearest;
  spec_ = &spec;
  place_ = place;
  rng_ = rng;
  const Sides made = view.made();
  size_ = {made.width, made.height};
  const auto start = [&](auto& store) {
    const auto [width, height] = made;
    store.begin(place, width, height);
    RowSink& out = spec.format.ids ? following_.begin(spec.pixels, rng, spec.format, spec.fill,
                                                      width, height, store)
                                   : stage_.begin(spec.pixels, rng, width, height, store);
    RowSink& turned = turn_.begin(view.quarter, view.window.width, view.window.height,
                                  spec.format.pixel_bytes(), out);
    begin_view(view, plan, turned);
  };
  std::visit(start, store_);
  if (!spec.source.empty()) begin_whole(whole);
}

void Cutter::begin_view(const View& view, const CutPlan& plan, RowSink& out) {
  const CutSpec& spec = plan.spec();
  const bool coloured = std::ranges::any_of(plan.fill(), [](uint8_t byte) { return byte != 0; });
  const bool plain = view.seen == View::kAll && view.shown == View::kAll;
  const bool bordered = !plain || (coloured && shows_fill(view));
  const View inner = bordered ? without_fill(view) : view;
  RowSink* to = &mirror_.begin(view, inner.window, spec.format.pixel_bytes(), out);
  if (bordered && to == &out) {
    const Rect& window = view.window;
    Rect part = inner.window;
    part.x -= window.x;
    part.y -= window.y;
    if (view.flip) part.x = window.width - part.x - part.width;
    if (is_empty(view.shown)) part.x = -part.width;
    to = &behind_.begin(part, window.width, window.height, plan.fill(), out);
  }
  if (is_nearest_) {
    nearest_.begin(inner, spec.format, spec.fill, *to);
  } else {
    resampler_.begin(inner, inner.filter, *to, spec.format);
  }
  source_ = is_nearest_ ? nearest_.source() : source_rect(inner, inner.filter);
  in_ = is_nearest_ ? static_cast<RowSink*>(&nearest_) : &resampler_;
  if (view.seen == View::kAll) return;
  Rect part = seen_part(view, source_);
  const Rect around = source_;
  source_ = part;
  part.x = is_empty(view.seen) ? -part.width : part.x - around.x;
  part.y -= around.y;
  in_ = &before_.begin(part, around.width, around.height, plan.fill(), *in_);
}

void Cutter::begin_whole(const WholeSize& whole) {
  const CutSpec& spec = *spec_;
  if (!spec.format.ids) {
    in_ = &whole_.begin_before(spec.source, rng_, whole.width, whole.height, source_, *in_);
    return;
  }
  part_.begin(source_, spec.format.pixel_bytes(), *in_);
  RowSink& first = whole_following_.begin(spec.source, rng_, spec.format, spec.fill, whole.width,
                                          whole.height, part_, whole.drawn);
  if (&first == &part_) return;  // nothing happens to this picture
  in_ = &first;
  source_ = {0, 0, whole.width, whole.height};
}

void Cutter::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  in_->rows(pixels, stride, y, count);
}

void Cutter::restart() { in_->restart(); }

void Cutter::trim(size_t most) {
  whole_.trim(most);
  whole_following_.trim(most);
  turn_.trim(most);
  mirror_.trim(most);
}

void Cutter::end() {
  if (in_ == &whole_) whole_.end();
  if (in_ == &whole_following_) whole_following_.end();
  is_nearest_ ? nearest_.end() : resampler_.end();
  mirror_.end();
  turn_.end();
  spec_->format.ids ? following_.end() : stage_.end();
  const StoreSpec& store = spec_->store;
  if (store.erase.probability > 0) erase(store, rng_, place_, size_.first, size_.second);
}

}  // namespace fastload
