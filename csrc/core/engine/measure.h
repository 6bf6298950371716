// What must be known of a batch's samples before there is memory for them: how many rows each has,
// and how large its pictures will be. Nothing is decoded for it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sample_plan.h"
#include "engine/sources.h"
#include "engine/tiles.h"
#include "sample/field_place.h"

namespace fastload {

// Of one field of a batch of n samples: where each sample's rows begin, (n + 1), in rows; or the
// sizes of pictures or masks, (n), and how many masks each has; or nothing, because all are alike.
struct Measured {
  std::vector<int64_t> offsets;
  std::vector<PictureSize> sizes;
  std::vector<int64_t> counts;
};

// For one call. A sample that cannot be measured has no rows and 0x0 pixels here, and is a fault of
// the batch when it is produced.
class Measurer {
 public:
  // All must outlive it.
  Measurer(const Sources& sources, const SamplePlan& plan, const FallbackDecode& fallback)
      : sources_(sources), plan_(plan), fallback_(fallback), drawer_(plan) {}

  // ids: negative for none; draws: of each, or empty; partners: as BatchRequest's. One entry for
  // each field of the plan. Throws Error(kValue) where there are not as many draws as ids,
  // std::bad_alloc.
  std::vector<Measured> measure(std::span<const int64_t> ids, std::span<const uint32_t> draws,
                                uint64_t epoch, std::span<const int64_t> partners = {});

 private:
  void add_viewed(uint64_t id, const SampleRng& rng, std::vector<Measured>& all);
  void add_tile(uint32_t view, const Tile& tile, std::vector<Measured>& all) const;
  void add_mosaic(uint64_t id, std::span<const int64_t> partners, const SampleRng& rng,
                  std::vector<Measured>& all);
  int64_t vision_rows(const FieldPlan& field, int64_t id);
  Decoder& decoder();

  const Sources& sources_;
  const SamplePlan& plan_;
  const FallbackDecode& fallback_;
  std::optional<Decoder> decoder_;  // made for a picture whose size the index does not know
  std::vector<uint8_t> scratch_;
  TileDrawer drawer_;
  Sample sample_;
};

}  // namespace fastload
