#include "engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "engine/composed_rows.h"
#include "engine/needs.h"
#include "engine/views.h"
#include "engine/vision_rows.h"

namespace fastload {
namespace {

// Until a cancelled batch interrupts what it waits for.
constexpr std::chrono::milliseconds kPatience(200);

// Small samples (28x28 digits) cost about as much as claiming them, so they are claimed in groups.
uint32_t claim_size(size_t sample_bytes) {
  constexpr size_t kGroupBytes = 64 << 10;
  return static_cast<uint32_t>(
      std::clamp<size_t>(kGroupBytes / std::max<size_t>(sample_bytes, 1), 1, 32));
}

// Samples that take long, and windows, of which one may wait for another, are claimed one by one.
bool claims_one(const FieldsPlan& plan) {
  return plan.has_vision() || (plan.has_windows() && !plan.streams().empty());
}

// Of all that a plan names the sources have something.
void check_parts(const Sources& sources, const FieldsPlan& plan, uint32_t decoded_side) {
  using Form = FieldPlan::Form;
  const bool first = !plan.streams().empty() && plan.streams().front().number == 0;
  if (decoded_side != 0 && first &&
      !plan.fields()[plan.streams().front().frames.front().field].picture.format.is_rgb8()) {
    throw Error(ErrorKind::kValue,
                "Decoded pictures are kept of 3 channels of 8 bits only. Leave "
                "out Cache(decoded=...).");
  }
  for (const FieldPlan& field : plan.fields()) {
    if (field.form == Form::kLabel && field.part == FieldPlan::kIndex) continue;
    if (field.is_origin() || field.form == Form::kPad) continue;
    for (const Source& source : sources.all()) {
      const bool picture = field.form == Form::kPicture;
      const size_t parts = field.is_vision() ? source.lists.size()
                           : picture         ? source.further.size() + 1
                                             : source.columns.size();
      if (field.part >= parts) {
        throw Error(ErrorKind::kValue, "A field's part must be below " + std::to_string(parts) +
                                           ", the source's number of " +
                                           (field.is_vision() ? "lists of pictures"
                                            : picture         ? "record streams"
                                                              : "columns") +
                                           ". Found: " + std::to_string(field.part) + ".");
      }
      if (!picture && !field.is_vision()) check_column(*source.columns[field.part], field);
    }
  }
  for (const ViewPlan& view : plan.views()) {
    if (!view.objects) continue;
    for (const Source& source : sources.all()) check_objects(source.columns, *view.objects);
  }
}

}  // namespace

Engine::Engine(Sources sources, SamplePlan plan, const ThreadPlan& threads, FallbackDecode fallback,
               const ReadAheadPlan& read_ahead)
    : Client(threads.limit, threads.most == 0 ? threads.limit : threads.most),
      pool_(Pool::of_process()),
      sources_(std::move(sources)),
      plan_(std::move(plan)),
      fallback_(std::move(fallback)),
      chunk_(claims_one(plan_.fields) ? 1 : claim_size(plan_.fields.picture_bytes())),
      kept_(plan_.kept_bytes),
      ahead_(read_ahead, [this](uint64_t record) { return origin_of_record(record); }),
      stats_(std::make_unique<ThreadStats[]>(static_cast<size_t>(seats()))) {
  check_parts(sources_, plan_.fields, plan_.decoded_side);
  check_mosaic(plan_);
  const auto has_cache = [](const Source& source) { return source.coefficients != nullptr; };
  if (std::ranges::any_of(sources_.all(), has_cache)) {
    transcoder_ = std::make_unique<Transcoder>(pool_, plan_.limits, limit(), seats());
  }
  pool_.attach(*this, threads.cpus);
}

Engine::~Engine() { close(); }

void LeakAfterFork::operator()(Engine* engine) const {
  if (::getpid() == owner && !Pool::is_working_for(*engine)) delete engine;
}

EnginePointer make_engine(Sources sources, SamplePlan plan, const ThreadPlan& threads,
                          FallbackDecode fallback, const ReadAheadPlan& read_ahead) {
  return {new Engine(std::move(sources), std::move(plan), threads, std::move(fallback), read_ahead),
          LeakAfterFork{::getpid()}};
}

Error Engine::closed() {
  return {ErrorKind::kState, "The loader is closed. Create a new DataLoader."};
}

void Engine::check_usable() const {
  if (::getpid() != pool_.owner()) {
    throw Error(ErrorKind::kState,
                "This loader was created before fork() and its threads live in the parent process. "
                "Create the DataLoader in the child.");
  }
  if (closed_) throw closed();
}

std::shared_ptr<void> Engine::announce(std::vector<int64_t> ids, const std::vector<uint32_t>& draws,
                                       uint64_t epoch, const std::vector<int64_t>& partners) {
  check_usable();
  if (!draws.empty() && draws.size() != ids.size()) {
    throw Error(ErrorKind::kValue,
                "A batch has a draw for each id, or none. Found: " + std::to_string(ids.size()) +
                    " ids, " + std::to_string(draws.size()) + " draws.");
  }
  if (plan_.fields.has_vision()) return announce_lists(ids);
  if (plan_.mosaic) {
    const uint32_t each = 1 + partners_each(partners.size(), ids.size());
    return ahead_.announce(records_of_mosaics(ids, draws, epoch, partners),
                           each * records_a_sample());
  }
  if (plan_.fields.has_windows()) {
    check_frames(partners, ids, plan_.fields);
    std::vector<int64_t> records = records_of_windows(ids, partners);
    if (plan_.share) leave_first(records);
    return ahead_.announce(std::move(records), records_a_sample());
  }
  ReadAhead::Needs needs = needs_of(sources_, plan_, ids, draws, epoch);
  return ahead_.announce(records_of(std::move(ids)), records_a_sample(), std::move(needs));
}

// The records of samples in the order in which they are decoded: a record's number is
// stream * samples + sample, and those of several streams lie beside each other.
std::vector<int64_t> Engine::records_of(std::vector<int64_t> ids) const {
  const std::vector<FieldsPlan::Stream>& streams = plan_.fields.streams();
  if (streams.size() == 1 && streams.front().number == 0) return ids;
  const auto samples = static_cast<int64_t>(sources_.size());
  std::vector<int64_t> records;
  records.reserve(ids.size() * streams.size());
  for (const int64_t id : ids) {
    for (const FieldsPlan::Stream& stream : streams) {
      records.push_back(id < 0 ? id : id + samples * static_cast<int64_t>(stream.number));
    }
  }
  return records;
}

// The same of samples with windows: each stream's record is the partner's.
std::vector<int64_t> Engine::records_of_windows(const std::vector<int64_t>& ids,
                                                const std::vector<int64_t>& partners) const {
  const size_t each = partners_each(partners.size(), ids.size());
  const auto samples = static_cast<int64_t>(sources_.size());
  std::vector<int64_t> records;
  records.reserve(ids.size() * plan_.fields.streams().size());
  for (size_t i = 0; i < ids.size(); ++i) {
    for (const FieldsPlan::Stream& stream : plan_.fields.streams()) {
      const int64_t id =
          stream.partner == 0 ? ids[i] : partners[i * each + stream.partner - 1] & ~kPadBit;
      const bool is_there = ids[i] >= 0 && id < samples;  // else decoding says that it is not
      records.push_back(is_there ? id + samples * static_cast<int64_t>(stream.number) : -1);
    }
  }
  return records;
}

// The records of all pictures of samples, by their numbers among those of all lists.
std::shared_ptr<void> Engine::announce_lists(const std::vector<int64_t>& ids) {
  std::vector<int64_t> records;
  std::vector<uint32_t> starts{0};
  for (const int64_t id : ids) {
    if (id >= 0) {
      add_vision_records(sources_.find(static_cast<uint64_t>(id)), plan_.fields, records);
    }
    starts.push_back(static_cast<uint32_t>(records.size()));
  }
  return ahead_.announce(std::move(records), std::move(starts));
}

// As records_of(), of each sample and its partners, as Tile::number counts them: those of pictures that
// are not seen, or will have been kept, are left out, where the index knows the sizes.
std::vector<int64_t> Engine::records_of_mosaics(const std::vector<int64_t>& ids,
                                                const std::vector<uint32_t>& draws, uint64_t epoch,
                                                const std::vector<int64_t>& partners) {
  size_t pixel_bytes = 0;
  for (const FieldsPlan::Stream& stream : plan_.fields.streams()) {
    pixel_bytes += plan_.fields.cut(stream.frames.front().field).spec().format.pixel_bytes();
  }
  const size_t each = partners_each(partners.size(), ids.size());
  const PhiloxKey key = epoch_key(plan_.seed, epoch);
  TileDrawer drawer(plan_);
  Sample sample;
  std::vector<int64_t> records;
  std::vector<int64_t> wanted;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto others = std::span(partners).subspan(i * each, each);
    wanted.assign(1 + each, -1);
    bool known = true;
    const auto size_of = [&](const Sources::Home&, const Record& record) {
      if (record.width != 0 && record.height != 0) return Extent{record.width, record.height};
      known = false;
      return Extent{1, 1};
    };
    if (ids[i] >= 0) {
      const auto id = static_cast<uint64_t>(ids[i]);
      drawer.draw_mosaic(sources_, id, others, {key, id, draws.empty() ? 0 : draws[i]}, size_of,
                         sample);
      for (const Tile& tile : sample.tiles) {
        const Rect& shown = tile.view.window;
        if (known && (shown.width == 0 || shown.height == 0)) continue;
        const size_t bytes = static_cast<size_t>(tile.view.resized_width) *
                             static_cast<size_t>(tile.view.resized_height) * pixel_bytes;
        const int64_t record = tile.number == 0 ? ids[i] : others[tile.number - 1];
        if (known && kept_.expect(static_cast<uint64_t>(record), bytes)) continue;
        wanted[tile.number] = record;
      }
    }
    const std::vector<int64_t> of_sample = records_of(wanted);
    records.insert(records.end(), of_sample.begin(), of_sample.end());
  }
  return records;
}

// The other way round. Numbers behind the last record are given to the first stream, whose reader
// refuses them.
ReadAhead::Origin Engine::origin_of_record(uint64_t record) const {
  if (plan_.fields.has_vision()) {
    const auto [list, number] = sources_.find_listed(record);
    return {list->reader, nullptr, number};
  }
  const uint64_t samples = sources_.size();
  const uint64_t stream = samples == 0 ? 0 : record / samples;
  const std::vector<FieldsPlan::Stream>& streams = plan_.fields.streams();
  if (streams.empty() || stream > streams.back().number) {
    return origin_of(sources_.find(record), 0);
  }
  return origin_of(sources_.find(record % samples), static_cast<uint32_t>(stream));
}

std::vector<Measured> Engine::measure(std::span<const int64_t> ids, std::span<const uint32_t> draws,
                                      uint64_t epoch, std::span<const int64_t> partners) {
  check_usable();
  return Measurer(sources_, plan_, fallback_).measure(ids, draws, epoch, partners);
}

void Engine::forget(const std::shared_ptr<void>& announced) {
  check_usable();
  ahead_.drop(announced);
  kept_.expect_none();
}

// The records that several frames of a batch are of; nullptr: none.
std::shared_ptr<SharedRecords> Engine::shared_by(const BatchRequest& request) {
  check_frames(request.partners, request.ids, plan_.fields);
  auto shared = std::make_shared<SharedRecords>(records_of_windows(request.ids, request.partners),
                                                plan_.fields, spare_);
  return shared->any() ? shared : nullptr;
}

Engine::Ticket Engine::submit(BatchRequest request) {
  check_usable();
  if (request.ahead == nullptr) {
    request.ahead = announce(request.ids, request.draws, request.epoch, request.partners);
  }
  if (plan_.fields.has_windows() && plan_.share) request.shared = shared_by(request);
  auto batch = std::make_shared<Batch>(std::move(request), plan_.fields);
  Ticket ticket = 0;
  {
    const std::lock_guard lock(pool_.mutex());
    if (closing_) throw closed();
    ticket = next_ticket_;
    submitted_.push_back({ticket, batch});
    ++next_ticket_;
    if (batch->complete()) return ticket;  // no samples: a rank's share of a short last batch
    try {
      pending_.push_back({ticket, std::move(batch)});
    } catch (...) {
      submitted_.pop_back();  // it is this thread's again
      throw;
    }
    pool_.work_added();
  }
  return ticket;
}

// Once another thread closes the loader, its batches are close()'s, and the lists may be empty.
std::shared_ptr<Batch> Engine::find(Ticket ticket) {
  if (closing_) throw closed();
  const auto found = found_in(submitted_, ticket);
  if (found != submitted_.end()) return found->batch;
  throw Error(ErrorKind::kState,
              "No batch has ticket " + std::to_string(ticket) + "; it was collected or cancelled.");
}

void Engine::erase(Ticket ticket) {
  for (std::deque<Submitted>* queue : {&submitted_, &pending_}) {
    const auto found = found_in(*queue, ticket);
    if (found != queue->end()) queue->erase(found);
  }
}

// Batches are in the order of their tickets, and those that leave are at the front: with any number
// of batches in work this takes the same time.
std::deque<Engine::Submitted>::iterator Engine::found_in(std::deque<Submitted>& queue,
                                                         Ticket ticket) {
  const auto before = [](const Submitted& one, Ticket wanted) { return one.ticket < wanted; };
  const auto found = std::lower_bound(queue.begin(), queue.end(), ticket, before);
  return found != queue.end() && found->ticket == ticket ? found : queue.end();
}

bool Engine::wait(Ticket ticket, double seconds) {
  check_usable();
  std::unique_lock lock(pool_.mutex());
  const std::shared_ptr<Batch> batch = find(ticket);
  const auto limit = std::chrono::duration<double>(std::max(0.0, seconds));
  done_.wait_for(lock, limit, [&] { return batch->complete() || closing_; });
  if (closing_) throw closed();
  return batch->complete();
}

std::vector<SampleFault> Engine::collect(Ticket ticket) {
  check_usable();
  std::shared_ptr<Batch> batch;
  std::shared_ptr<void> owner;
  {
    const std::lock_guard lock(pool_.mutex());
    batch = find(ticket);
    if (!batch->complete()) {
      throw Error(ErrorKind::kState, "Batch " + std::to_string(ticket) + " is not complete.");
    }
    erase(ticket);
    owner = batch->take_owner();
  }
  return batch->take_faults();
}

void Engine::cancel(Ticket ticket) {
  check_usable();
  std::shared_ptr<void> owner;  // destroyed after the lock is released
  std::unique_lock lock(pool_.mutex());
  const std::shared_ptr<Batch> batch = find(ticket);
  batch->abandon();
  // A sample in hand may wait for a store that does not answer.
  while (!done_.wait_for(lock, kPatience, [&] { return batch->complete(); })) {
    lock.unlock();
    ahead_.interrupt();
    lock.lock();
  }
  ahead_.drop(batch->ahead());
  kept_.expect_none();
  erase(ticket);
  owner = batch->take_owner();
}

void Engine::close() {
  if (closed_ || ::getpid() != pool_.owner()) return;
  {
    const std::lock_guard lock(pool_.mutex());
    closing_ = true;
    for (const Submitted& one : pending_) one.batch->abandon();
    pending_.clear();
  }
  done_.notify_all();
  ahead_.stop();
  if (transcoder_ != nullptr) transcoder_->close();
  pool_.detach(*this);
  ahead_.close();
  kept_.clear();
  closed_ = true;
  {
    const std::lock_guard lock(pool_.mutex());
    dropped_.swap(submitted_);
  }
  dropped_.clear();  // without the lock: the owners may need the GIL
  spare_.clear();
}

int Engine::threads() {
  if (::getpid() != pool_.owner()) return limit();
  const std::lock_guard lock(pool_.mutex());
  return limit();
}

void Engine::set_threads(int threads) {
  check_usable();
  pool_.set_limit(*this, threads);
  if (transcoder_ != nullptr) transcoder_->set_limit(threads);
}

Transcoder::Counts Engine::transcoding() {
  if (transcoder_ == nullptr || ::getpid() != pool_.owner()) return {};
  return transcoder_->counts();
}

const ThreadStats& Engine::thread_stats(int seat) {
  ThreadStats& stats = stats_[static_cast<size_t>(seat)];
  if (::getpid() == pool_.owner()) {
    const std::lock_guard lock(pool_.mutex());
    stats.nanoseconds[static_cast<size_t>(Stage::kIdle)].store(idle_ns(seat));
  }
  return stats;
}

// The oldest batch that may have unclaimed positions; `finished` has none.
std::shared_ptr<Batch> Engine::next_batch(const Batch* finished) {
  const std::lock_guard lock(pool_.mutex());
  if (!pending_.empty() && pending_.front().batch.get() == finished) pending_.pop_front();
  return has_work() ? pending_.front().batch : nullptr;
}

void Engine::work(int seat, Scratch& scratch) noexcept {
  ThreadStats& stats = stats_[static_cast<size_t>(seat)];
  std::optional<Producer> producer;
  try {
    producer.emplace(sources_, plan_, fallback_, stats, scratch, ahead_, kept_, transcoder_.get());
  } catch (const std::exception&) {
    producer.reset();  // no memory: that is what becomes of the samples, see below
  }
  std::shared_ptr<Batch> batch = next_batch(nullptr);
  while (batch != nullptr) {
    const Batch::Range range = batch->claim(chunk_);
    if (range.first == range.last) {
      batch = next_batch(batch.get());
      continue;
    }
    for (uint32_t i = range.first; i < range.last; ++i) {
      if (producer) {
        producer->fill(*batch, i);
        continue;
      }
      batch->starve(i);
      if (batch->shared() != nullptr) batch->shared()->settle(i, false);
    }
    if (batch->finish(range.last - range.first)) {
      // The lock orders the notification after a waiter's check of complete().
      {
        const std::lock_guard lock(pool_.mutex());
      }
      done_.notify_all();
    }
    if (should_leave() || !producer) return;  // with the next seat, perhaps there is memory
  }
}

}  // namespace fastload
