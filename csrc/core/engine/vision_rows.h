// The pictures of a sample as a vision-language model takes them: patches or tiles, as rows. How
// many there are follows from the index, before anything is decoded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "decode/decode.h"
#include "engine/scratch.h"
#include "engine/sources.h"
#include "engine/stats.h"
#include "engine/tiles.h"
#include "read_ahead/read_ahead.h"
#include "sample/field_plan.h"

namespace fastload {

// What a batch has of each picture, in a field of form kVisionSizes.
struct VisionFacts {
  int64_t rows = 0;
  int64_t grid_height = 0, grid_width = 0;
  int64_t tokens = 0;
  int64_t height = 0, width = 0;  // of the picture as stored
};
static_assert(sizeof(VisionFacts) == FieldPlan::kVisionFactBytes);

// The rows of all of a sample's pictures, and how many pictures those are. Throws what reading the
// table throws, and Error(kLimit) where the rule has no answer for a picture. `decoder` is asked
// for a picture whose size the index does not know.
struct VisionCount {
  int64_t rows = 0, pictures = 0;
};
VisionCount count_vision(const Sources::Home& home, const FieldPlan& field, Decoder& decoder,
                         std::vector<uint8_t>& scratch);

// Appends the records of all of a sample's pictures, by their numbers among those of all lists,
// ascending. None where that cannot be told: producing the sample says why.
void add_vision_records(const Sources::Home& home, const FieldsPlan& plan,
                        std::vector<int64_t>& records);

// Not thread-safe.
class VisionRows {
 public:
  // All must outlive it; scratch and stats are used by nobody else meanwhile.
  VisionRows(Scratch& scratch, ThreadStats& stats, ReadAhead& ahead)
      : scratch_(scratch), stats_(stats), ahead_(ahead) {}

  // Fills the sample's fields of pictures as rows.
  void produce(const FieldsPlan& plan, const Job& job);

 private:
  void cut(const FieldPlan& field, const Job& job, std::span<uint8_t> room);
  Bytes read(const Job& job, const ListSource& list, uint64_t number,
             std::shared_ptr<const void>& held);
  void describe(const FieldPlan& field, const Sources::Home& home, std::span<uint8_t> room);

  Scratch& scratch_;
  ThreadStats& stats_;
  ReadAhead& ahead_;
};

}  // namespace fastload
