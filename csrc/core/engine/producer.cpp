#include "engine/producer.h"

#include <exception>
#include <new>
#include <string>

#include "base/clock.h"
#include "engine/composed_rows.h"
#include "engine/shared_records.h"
#include "engine/values.h"
#include "engine/views.h"
#include "io/guarded_range.h"

namespace fastload {

Producer::Producer(const Sources& sources, const SamplePlan& plan, const FallbackDecode& fallback,
                   ThreadStats& stats, Scratch& scratch, ReadAhead& ahead, KeptPictures& kept,
                   Transcoder* transcoder)
    : sources_(sources),
      plan_(plan),
      stats_(stats),
      pictures_(sources, plan, fallback, stats, scratch, ahead, kept, transcoder),
      vision_(scratch, stats, ahead),
      samples_(plan.fields.views().size()) {}

void Producer::produce(Batch& batch, uint32_t position, uint64_t id) {
  const uint64_t start = now_ns();
  if (batch.epoch() != epoch_) {
    epoch_ = batch.epoch();
    key_ = epoch_key(plan_.seed, epoch_);
  }
  const Sources::Home home = sources_.find(id);
  Job job{batch, position, id,   home, home.source->reader->index().record(home.id),
          key_,  samples_, start};
  pictures_.begin(losses_);
  const FieldsPlan& plan = plan_.fields;
  if (plan.has_windows()) job.homes = find_homes(batch, position);
  const bool mosaic = plan_.mosaic.has_value();
  if (mosaic) {
    pictures_.draw_mosaic(job);
  } else if (plan.has_views() && !plan.has_vision() && !plan.draws_of_first()) {
    pictures_.draw_by_index(job);
  }
  uint64_t decode_ns = produce_pictures(job);
  if (plan.has_vision()) {
    vision_.produce(plan, job);
    const uint64_t now = now_ns();
    decode_ns += now - job.start;
    job.start = now;
  }
  if (mosaic) {
    copy_composed_values(plan_, job, samples_.front());
  } else {
    copy_values(plan, job, samples_);
  }
  stats_.add_time(Stage::kTransform, pictures_.resize_ns());
  stats_.add_time(Stage::kDecode, decode_ns - pictures_.resize_ns());
}

// ns in which they were decoded and cut.
uint64_t Producer::produce_pictures(Job& job) {
  const FieldsPlan& plan = plan_.fields;
  uint64_t decode_ns = 0;
  const auto produce = [&](uint32_t slot) {
    const FieldsPlan::Stream& stream = plan.streams()[slot];
    if (plan_.mosaic) {
      pictures_.produce_mosaic(job, stream, slot);
    } else {
      naming_frame(job, stream.partner, stream.frames.front().step,
                   [&] { pictures_.produce(job, stream, slot); });
    }
    const uint64_t now = now_ns();
    decode_ns += now - job.start;
    job.start = now;
  };
  const auto slots = static_cast<uint32_t>(plan.streams().size());
  SharedRecords* const shared = job.batch.shared();
  if (shared == nullptr) {
    for (uint32_t slot = 0; slot < slots; ++slot) produce(slot);
    return decode_ns;
  }
  // What another sample may be making right now comes last: others wait for what is made here. The
  // views, which are drawn of the first picture, are then drawn by the index.
  shared->begin(job.position);
  const auto is_late = [&](uint32_t slot) {
    return shared->used(job.position, slot) != nullptr;
  };
  if (plan.draws_of_first() && is_late(0)) pictures_.draw_by_index(job);
  for (const bool late : {false, true}) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      if (is_late(slot) == late) produce(slot);
    }
  }
  return decode_ns;
}

std::span<const Sources::Home> Producer::find_homes(const Batch& batch, uint32_t position) {
  homes_.clear();
  for (uint32_t partner = 0; partner <= batch.partner_count(); ++partner) {
    homes_.push_back(sources_.find(batch.frame_id(position, partner)));
  }
  return homes_;
}

void Producer::fill(Batch& batch, uint32_t position) noexcept {
  const int64_t id = batch.id(position);
  if (id == kElsewhere) return;
  if (id < 0) {
    batch.blank(position);
    return;
  }
  bool good = false;
  try {
    good = produce_or_report(batch, position, id);
  } catch (...) {  // no memory, perhaps even for the report
    batch.starve(position);
    ThreadStats::add(stats_.faults, 1);
  }
  if (batch.shared() != nullptr) batch.shared()->settle(position, good);
}

// False: it is a fault. Throws std::bad_alloc, also where the report of another one takes memory.
bool Producer::produce_or_report(Batch& batch, uint32_t position, int64_t id) {
  SampleFault fault{position, id, ErrorKind::kDecode, ""};
  // Whatever came of bytes that a mapped file may have lost meanwhile is not believed. Each file is
  // lost a few times at most, so this ends.
  do {
    losses_ = loss_count();
    if (produce_or_say(batch, position, fault)) return true;
  } while (loss_count() != losses_);
  batch.blank(position);
  batch.add_fault(std::move(fault));
  ThreadStats::add(stats_.faults, 1);
  return false;
}

// False: `fault` says what came in between.
bool Producer::produce_or_say(Batch& batch, uint32_t position, SampleFault& fault) {
  try {
    produce(batch, position, static_cast<uint64_t>(fault.sample));
    if (loss_count() != losses_) [[unlikely]]
      return false;
    pictures_.end();
    ThreadStats::add(stats_.samples, 1);
    return true;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Error& error) {
    fault.kind = error.kind();
    fault.message = error.what();
  } catch (const std::exception& error) {
    fault.kind = ErrorKind::kState;
    fault.message = std::string("unexpected: ") + error.what();
  }
  return false;
}

}  // namespace fastload
