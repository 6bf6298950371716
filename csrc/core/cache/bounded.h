// The decoded tier: pictures decoded whole and scaled until their longer side is within a bound;
// crops are cut from the result.
//
// DESIGN. The pixels are those of `fastload pack --raw --max-side`: the same decoder, the same
// antialiased bilinear resize of the whole picture, the same rounding of the sides. Whether they
// are made for this sample or were kept by an earlier one is not to be seen in the batch. A picture
// that needs no scaling gives the same crop either way, so it is decoded whole only to be kept;
// without room for it the decoder leaves out what the crop does not need, as without the tier, and
// where damage hides outside the crop, so does the error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/decode.h"
#include "transform/resample.h"

namespace fastload {

struct Extent {
  uint32_t width = 0;   // pixels
  uint32_t height = 0;  // pixels
  bool operator==(const Extent&) const = default;
};

// No side is longer.
inline constexpr uint32_t kUnbounded = ~uint32_t{0};

// As bounded() in fastload/packing/recoding.py: the longer side at most `max_side`, the shorter
// one rounded to even where it lies halfway, and at least 1.
Extent bounded(Extent size, uint32_t max_side);

// The cache's tier for a bound: "decoded-384", "decoded-full".
std::string decoded_tier(uint32_t max_side);

// One thread's bounded picture.
class BoundedPicture {
 public:
  // Both must outlive it and are used by nobody else meanwhile.
  BoundedPicture(Decoder& decoder, Resampler& resampler, std::vector<uint8_t>& pixels)
      : decoder_(decoder), resampler_(resampler), pixels_(pixels) {}

  // Decodes the whole picture that was given to decoder.open(), of `size`, and scales it to
  // `target`. Returns its pixels, rows without gaps, valid until the next call. `resize_ns` grows
  // by the time spent on scaling. Throws as Decoder::decode.
  Bytes make(Extent size, Extent target, const EntryPoints& entries, uint64_t& resize_ns);
  // Lets go of memory that only a huge picture needs.
  void trim();

 private:
  Decoder& decoder_;
  Resampler& resampler_;
  std::vector<uint8_t>& pixels_;
};

}  // namespace fastload
