// A cache of coefficients as what a Filler fills: JPEGs are transcoded before they are stored.
#pragma once

#include "cache/coefficient_cache.h"
#include "cache/filler.h"

namespace fastload {

// The Filler's threads transcode, so there should be about as many as cores.
class CoefficientTarget final : public FillTarget {
 public:
  // `file` must outlive it. Throws Error(kValue) if it is of another tier.
  CoefficientTarget(CacheFile& file, const DecodeLimits& limits, const Shown& shown = {})
      : file_(file), cache_(file, file.size(), file.index_digest(), shown), limits_(limits) {}

  [[nodiscard]] bool has_room(uint64_t id) const override { return file_.has_room(id); }
  bool has(uint64_t id) override { return file_.is_ready(id); }
  // Throws std::bad_alloc, and Error(kIo) where the record is not stored.
  void put(uint64_t id, const Record& record, Bytes bytes) override;

 private:
  CacheFile& file_;
  CoefficientCache cache_;
  const DecodeLimits limits_;
};

}  // namespace fastload
