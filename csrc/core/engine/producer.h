// One thread's way from a sample id to its fields in the slot: read, decode, transform, store.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/bounded.h"
#include "collate/batch.h"
#include "decode/decode.h"
#include "engine/scratch.h"
#include "engine/shared_picture.h"
#include "engine/sources.h"
#include "engine/stats.h"
#include "read_ahead/read_ahead.h"
#include "sample/field_plan.h"
#include "transform/cut.h"
#include "transform/pixels/stage.h"
#include "transform/view.h"

namespace fastload {

// The same for all samples of a loader.
struct SamplePlan {
  FieldsPlan fields;
  uint64_t seed = 0;
  DecodeLimits limits = {};
  // Crops are cut from the picture scaled to this longest side: kUnbounded, or pixels; 0: as the
  // record has it. Of the first stream's pictures.
  uint32_t decoded_side = 0;
  DecodeOnce once = DecodeOnce::kCheaper;
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
  // A sample on its way.
  struct Job {
    Batch& batch;
    const uint32_t position;
    const uint64_t id;  // sample id
    const Sources::Home home;
    const Record record;  // of the first stream
    uint64_t start = 0;   // ns, when its present stage began
    Extent stored = {};   // size of the first picture as stored
    Extent drawn = {};    // size of what the views were drawn of
  };
  void produce_stream(Job& job, const FieldsPlan::Stream& stream, uint32_t slot);
  bool produce_parts(Job& job, const FieldsPlan::Stream& stream, Bytes bytes,
                     const LoadedBytes& loaded);
  ImageInfo open(Bytes bytes, const Record& record, const PixelFormat& format);
  bool open_stored(Job& job, ImageInfo& info, Bytes& pixels);
  bool open_bounded(Job& job, Bytes bytes, bool held, const PixelFormat& format, ImageInfo& info);
  void confirm(const Sources::Home& home, uint32_t stream, Bytes bytes, bool held,
               const EntryPoints& entries);
  uint64_t count_read(uint64_t start, size_t bytes);
  void cut_fields(const Job& job, const FieldsPlan::Stream& stream, const ImageInfo& info,
                  Bytes bytes, const EntryPoints& entries);
  bool decode_shared(const Job& job, const FieldsPlan::Stream& stream, const ImageInfo& info,
                     Bytes bytes, const EntryPoints& entries);
  template <class Decode>
  void cut(const Job& job, uint32_t field, Extent size, const Decode& decode);
  void draw(Job& job, Extent drawn);
  [[nodiscard]] SampleRng rng(const Job& job, uint32_t view) const;
  void draw_by_index(Job& job);
  void copy_value(const Job& job, uint32_t field);
  void copy_areas(const Job& job, const FieldPlan& plan, std::span<uint8_t> room);
  EntryPoints entries_of(const Source& source, uint64_t id);
  void count_paths();

  const Sources& sources_;
  const SamplePlan& plan_;
  ThreadStats& stats_;
  Decoder& decoder_;
  Cutter& cutter_;
  std::vector<View> views_;       // of the sample in work
  std::vector<Motions> motions_;  // likewise, around them; where there are points
  DrawnPixels drawn_;
  std::vector<uint8_t>& scratch_;
  std::vector<uint8_t>& entries_;
  BoundedPicture bounded_;
  SharedPicture shared_;
  std::vector<Rect> parts_;  // of the picture in work, one a field
  ReadAhead& ahead_;
  DecodeCounts counted_;
  uint64_t recut_ = 0;      // pictures that were opened a second time, as raw pixels, to cut from
  uint64_t resize_ns_ = 0;  // of the sample in work
  uint64_t losses_ = 0;     // loss_count() before it was begun
  uint64_t epoch_ = ~uint64_t{0};
  PhiloxKey key_;
};

}  // namespace fastload
