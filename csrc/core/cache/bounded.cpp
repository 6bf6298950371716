#include "cache/bounded.h"

#include <algorithm>
#include <cmath>

#include "decode/rows.h"
#include "transform/store.h"
#include "transform/timed_sink.h"

namespace fastload {
namespace {

// Sides are below 2^24 and bounds below 2^32, so that the product is exact in a double, and the
// quotient is Python's.
uint32_t scaled(uint32_t side, uint32_t max_side, uint32_t longer) {
  const double exact = static_cast<double>(uint64_t{side} * max_side) / longer;
  return static_cast<uint32_t>(std::max(1.0, std::nearbyint(exact)));
}

}  // namespace

Extent bounded(Extent size, uint32_t max_side) {
  const uint32_t longer = std::max(size.width, size.height);
  if (longer <= max_side) return size;
  return {scaled(size.width, max_side, longer), scaled(size.height, max_side, longer)};
}

std::string decoded_tier(uint32_t max_side) {
  return "decoded-" + (max_side == kUnbounded ? std::string("full") : std::to_string(max_side));
}

Bytes BoundedPicture::make(Extent size, Extent target, const EntryPoints& entries,
                           uint64_t& resize_ns) {
  View whole;
  whole.crop = {0, 0, static_cast<int>(size.width), static_cast<int>(size.height)};
  whole.resized_width = static_cast<int>(target.width);
  whole.resized_height = static_cast<int>(target.height);
  whole.window = {0, 0, whole.resized_width, whole.resized_height};
  const size_t length = size_t{target.width} * target.height * 3;
  Store store{StoreSpec()};
  store.begin(reserve_scratch(pixels_, length), whole.resized_width, whole.resized_height);
  resampler_.begin(whole, Filter::kBilinear, store);
  TimedSink sink(resampler_);
  decoder_.decode(whole.crop, sink, entries);
  resampler_.end();
  resize_ns += sink.spent();
  return {pixels_.data(), length};
}

void BoundedPicture::trim() { trim_scratch(pixels_); }

}  // namespace fastload
