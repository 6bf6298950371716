#include "read_ahead/read_ahead.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/thread.h"
#include "read_ahead/kept_share.h"
#include "read_ahead/requests.h"

namespace fastload {

ReadAhead::ReadAhead(const ReadAheadPlan& plan, Find find)
    : plan_(plan),
      find_(std::move(find)),
      space_(std::make_shared<Space>()),
      pool_(BufferPool::make(plan.budget, [space = space_] {
        {
          const std::lock_guard lock(space->mutex);
          ++space->releases;
        }
        space->changed.notify_all();
      })) {}

ReadAhead::~ReadAhead() { close(); }

void ReadAhead::close() {
  stop();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    threads = std::move(threads_);
    threads_.clear();
  }
  {
    const std::lock_guard lock(space_->mutex);
    space_->closing = true;
  }
  work_.notify_all();
  space_->changed.notify_all();
  for (std::thread& thread : threads) thread.join();
}

// A source is worth so many threads.
void ReadAhead::expect(size_t in_flight) {
  if (in_flight > most_threads_) most_threads_ = in_flight;
}

// Without a new thread the ones that there are do the work, or decoding itself.
void ReadAhead::start_thread() {
  const std::lock_guard lock(mutex_);
  if (closing_ || threads_.size() >= most_threads_) return;
  try {
    threads_.reserve(threads_.size() + 1);
    threads_.push_back(fastload::start_thread("fastload-read", [this] { run(); }));
  } catch (const std::exception&) {
    // No more threads, or no memory for one: see above.
  }
}

std::shared_ptr<void> ReadAhead::announce(std::vector<int64_t> ids, uint32_t together,
                                          Needs needs) {
  if (plan_.budget == 0 || ids.empty()) return nullptr;
  return add(std::make_shared<Group>(std::move(ids), together, std::move(needs)));
}

std::shared_ptr<void> ReadAhead::announce(std::vector<int64_t> ids, std::vector<uint32_t> starts) {
  if (plan_.budget == 0 || ids.empty()) return nullptr;
  return add(std::make_shared<Group>(std::move(ids), 1, nullptr, std::move(starts)));
}

std::shared_ptr<void> ReadAhead::add(std::shared_ptr<Group> group) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return nullptr;
    announced_.push_back(group);
    has_announced_ = true;
    first = threads_.empty();
  }
  if (first) start_thread();
  work_.notify_one();
  return group;
}

std::optional<uint32_t> ReadAhead::find(const void* group, uint32_t sample,
                                        int64_t record) noexcept {
  if (group == nullptr) return {};
  const Group& of = *static_cast<const Group*>(group);
  const auto begin = of.ids.begin() + of.starts[sample];
  const auto end = of.ids.begin() + of.starts[sample + 1];
  const auto found = std::lower_bound(begin, end, record);
  if (found == end || *found != record) return {};
  return static_cast<uint32_t>(found - of.ids.begin());
}

void ReadAhead::drop(const std::shared_ptr<void>& dropped) noexcept {
  if (dropped == nullptr) return;
  Group& group = *static_cast<Group*>(dropped.get());
  group.dropped = true;
  for (size_t i = 0; i < group.ids.size(); ++i) let_go(group.requests[i]);
}

void ReadAhead::skip(void* group, uint32_t position) noexcept {
  if (group != nullptr) let_go(static_cast<Group*>(group)->requests[position]);
}

// One that is being read is let go by publish(), if its group is dropped; else with the group.
void ReadAhead::let_go(Request& request) noexcept {
  int state = kQueued;
  if (request.state.compare_exchange_strong(state, kTaken)) return;
  state = kReady;
  if (request.state.compare_exchange_strong(state, kTaken)) request.buffer.reset();
}

Bytes ReadAhead::read(void* group, uint32_t position, const Origin& origin,
                      std::vector<uint8_t>& scratch, std::shared_ptr<const void>& held,
                      std::optional<LoadedBytes>* loaded) {
  const ReadScope scope(stop_);
  if (group == nullptr) return origin.reader->read(origin.id, scratch);
  Request& request = static_cast<Group*>(group)->requests[position];
  int state = request.state.load();
  if (state == kQueued && request.state.compare_exchange_strong(state, kTaken)) {
    if (origin.reader->is_ready(origin.id) ||
        (!cold_ && origin.reader->is_resident(origin.reader->locate(origin.id)))) {
      return origin.reader->read(origin.id, scratch);
    }
    late_.fetch_add(1, std::memory_order_relaxed);
    if (loaded != nullptr) {
      const Bytes parts =
          read_parts(*static_cast<Group*>(group), position, origin, scratch, *loaded);
      if (*loaded) return parts;
    }
    return origin.reader->read_cold(origin.id, scratch);
  }
  if (state == kLoading) waits_.fetch_add(1, std::memory_order_relaxed);
  while (state == kLoading) {
    request.state.wait(kLoading);
    state = request.state.load();
  }
  if (state == kReady && request.state.compare_exchange_strong(state, kTaken)) {
    const Record record = origin.reader->locate(origin.id);
    held = std::move(request.buffer);
    if (request.loaded) {
      const Bytes parts{request.bytes, request.loaded->size()};
      count_parts(*request.loaded, record);
      if (loaded != nullptr &&
          origin.entries->are_parts(origin.id, record.length, *request.loaded, parts)) {
        *loaded = request.loaded;
        origin.reader->count_miss();
        return parts;
      }
      held.reset();
      return read_whole(origin, scratch);
    }
    const Bytes bytes{request.bytes, record.length};
    if (request.checked) return bytes;
    try {
      origin.reader->check(origin.id, record, bytes);
    } catch (const Error& error) {
      const ByteSource* const source = origin.reader->source(record.shard);
      if (error.kind() != ErrorKind::kChecksum || source == nullptr || !source->is_far()) throw;
      held.reset();
      return origin.reader->read_again(origin.id, record, scratch);
    }
    origin.reader->count_miss();
    return bytes;
  }
  if (state == kFailed && request.error != nullptr) std::rethrow_exception(request.error);
  return state == kFailed ? origin.reader->read_cold(origin.id, scratch)
                          : origin.reader->read(origin.id, scratch);
}

// What decoding reads itself, if parts of it are worth it and are right.
Bytes ReadAhead::read_parts(const Group& group, uint32_t position, const Origin& origin,
                            std::vector<uint8_t>& scratch, std::optional<LoadedBytes>& loaded) {
  if (group.needs == nullptr) return {};
  Job job;
  const Record record = origin.reader->locate(origin.id);
  job.source = origin.reader->source(record.shard);
  if (job.source == nullptr) return {};
  job.loaded = worth(group, position, origin, record, *job.source);
  if (!job.loaded) return {};
  job.begin = record.offset;
  const size_t size = job.loaded->size();
  if (scratch.size() < size) scratch.resize(size);
  job.buffer = {std::shared_ptr<void>(), scratch.data()};  // borrowed
  std::vector<RangeRequest> ranges;
  add_ranges(job, ranges);
  job.source->read(ranges, true);
  for (const RangeRequest& range : ranges) {
    if (range.bytes != range.memory) return {};
  }
  count_parts(*job.loaded, record);
  const Bytes parts{scratch.data(), size};
  if (!origin.entries->are_parts(origin.id, record.length, *job.loaded, parts)) return {};
  origin.reader->count_miss();
  loaded = job.loaded;
  return parts;
}

Bytes ReadAhead::read_whole(const Origin& origin, std::vector<uint8_t>& scratch) {
  const ReadScope scope(stop_);
  parts_whole_.fetch_add(1, std::memory_order_relaxed);
  return origin.reader->read_cold(origin.id, scratch);
}

void ReadAhead::count_parts(const LoadedBytes& loaded, const Record& record) {
  parts_.fetch_add(1, std::memory_order_relaxed);
  part_bytes_.fetch_add(loaded.size(), std::memory_order_relaxed);
  parts_of_.fetch_add(record.length, std::memory_order_relaxed);
}

ReadAhead::Counts ReadAhead::counts() const {
  Counts counts;
  counts.resident = resident_;
  counts.ahead = ahead_;
  counts.requests = requests_;
  counts.bytes = bytes_;
  counts.late = late_;
  counts.waits = waits_;
  counts.parts = parts_;
  counts.part_bytes = part_bytes_;
  counts.parts_of = parts_of_;
  counts.parts_whole = parts_whole_;
  counts.buffer_bytes = pool_->in_use();
  counts.buffer_peak = pool_->peak();
  const std::lock_guard lock(mutex_);
  counts.threads = threads_.size();
  return counts;
}

void ReadAhead::run() noexcept {
  const ReadScope scope(stop_);
  Jobs jobs;
  try {
    jobs.reserve(1);  // plan() needs no memory for the first one
  } catch (const std::exception&) {
    return;  // decoding reads by itself
  }
  while (plan(jobs)) {
    if (waiting_ == 0) start_thread();
    load(jobs);
    jobs.clear();
  }
}

void ReadAhead::load(Jobs& jobs) noexcept {
  try {
    ask(jobs);
  } catch (const std::exception&) {
    // No memory for the requests: decoding makes its own.
  }
  for (Job& job : jobs) {
    if (job.in_tier) check_in_tier(job);
    if (job.bytes != nullptr) store(job);
    publish(job);
  }
  // Decoding has them already: a slow disk delays nobody.
  for (const Job& job : jobs) {
    if (job.bytes != nullptr && !job.in_tier) store_in_tier(job);
  }
}

// All are of one source: what the page cache is to keep, and what not, is one call each.
void ReadAhead::ask(Jobs& jobs) {
  for (Job& job : jobs) {
    if (job.origin.entries != nullptr) {
      for (const Job::Wanted& wanted : job.wanted) job.origin.entries->touch(wanted.id);
    }
    // What goes into the node's cache has no need of the page cache.
    const Job::Wanted& first = job.wanted.front();
    Origin origin = job.origin;
    origin.id = first.id;
    // Parts need no room for what reading past it takes.
    job.keep = job.loaded || (!origin.is_wanted() &&
                              is_kept(first.record.shard, job.begin, plan_.keep));
  }
  std::vector<RangeRequest> ranges;
  for (const bool keep : {false, true}) {
    ranges.clear();
    for (const Job& job : jobs) {
      if (job.keep != keep) continue;
      add_ranges(job, ranges);
    }
    if (ranges.empty()) continue;
    jobs.front().source->read(ranges, keep);
    auto range = ranges.begin();
    for (Job& job : jobs) {
      if (job.keep != keep) continue;
      job.bytes = range->bytes;
      for (size_t left = job.pieces(); left > 0; --left, ++range) {
        if (range->spent) job.error = range->error;
        // Pieces lie where they were asked for, one behind the other.
        if (job.loaded && range->bytes != range->memory) job.bytes = nullptr;
      }
      if (job.bytes == nullptr) continue;
      ahead_.fetch_add(job.wanted.size(), std::memory_order_relaxed);
      requests_.fetch_add(job.pieces(), std::memory_order_relaxed);
      bytes_.fetch_add(job.loaded ? job.loaded->size() : job.end - job.begin,
                       std::memory_order_relaxed);
    }
  }
}

void ReadAhead::add_ranges(const Job& job, std::vector<RangeRequest>& ranges) {
  uint8_t* const memory = job.buffer.get();
  if (!job.loaded) {
    ranges.push_back({job.begin, job.end - job.begin, memory, nullptr, nullptr});
    return;
  }
  const auto& [head, begin, end] = *job.loaded;
  ranges.push_back({job.begin, head, memory, nullptr, nullptr});
  if (begin != end)
    ranges.push_back({job.begin + begin, end - begin, memory + head, nullptr, nullptr});
}

// What is not the record is as good as not read.
void ReadAhead::check_in_tier(Job& job) noexcept {
  const Job::Wanted& wanted = job.wanted.front();
  Bytes bytes;
  if (job.bytes != nullptr) bytes = {job.bytes, wanted.record.length};
  if (!job.origin.reader->check_in_tier(wanted.id, wanted.record, job.begin, bytes)) {
    job.bytes = nullptr;
  }
}

// Into the node's cache, before decoding can have the records: whoever needs them next finds them.
void ReadAhead::store(const Job& job) {
  if (job.loaded) return;
  for (const Job::Wanted& wanted : job.wanted) {
    Reader& reader = *job.origin.reader;
    if (!reader.wants(wanted.id)) continue;
    const Bytes record = job.bytes_of(wanted);
    if (job.in_tier) {
      reader.keep(wanted.id, wanted.record, record);
      continue;
    }
    try {
      reader.check(wanted.id, wanted.record, record);
    } catch (const std::exception&) {
      continue;  // decoding reports it
    }
    reader.keep(wanted.id, wanted.record, record);
  }
}

// Into the tier, but what is not the record: decoding says so.
void ReadAhead::store_in_tier(const Job& job) noexcept {
  if (job.loaded || !job.origin.reader->has_tier()) return;
  for (const Job::Wanted& wanted : job.wanted) {
    const Bytes record = job.bytes_of(wanted);
    try {
      job.origin.reader->check(wanted.id, wanted.record, record);
    } catch (const std::exception&) {
      continue;
    }
    job.origin.reader->keep_in_tier(wanted.id, record);
  }
}

void ReadAhead::publish(Job& job) {
  for (const Job::Wanted& wanted : job.wanted) {
    Request& request = *wanted.request;
    if (job.bytes != nullptr) {
      request.buffer = job.buffer;
      request.bytes = job.bytes_of(wanted).data();
      request.checked = job.in_tier;
      request.loaded = job.loaded;
    } else {
      request.error = job.error;
    }
    request.state.store(job.bytes != nullptr ? kReady : kFailed);
    request.state.notify_all();
    int state = kReady;
    if (*request.dropped && request.state.compare_exchange_strong(state, kTaken)) {
      request.buffer.reset();
    }
  }
  --loading_;
  if (!leads_) return;
  {
    const std::lock_guard lock(space_->mutex);
  }
  space_->changed.notify_all();
}

}  // namespace fastload
