// The decoded tier as what a Filler fills: records are decoded and scaled before they are stored.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cache/bounded.h"
#include "cache/filler.h"
#include "cache/pixel_cache.h"
#include "transform/resample.h"

namespace fastload {

// The Filler's threads decode, so there should be about as many as cores.
class PixelTarget final : public FillTarget {
 public:
  // `file` must outlive it. Throws Error(kValue) if it is not of that side's tier.
  PixelTarget(CacheFile& file, uint32_t decoded_side, const DecodeLimits& limits,
              FallbackDecode fallback, const Shown& shown = {});

  [[nodiscard]] bool has_room(uint64_t id) const override { return file_.has_room(id); }
  bool has(uint64_t id) override { return file_.is_ready(id); }
  // Throws as Decoder::open and decode, and Error(kIo) where the pixels are not stored.
  void put(uint64_t id, const Record& record, Bytes bytes) override;

 private:
  // What a thread decodes and scales with.
  struct Tools {
    Decoder decoder;
    Resampler resampler;
    std::vector<uint8_t> pixels;  // as BoundedPicture's
  };
  void decode(uint64_t id, const Record& record, Bytes bytes, Tools& tools);

  CacheFile& file_;
  PixelCache cache_;
  const uint32_t side_;
  const DecodeLimits limits_;
  const FallbackDecode fallback_;
  const Shown shown_;
  std::mutex mutex_;  // guards the following
  std::vector<std::unique_ptr<Tools>> idle_;
};

}  // namespace fastload
