#include "engine/producer.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "base/clock.h"
#include "io/guarded_range.h"
#include "transform/timed_sink.h"

namespace fastload {
Producer::Producer(const Sources& sources, const SamplePlan& plan, const FallbackDecode& fallback,
                   ThreadStats& stats, Scratch& scratch, ReadAhead& ahead)
    : sources_(sources),
      plan_(plan),
      stats_(stats),
      decoder_(scratch.decoder),
      resampler_(scratch.resampler),
      pixels_(scratch.pixels),
      store_(plan.store),
      scratch_(scratch.record),
      entries_(scratch.entries),
      bounded_(scratch.decoder, scratch.resampler, scratch.bounded),
      ahead_(ahead),
      counted_(scratch.decoder.counts()) {
  decoder_.configure(plan.limits, fallback);
}

ImageInfo Producer::open(Bytes bytes, const Record& record) {
  return static_cast<Codec>(record.codec) == Codec::kRaw
             ? decoder_.open_raw(bytes, record.width, record.height)
             : decoder_.open(bytes);
}

// Opens what the pixel cache has of the picture. What the index says of its size is all that is
// known of a record that is not read, so it must keep the limits that the record itself would.
bool Producer::open_stored(const Sources::Place& place, const Record& record, ImageInfo& info,
                           Bytes& pixels) {
  const uint32_t longer = std::max(record.width, record.height);
  const bool allowed = longer <= plan_.limits.max_side &&
                       uint64_t{record.width} * record.height <= plan_.limits.max_pixels;
  if (place.source.pixels == nullptr || !allowed) return false;
  const Extent size = bounded({record.width, record.height}, plan_.decoded_side);
  pixels = place.source.pixels->find(place.id, size.width, size.height);
  if (pixels.empty()) return false;
  info = decoder_.open_raw(pixels, size.width, size.height);
  return true;
}

// Opens the record; true if the bounded picture is open in its place, false where that is the same
// and has no room.
bool Producer::open_bounded(const Sources::Place& place, const Record& record, Bytes bytes,
                            bool held, ImageInfo& info) {
  info = open(bytes, record);
  if (plan_.decoded_side == 0) return false;
  const Extent size{info.width, info.height};
  const Extent target = bounded(size, plan_.decoded_side);
  PixelCache* const cache = place.source.pixels.get();
  const bool keep = cache != nullptr && size == Extent{record.width, record.height} &&
                    cache->wants(place.id, target.width, target.height);
  if (target == size && !keep) return false;
  Bytes pixels;
  try {
    pixels = bounded_.make(size, target, entries_of(place.source, place.id), resize_ns_);
  } catch (const Error&) {
    if (target != size) throw;
    info = open(bytes, record);  // the crop may do without what is damaged
    return false;
  }
  if (keep) {
    confirm(place, bytes, held, entries_of(place.source, place.id));
    if (loss_count() == losses_) cache->store(place.id, pixels);
  }
  info = decoder_.open_raw(pixels, target.width, target.height);
  return true;
}

View Producer::draw(const ImageInfo& info, const Batch& batch, uint32_t position, uint64_t id) {
  if (batch.epoch() != epoch_) {
    epoch_ = batch.epoch();
    key_ = epoch_key(plan_.seed, epoch_);
  }
  const View view = draw_view(plan_.geometry, static_cast<int>(info.width),
                              static_cast<int>(info.height), {key_, id, batch.draw(position)});
  if (view.window.width != plan_.out_width || view.window.height != plan_.out_height) {
    throw Error(ErrorKind::kValue,
                "the picture is " + std::to_string(view.window.width) + "x" +
                    std::to_string(view.window.height) +
                    " pixels after the transforms, others are " + std::to_string(plan_.out_width) +
                    "x" + std::to_string(plan_.out_height) +
                    ": add Resize, CenterCrop or RandomResizedCrop to the transform");
  }
  return view;
}

void Producer::produce(Batch& batch, uint32_t position, uint64_t id) {
  uint64_t start = now_ns();
  const Sources::Place place = sources_.find(id);
  const auto& [source, own] = place;
  const Record record = source.reader->index().record(own);
  std::shared_ptr<const void> held;  // the bytes' owner, where they were read ahead
  ImageInfo info;
  Bytes bytes;
  bool recut = false;
  resize_ns_ = 0;
  if (open_stored(place, record, info, bytes)) {
    ahead_.skip(batch.ahead().get(), position);
    start = count_read(start, 0);
  } else {
    bytes = ahead_.read(batch.ahead().get(), position,
                        {source.reader, source.entries, own, source.pixels.get()}, scratch_, held);
    start = count_read(start, bytes.size());
    recut = open_bounded(place, record, bytes, held != nullptr, info);
  }
  const EntryPoints entries = entries_of(source, own);
  cut(batch, position, info, entries);
  confirm(place, bytes, held != nullptr, entries);
  if (recut) ++recut_;
  batch.set_label(position, source.label(record.label));
  stats_.add_time(Stage::kTransform, resize_ns_);
  stats_.add_time(Stage::kDecode, now_ns() - start - resize_ns_);
}

// Finds out whether what was used was the files', which loss_count() tells then.
void Producer::confirm(const Sources::Place& place, Bytes bytes, bool held,
                       const EntryPoints& entries) {
  const auto& [source, own] = place;
  const bool stored = source.pixels != nullptr && source.pixels->has(bytes);
  static_cast<void>(stored ? source.pixels->is_there(bytes)
                           : held || source.reader->is_there(own, bytes, scratch_));
  if (source.entries != nullptr) static_cast<void>(source.entries->is_there(entries.packed));
}

uint64_t Producer::count_read(uint64_t start, size_t bytes) {
  const uint64_t now = now_ns();
  stats_.add_time(Stage::kShard, now - start);
  ThreadStats::add(stats_.bytes, bytes);
  return now;
}

// Decodes the crop of the open picture into the slot.
void Producer::cut(Batch& batch, uint32_t position, const ImageInfo& info,
                   const EntryPoints& entries) {
  const auto id = static_cast<uint64_t>(batch.id(position));
  const View view = draw(info, batch, position, id);
  store_.begin(batch.image(position), plan_.out_width, plan_.out_height);
  RowSink& pixels = pixels_.begin(plan_.pixels, {key_, id, batch.draw(position)}, plan_.out_width,
                                  plan_.out_height, store_);
  resampler_.begin(view, plan_.geometry.filter, pixels);
  TimedSink sink(resampler_);
  decoder_.decode(source_rect(view, plan_.geometry.filter), sink, entries);
  resampler_.end();
  resize_ns_ += sink.spent();
  const uint64_t before = now_ns();
  pixels_.end();
  resize_ns_ += now_ns() - before;
}

EntryPoints Producer::entries_of(const Source& source, uint64_t id) {
  if (source.entries == nullptr) return {};
  return {source.entries->find(id, entries_), static_cast<int>(source.entries->spacing())};
}

void Producer::count_paths() {
  const DecodeCounts& now = decoder_.counts();
  auto add = [&](Path path, uint64_t value, uint64_t before) {
    if (value != before)
      ThreadStats::add(stats_.records[static_cast<size_t>(path)], value - before);
  };
  add(Path::kJpeg, now.jpeg, counted_.jpeg);
  add(Path::kJpegTurbo, now.jpeg_turbo, counted_.jpeg_turbo);
  add(Path::kPng, now.png, counted_.png);
  add(Path::kWebp, now.webp, counted_.webp);
  add(Path::kRaw, now.raw, counted_.raw + recut_);
  add(Path::kFallback, now.fallback, counted_.fallback);
  add(Path::kWarnings, now.warnings, counted_.warnings);
  counted_ = now;
  recut_ = 0;
}

void Producer::fill(Batch& batch, uint32_t position) noexcept {
  const int64_t id = batch.id(position);
  if (id == kElsewhere) return;
  if (id < 0) {
    batch.blank(position);
    return;
  }
  try {
    produce_or_report(batch, position, id);
  } catch (...) {  // no memory, perhaps even for the report
    batch.starve(position);
    ThreadStats::add(stats_.faults, 1);
  }
}

// Throws std::bad_alloc, also where the report of another fault takes memory.
void Producer::produce_or_report(Batch& batch, uint32_t position, int64_t id) {
  SampleFault fault{position, id, ErrorKind::kDecode, ""};
  // Whatever came of bytes that a mapped file may have lost meanwhile is not believed. Each file is
  // lost a few times at most, so this ends.
  do {
    losses_ = loss_count();
    if (produce_or_say(batch, position, fault)) return;
  } while (loss_count() != losses_);
  batch.blank(position);
  batch.add_fault(std::move(fault));
  ThreadStats::add(stats_.faults, 1);
}

// False: `fault` says what came in between.
bool Producer::produce_or_say(Batch& batch, uint32_t position, SampleFault& fault) {
  try {
    produce(batch, position, static_cast<uint64_t>(fault.sample));
    if (loss_count() != losses_) [[unlikely]]
      return false;
    count_paths();
    bounded_.trim();
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
