// One thread's way from a sample id to pixels in the slot: read, decode, transform, store.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/bounded.h"
#include "collate/batch.h"
#include "decode/decode.h"
#include "engine/scratch.h"
#include "engine/sources.h"
#include "engine/stats.h"
#include "read_ahead/read_ahead.h"
#include "transform/pixels/stage.h"
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
  // Crops are cut from the picture scaled to this longest side: kUnbounded, or pixels; 0: as the
  // record has it.
  uint32_t decoded_side = 0;
  PixelSpec pixels = {};

  [[nodiscard]] size_t sample_bytes() const {
    return dtype_size(store.dtype) * 3 * static_cast<size_t>(out_width) * out_height;
  }
};

// Not thread-safe: each thread has its own. Cheap to make: its memory is in the thread's scratch.
class Producer {
 public:
  // All must outlive it; `scratch` is used by nobody else meanwhile.
  Producer(const Sources& sources, const SamplePlan& plan, const FallbackDecode& fallback,
           ThreadStats& stats, Scratch& scratch, ReadAhead& ahead);

  // Fills one position of the batch. A sample that cannot be produced becomes a fault of the batch
  // and a blank position.
  void fill(Batch& batch, uint32_t position) noexcept;

 private:
  void produce_or_report(Batch& batch, uint32_t position, int64_t id);
  bool produce_or_say(Batch& batch, uint32_t position, SampleFault& fault);
  void produce(Batch& batch, uint32_t position, uint64_t id);
  ImageInfo open(Bytes bytes, const Record& record);
  bool open_stored(const Sources::Place& place, const Record& record, ImageInfo& info,
                   Bytes& pixels);
  bool open_bounded(const Sources::Place& place, const Record& record, Bytes bytes, bool held,
                    ImageInfo& info);
  void confirm(const Sources::Place& place, Bytes bytes, bool held, const EntryPoints& entries);
  uint64_t count_read(uint64_t start, size_t bytes);
  void cut(Batch& batch, uint32_t position, const ImageInfo& info, const EntryPoints& entries);
  View draw(const ImageInfo& info, const Batch& batch, uint32_t position, uint64_t id);
  EntryPoints entries_of(const Source& source, uint64_t id);
  void count_paths();

  const Sources& sources_;
  const SamplePlan& plan_;
  ThreadStats& stats_;
  Decoder& decoder_;
  Resampler& resampler_;
  PixelStage& pixels_;
  Store store_;
  std::vector<uint8_t>& scratch_;
  std::vector<uint8_t>& entries_;
  BoundedPicture bounded_;
  ReadAhead& ahead_;
  DecodeCounts counted_;
  uint64_t recut_ = 0;      // pictures that were opened a second time, as raw pixels, to cut from
  uint64_t resize_ns_ = 0;  // of the sample in work
  uint64_t losses_ = 0;     // loss_count() before it was begun
  uint64_t epoch_ = ~uint64_t{0};
  PhiloxKey key_;
};

}  // namespace fastload
