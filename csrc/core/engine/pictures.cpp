#include "engine/pictures.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "decode/coefficients/record.h"
#include "decode/rows.h"
#include "engine/views.h"
#include "io/guarded_range.h"
#include "transform/timed_sink.h"

namespace fastload {
namespace {

WholeSize whole_size(Extent size, Extent drawn) {
  const auto of = [](uint32_t side) { return static_cast<int>(side); };
  return {of(size.width), of(size.height), {of(drawn.width), of(drawn.height)}};
}

}  // namespace

Pictures::Pictures(const Sources& sources, const SamplePlan& plan, const FallbackDecode& fallback,
                   ThreadStats& stats, Scratch& scratch, ReadAhead& ahead, KeptPictures& kept,
                   Transcoder* transcoder)
    : sources_(sources),
      plan_(plan),
      stats_(stats),
      decoder_(scratch.decoder),
      resampler_(scratch.resampler),
      cutter_(scratch.cutter),
      drawer_(plan),
      scratch_(scratch.record),
      entries_(scratch.entries),
      bounded_(scratch.decoder, scratch.resampler, scratch.bounded),
      shared_(scratch.shared),
      compose_(scratch.compose),
      ahead_(ahead),
      kept_(kept),
      transcoder_(transcoder),
      counted_(scratch.decoder.counts()) {
  decoder_.configure(plan.limits, fallback);
}

void Pictures::begin(uint64_t losses) {
  resize_ns_ = 0;
  losses_ = losses;
}

void Pictures::end() {
  count_paths();
  bounded_.trim();
  shared_.trim();
  cutter_.trim(kKeepScratch);
  compose_.canvas.trim(kKeepScratch);
  compose_.warp.trim(2 * kKeepScratch);
}

// A record that is open, of a sample or of its partner.
struct Pictures::Open {
  const Sources::Home home;
  const Record record;  // of the first stream
  ImageInfo info = {};
  Bytes bytes = {};
  std::shared_ptr<const void> held = nullptr;  // the bytes' owner, where they were read ahead
  Extent stored = {};                          // size of the picture as stored
  bool recut = false;  // the bounded picture was opened in the record's place
};

// Opens what the pixel cache has of the picture. What the index says of its size is all that is
// known of a record that is not read, so it must keep the limits that the record itself would.
bool Pictures::open_stored(Open& open) {
  const auto& [source, own] = open.home;
  const Record& record = open.record;
  const uint32_t longer = std::max(record.width, record.height);
  const bool allowed = longer <= plan_.limits.max_side &&
                       uint64_t{record.width} * record.height <= plan_.limits.max_pixels;
  if (source->pixels == nullptr || !allowed) return false;
  open.stored = {record.width, record.height};
  const Extent size = bounded(open.stored, plan_.decoded_side);
  open.bytes = source->pixels->find(own, size.width, size.height);
  if (open.bytes.empty()) return false;
  open.info = decoder_.open_raw(open.bytes, size.width, size.height);
  return true;
}

// What is kept in place of the first stream's record; empty: nothing, it is read.
Bytes Pictures::find_coefficients(const Sources::Home& home, const Record& record) {
  CoefficientCache* const cache = home.source->coefficients.get();
  return cache == nullptr ? Bytes{} : cache->find(home.id, record);
}

// Has that made of the record, which was read whole and has been used.
void Pictures::keep_coefficients(const Sources::Home& home, const Record& record, Bytes bytes) {
  const auto& cache = home.source->coefficients;
  if (cache == nullptr || transcoder_ == nullptr || cache->has(bytes)) return;
  if (loss_count() == losses_) transcoder_->offer(cache, home.id, record, bytes);
}

// Opens the record; true if the bounded picture is open in its place, false where that is the same
// and has no room.
bool Pictures::open_bounded(Open& open, const PixelFormat& format) {
  const Record& record = open.record;
  const auto& [source, own] = open.home;
  const Shown& shown = source->reader->shown();
  open.info = open_record(decoder_, open.bytes, record, shown, format);
  const Extent size{open.info.width, open.info.height};
  open.stored = size;
  if (plan_.decoded_side == 0) return false;
  const Extent target = bounded(size, plan_.decoded_side);
  PixelCache* const cache = source->pixels.get();
  const bool keep = cache != nullptr && size == Extent{record.width, record.height} &&
                    cache->wants(own, target.width, target.height);
  if (target == size && !keep) return false;
  const EntryPoints entries = entries_of(open.home, open.bytes);
  Bytes pixels;
  try {
    pixels = bounded_.make(size, target, entries, resize_ns_);
  } catch (const Error&) {
    if (target != size) throw;
    // The crop may do without what is damaged.
    open.info = open_record(decoder_, open.bytes, record, shown, format);
    return false;
  }
  if (keep) {
    confirm(open.home, 0, open.bytes, open.held != nullptr, entries);
    if (loss_count() == losses_) cache->store(own, pixels);
  }
  open.info = decoder_.open_raw(pixels, target.width, target.height);
  return true;
}

// Draws the sample's views of its first picture; `drawn` is the size of what is cut from.
void Pictures::draw(Job& job, Extent drawn) {
  for (uint32_t view = 0; view < job.samples.size(); ++view) {
    drawer_.draw(view, job.home, job.record, job.stored, drawn, job.rng(view), job.samples[view]);
  }
}

void Pictures::draw_by_index(Job& job) {
  job.stored = first_size(job.home, job.record, decoder_, scratch_);
  draw(job, plan_.decoded_side == 0 ? job.stored : bounded(job.stored, plan_.decoded_side));
}

// Reads the stream's record and opens it; false: parts of it were enough, and all is done.
bool Pictures::open(Job& job, const FieldsPlan::Stream& stream, uint32_t slot, Open& open) {
  const auto& [source, own] = open.home;
  const bool first = stream.number == 0;
  const PixelFormat& format = plan_.fields.fields()[stream.frames.front().field].picture.format;
  const auto streams = static_cast<uint32_t>(plan_.fields.streams().size());
  const uint32_t request = job.position * streams + slot;
  void* const ahead = job.batch.ahead().get();
  if (first && open_stored(open)) {
    ahead_.skip(ahead, request);
    job.start = count_read(job.start, 0);
    return true;
  }
  if (first && !(open.bytes = find_coefficients(open.home, open.record)).empty()) {
    ahead_.skip(ahead, request);
    job.start = count_read(job.start, open.bytes.size());
    open.info = open_record(decoder_, open.bytes, open.record, source->reader->shown(), format);
    open.stored = {open.info.width, open.info.height};
    return true;
  }
  const ReadAhead::Origin origin = origin_of(open.home, stream.number);
  std::optional<LoadedBytes> loaded;
  open.bytes = ahead_.read(ahead, request, origin, scratch_, open.held, first ? &loaded : nullptr);
  job.start = count_read(job.start, open.bytes.size());
  if (loaded) {
    if (produce_parts(job, stream, open.bytes, *loaded)) return false;
    open.held.reset();
    open.bytes = ahead_.read_whole(origin, scratch_);
    job.start = count_read(job.start, open.bytes.size());
  }
  if (first) {
    open.recut = open_bounded(open, format);
  } else {
    Reader& reader = source->stream(stream.number);
    open.info =
        open_record(decoder_, open.bytes, reader.index().record(own), reader.shown(), format);
  }
  return true;
}

void Pictures::produce(Job& job, const FieldsPlan::Stream& stream, uint32_t slot) {
  SharedRecords::Entry* own = nullptr;
  SharedRecords* const shared = job.batch.shared();
  if (shared != nullptr) {
    SharedRecords::Entry* const other = shared->used(job.position, slot);
    if (other != nullptr && take(job, stream, *shared, *other)) return;
    own = shared->owned(job.position, slot);
  }
  const bool first = stream.number == 0;
  const Sources::Home& home = job.home_of(stream.partner);
  Open picture{home, stream.partner == 0 || !first ? job.record
                                                   : home.source->reader->index().record(home.id)};
  if (!open(job, stream, slot, picture)) return;
  const ImageInfo& info = picture.info;
  const EntryPoints entries = first ? entries_of(home, picture.bytes) : EntryPoints{};
  if (first && stream.partner == 0) {
    job.stored = picture.stored;
    draw(job, {info.width, info.height});
  }
  if (own == nullptr || !own->wants_whole ||
      !cut_whole(job, stream, *shared, *own, info, entries)) {
    cut_fields(job, stream, info, picture.bytes, entries);
  }
  confirm(home, stream.number, picture.bytes, picture.held != nullptr, entries);
  if (first) keep_coefficients(home, picture.record, picture.bytes);
  if (picture.recut) ++recut_;
  if (own == nullptr) return;
  own->stored = picture.stored;
  own->size = {info.width, info.height};
  own->views.clear();
  for (const FieldsPlan::Frame& frame : stream.frames) {
    own->views.push_back(view_of(job, frame, own->size));
  }
  own->is_made = true;
}

// The frame's view of a picture of that size.
View Pictures::view_of(const Job& job, FieldsPlan::Frame frame, Extent size) const {
  const FieldPlan& plan = plan_.fields.fields()[frame.field];
  const Tile& tile = job.samples[plan.view_at(frame.step)].tiles.front();
  return scaled(tile.view, tile.drawn, size);
}

// Cuts the stream's frames from the whole picture, which is kept for others; false: nothing is
// done, because there is no room for it, or because it is damaged, perhaps where no frame needs it.
bool Pictures::cut_whole(const Job& job, const FieldsPlan::Stream& stream, SharedRecords& shared,
                         SharedRecords::Entry& entry, const ImageInfo& info,
                         const EntryPoints& entries) {
  const size_t pixel_bytes =
      plan_.fields.fields()[stream.frames.front().field].picture.format.pixel_bytes();
  const Rect all{0, 0, static_cast<int>(info.width), static_cast<int>(info.height)};
  const size_t bytes = size_t{info.width} * info.height * pixel_bytes + RowSink::kSlack;
  if (!shared.reserve(entry, bytes)) return false;
  entry.whole.begin(all, pixel_bytes);
  try {
    decoder_.decode(all, entry.whole, entries);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDecode) throw;
    return false;
  }
  entry.has_whole = true;
  const auto from_memory = [&](Rect part, RowSink& sink) { entry.whole.give(part, sink); };
  const Extent size{info.width, info.height};
  for (const FieldsPlan::Frame& frame : stream.frames) cut(job, frame, size, from_memory);
  return true;
}

// Takes the stream's frames from what another place of the batch has made of their record; false:
// there is not all of it.
bool Pictures::take(Job& job, const FieldsPlan::Stream& stream, SharedRecords& shared,
                    SharedRecords::Entry& entry) {
  if (!shared.wait(entry, job.position)) return false;
  if (stream.number == 0 && stream.partner == 0) {
    job.stored = entry.stored;
    draw(job, entry.size);
  }
  const auto from_memory = [&](Rect part, RowSink& sink) { entry.whole.give(part, sink); };
  for (const FieldsPlan::Frame& frame : stream.frames) {
    if (copy(job, frame, shared, entry)) continue;
    if (!entry.has_whole) return false;
    cut(job, frame, entry.size, from_memory);
  }
  kept_.count_again();
  return true;
}

// Copies a frame's finished pixels; false: there are none that are the same.
bool Pictures::copy(const Job& job, FieldsPlan::Frame frame, const SharedRecords& shared,
                    const SharedRecords::Entry& entry) {
  const FieldsPlan::Frame* const same = shared.same(entry, frame);
  if (same == nullptr) return false;
  if (entry.position != job.position) {
    const auto number = same - plan_.fields.streams()[entry.slot].frames.data();
    const View& view = entry.views[static_cast<size_t>(number)];
    if (!shared.is_still(frame) || view != view_of(job, frame, entry.size)) return false;
  }
  const FieldPlace& place = job.batch.place(frame.field);
  const size_t bytes = place.row_bytes * static_cast<size_t>(place.room.height);
  std::memcpy(place.frame_at(job.position, frame.step), place.frame_at(entry.position, same->step),
              bytes);
  return true;
}

// The same of parts of the record; false: they do not do.
bool Pictures::produce_parts(Job& job, const FieldsPlan::Stream& stream, Bytes bytes,
                             const LoadedBytes& loaded) try {
  const auto& [source, own] = job.home;
  const PixelFormat& format = plan_.fields.fields()[stream.frames.front().field].picture.format;
  const ImageInfo info = decoder_.open_part(bytes, loaded, format, source->reader->shown());
  job.stored = {info.width, info.height};
  const EntryPoints entries = entries_of(job.home, bytes);
  draw(job, job.stored);
  cut_fields(job, stream, info, bytes, entries);
  static_cast<void>(source->entries->is_there(entries.packed));
  return true;
} catch (const NeedsWhole&) {
  return false;
}

// Finds out whether what was used was the files', which loss_count() tells then.
void Pictures::confirm(const Sources::Home& home, uint32_t stream, Bytes bytes, bool held,
                       const EntryPoints& entries) {
  const auto& [source, own] = home;
  const auto has = [&](const auto& cache) {
    return stream == 0 && cache != nullptr && cache->has(bytes);
  };
  if (has(source->pixels)) {
    static_cast<void>(source->pixels->is_there(bytes));
  } else if (has(source->coefficients)) {
    static_cast<void>(source->coefficients->is_there(bytes));
  } else {
    static_cast<void>(held || source->stream(stream).is_there(own, bytes, scratch_));
  }
  if (stream == 0 && source->entries != nullptr) {
    static_cast<void>(source->entries->is_there(entries.packed));
  }
}

uint64_t Pictures::count_read(uint64_t start, size_t bytes) {
  const uint64_t now = now_ns();
  stats_.add_time(Stage::kShard, now - start);
  ThreadStats::add(stats_.bytes, bytes);
  return now;
}

// Cuts the stream's fields from the open picture.
void Pictures::cut_fields(const Job& job, const FieldsPlan::Stream& stream, const ImageInfo& info,
                          Bytes bytes, const EntryPoints& entries) {
  const Extent size{info.width, info.height};
  if (stream.frames.size() > 1 && decode_shared(job, stream, info, bytes, entries)) {
    const auto from_memory = [&](Rect part, RowSink& sink) { shared_.give(part, sink); };
    for (const FieldsPlan::Frame& frame : stream.frames) cut(job, frame, size, from_memory);
    return;
  }
  const auto decode = [&](Rect part, RowSink& sink) { decoder_.decode(part, sink, entries); };
  for (const FieldsPlan::Frame& frame : stream.frames) cut(job, frame, size, decode);
}

// Decodes what the stream's fields need together; false: nothing, because it is not cheaper, or
// because it is damaged, perhaps where none of them needs it.
bool Pictures::decode_shared(const Job& job, const FieldsPlan::Stream& stream,
                             const ImageInfo& info, Bytes bytes, const EntryPoints& entries) {
  if (plan_.once == DecodeOnce::kNever) return false;
  parts_.clear();
  for (const auto& [field, step] : stream.frames) {
    const FieldPlan& plan = plan_.fields.fields()[field];
    const View view = view_of(job, {field, step}, {info.width, info.height});
    const SampleRng rng = job.rng(plan.view_at(step));
    const bool whole = plan_.fields.cut(field).may_take_whole(rng, drawn_);
    parts_.push_back(whole ? Rect{0, 0, static_cast<int>(info.width), static_cast<int>(info.height)}
                           : decoded_rect(view, plan.picture.nearest));
  }
  const size_t pixel_bytes =
      plan_.fields.fields()[stream.frames.front().field].picture.format.pixel_bytes();
  if (plan_.once == DecodeOnce::kCheaper &&
      !pays_once(info, bytes.size(), parts_, entries, pixel_bytes)) {
    return false;
  }
  const Rect all = around(parts_);
  shared_.begin(all, pixel_bytes);
  try {
    decoder_.decode(all, shared_, entries);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDecode) throw;
    return false;
  }
  return true;
}

// Cuts the frame's view of the open picture, of `size`, into the slot; `decode(part, sink)` hands
// over the pixels.
template <class Decode>
void Pictures::cut(const Job& job, FieldsPlan::Frame frame, Extent size, const Decode& decode) {
  const auto [field, step] = frame;
  const FieldPlan& plan = plan_.fields.fields()[field];
  const FieldPlace& place = job.batch.place(field);
  const uint32_t number = plan.view_at(step);
  const Tile& tile = job.samples[number].tiles.front();
  const View view = scaled(tile.view, tile.drawn, size);
  check_room(view, place, job.position, plan_.fields.is_measured(plan));
  const bool dense = !plan.picture.store.channels_last;
  cutter_.begin(
      view, plan_.fields.cut(field),
      {place.frame_at(job.position, step), dense ? 0 : place.row_bytes_at(job.position, plan)},
      job.rng(number), whole_size(size, tile.drawn));
  TimedSink sink(cutter_);
  decode(cutter_.source(), sink);
  resize_ns_ += sink.spent();
  if (!plan_.fields.cut(field).spec().works_at_end()) {
    cutter_.end();  // looks at the clock would take as long as a small picture
  } else {
    const uint64_t before = now_ns();
    cutter_.end();
    resize_ns_ += now_ns() - before;
  }
  fill_padding(place, plan, job.position, {view.made().height, view.made().width});
}

// The entry points of the set's record; coefficients that are there in its place have none.
EntryPoints Pictures::entries_of(const Sources::Home& home, Bytes bytes) {
  const auto& [source, id] = home;
  if (source->entries == nullptr) return {};
  if (source->coefficients != nullptr && begins_coefficients(bytes)) return {};
  return {source->entries->find(id, entries_), static_cast<int>(source->entries->spacing())};
}

void Pictures::count_paths() {
  const DecodeCounts& now = decoder_.counts();
  counted_[static_cast<size_t>(Codec::kRaw)] += recut_;
  for (size_t path = 0; path < kPaths; ++path) {
    if (now[path] != counted_[path]) {
      ThreadStats::add(stats_.records[path], now[path] - counted_[path]);
    }
  }
  counted_ = now;
  recut_ = 0;
}

}  // namespace fastload
