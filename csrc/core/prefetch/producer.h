// One thread's way from a sample id to pixels in the slot: read, decode, transform, store.
#pragma once

#include <cstdint>
#include <vector>

#include "collate/batch.h"
#include "decode/decode.h"
#include "prefetch/stats.h"
#include "shard/entries.h"
#include "shard/reader.h"
#include "transform/resample.h"
#include "transform/store.h"
#include "transform/view.h"

namespace fastload {

// The same for all samples of a loader.
struct SamplePlan {
  GeometrySpec geometry;
  StoreSpec store;
  int out_width = 0;  // pixels of a sample in the slot
  int out_height = 0;
  uint64_t seed = 0;
  DecodeLimits limits;
  Entries* entries = nullptr;  // borrowed; nullptr: none

  [[nodiscard]] size_t sample_bytes() const {
    return dtype_size(store.dtype) * 3 * static_cast<size_t>(out_width) * out_height;
  }
};

// Not thread-safe: each thread has its own.
class Producer {
 public:
  // `reader`, `plan` and `stats` must outlive it.
  Producer(Reader& reader, const SamplePlan& plan, const FallbackDecode& fallback,
           ThreadStats& stats);

  // Fills one position of the batch. A sample that cannot be produced becomes a fault of the batch
  // and a blank position; nothing is thrown.
  void fill(Batch& batch, uint32_t position);

 private:
  void produce(Batch& batch, uint32_t position, uint64_t id);
  [[nodiscard]] EntryPoints entries_of(uint64_t id) const;
  void count_paths();

  Reader& reader_;
  const SamplePlan& plan_;
  ThreadStats& stats_;
  Decoder decoder_;
  Resampler resampler_;
  Store store_;
  std::vector<uint8_t> scratch_;
  DecodeCounts counted_;
  uint64_t epoch_ = ~uint64_t{0};
  PhiloxKey key_;
};

}  // namespace fastload
