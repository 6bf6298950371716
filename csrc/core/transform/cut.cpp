#include "transform/cut.h"

#include <atomic>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastload {
namespace {

std::variant<Store, PictureStore> make_store(const CutSpec& spec) {
  if (spec.format.is_rgb8() && spec.store.dtype <= DType::kFloat32) return Store(spec.store);
  return PictureStore(spec.store, spec.format);
}

uint64_t next_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
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
  const int most = !spec.nearest ? 0 : spec.format.bits == 16 ? 65535 : 255;
  if (spec.fill < 0 || spec.fill > most) {
    throw Error(ErrorKind::kValue, "fill must be in [0, " + std::to_string(most) + "] for " +
                                       format_text(spec.format) +
                                       (spec.nearest ? "" : " that are filtered") +
                                       ". Found: " + std::to_string(spec.fill) + ".");
  }
  return spec;
}

}  // namespace

CutPlan::CutPlan(CutSpec spec)
    : spec_(checked(std::move(spec))), number_(next_number()), store_(make_store(spec_)) {}

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
  size_ = {view.window.width, view.window.height};
  const auto start = [&](auto& store) {
    const auto [width, height] = std::pair(view.window.width, view.window.height);
    store.begin(place, width, height);
    RowSink& out = spec.format.ids ? following_.begin(spec.pixels, rng, spec.format, spec.fill,
                                                      width, height, store)
                                   : stage_.begin(spec.pixels, rng, width, height, store);
    if (is_nearest_) return nearest_.begin(view, spec.format, spec.fill, out);
    resampler_.begin(view, view.filter, out, spec.format);
  };
  std::visit(start, store_);
  source_ = is_nearest_ ? nearest_.source() : source_rect(view, view.filter);
  in_ = is_nearest_ ? static_cast<RowSink*>(&nearest_) : &resampler_;
  if (!spec.source.empty()) begin_whole(whole);
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
}

void Cutter::end() {
  if (in_ == &whole_) whole_.end();
  if (in_ == &whole_following_) whole_following_.end();
  is_nearest_ ? nearest_.end() : resampler_.end();
  spec_->format.ids ? following_.end() : stage_.end();
  const StoreSpec& store = spec_->store;
  if (store.erase.probability > 0) erase(store, rng_, place_, size_.first, size_.second);
}

}  // namespace fastload
