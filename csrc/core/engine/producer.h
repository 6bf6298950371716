// One thread's way from a sample id to its fields in the slot: pictures first, then values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collate/batch.h"
#include "engine/pictures.h"
#include "engine/sample_plan.h"
#include "engine/scratch.h"
#include "engine/sources.h"
#include "engine/stats.h"
#include "engine/tiles.h"
#include "engine/vision_rows.h"
#include "read_ahead/read_ahead.h"

namespace fastload {

// Not thread-safe: each thread has its own. Cheap to make: its memory is in the thread's scratch.
class Producer {
 public:
  // All must outlive it; `scratch` is used by nobody else meanwhile.
  Producer(const Sources& sources, const SamplePlan& plan, const FallbackDecode& fallback,
           ThreadStats& stats, Scratch& scratch, ReadAhead& ahead, KeptPictures& kept,
           Transcoder* transcoder);

  // Fills one position of the batch. A sample that cannot be produced becomes a fault of the batch
  // and a blank position.
  void fill(Batch& batch, uint32_t position) noexcept;

 private:
  bool produce_or_report(Batch& batch, uint32_t position, int64_t id);
  bool produce_or_say(Batch& batch, uint32_t position, SampleFault& fault);
  void produce(Batch& batch, uint32_t position, uint64_t id);
  uint64_t produce_pictures(Job& job);
  std::span<const Sources::Home> find_homes(const Batch& batch, uint32_t position);

  const Sources& sources_;
  const SamplePlan& plan_;
  ThreadStats& stats_;
  Pictures pictures_;
  VisionRows vision_;
  std::vector<Sample> samples_;       // the views of the sample in work
  std::vector<Sources::Home> homes_;  // its own and its partners', of a plan with windows
  uint64_t losses_ = 0;               // loss_count() before it was begun
  uint64_t epoch_ = ~uint64_t{0};
  PhiloxKey key_;
};

}  // namespace fastload
