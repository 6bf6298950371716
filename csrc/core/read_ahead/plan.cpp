// What is read next: the planning half of ReadAhead.
#include <algorithm>
#include <exception>

#include "base/error.h"
#include "read_ahead/kept_share.h"
#include "read_ahead/read_ahead.h"
#include "read_ahead/requests.h"

namespace fastload {
namespace {

constexpr uint32_t kTrusted = 256;    // records in memory in a row, after which one in
constexpr uint32_t kTrustedStep = 8;  // so many is looked at
constexpr uint32_t kMostEmpty = 64;   // places without a record that a range goes over
constexpr uint32_t kLeaders = 8;      // records of the first batch that are asked for by one thread

// Whether the record may be read in parts: it is planned by itself, being large enough for that.
bool has_parts(const ReadAhead::Origin& origin, const Record& record) {
  std::vector<uint8_t> scratch;
  return origin.entries != nullptr && origin.entries->part_bytes() != 0 &&
         origin.entries->find_parts(origin.id, record.length, scratch).has_value();
}

}  // namespace

// What to read next. False when the object is being closed. Without memory to plan with, a record
// is passed over: decoding reads it by itself.
bool ReadAhead::plan(Jobs& jobs) {
  ++waiting_;
  const std::lock_guard lock(planning_);
  bool found = false;
  for (bool done = false; !done;) {
    try {
      jobs.resize(1);
      found = next(jobs);
      done = true;
    } catch (const std::exception&) {
      jobs.clear();
      if (!groups_.empty()) advance();
    }
  }
  --waiting_;
  return found;
}

bool ReadAhead::next(Jobs& jobs) {
  Job& job = jobs.front();
  while (!closing_) {
    if ((groups_.empty() || has_announced_) && !take_announced()) return false;
    const std::shared_ptr<Group>& group = groups_.front();
    if (leads_ && group != leader_ && !wait_for_leader()) return false;
    const int64_t sample = group->ids[position_];
    if (sample < 0 || group->requests[position_].state.load() != kQueued) {
      advance();
      continue;
    }
    const uint64_t before = releases();
    job.wanted.clear();
    job.wanted.push_back({{group, &group->requests[position_]}, 0, {}});
    job.origin = find_(static_cast<uint64_t>(sample));
    if (!look_at(job) || !gather(job, static_cast<uint64_t>(sample), position_)) {
      advance();
      continue;
    }
    const Claim claimed = claim(job);
    if (claimed == Claim::kDone) {
      add_together(jobs);
      return true;
    }
    if (claimed == Claim::kNoSpace && !wait_for_space(before)) return false;
  }
  return false;
}

// The same sample's other records, as far as they lie in the same source, are not in memory, and
// have room. What is not added here is planned by itself. The batch that leads is asked for with
// few threads, because each is started by the one before.
void ReadAhead::add_together(Jobs& jobs) noexcept try {
  const std::shared_ptr<Group>& group = groups_.front();
  const bool leads = leads_ && group == leader_;
  uint32_t end = group->end_of_sample(position_);
  if (leads) end = std::max(end, position_ - position_ % kLeaders + kLeaders);
  end = std::min(end, static_cast<uint32_t>(group->ids.size()));
  for (uint32_t position = position_ + 1; position < end; ++position) {
    const int64_t id = group->ids[position];
    if (id < 0 || group->requests[position].state.load() != kQueued) continue;
    Job job;
    job.wanted.push_back({{group, &group->requests[position]}, 0, {}});
    job.origin = find_(static_cast<uint64_t>(id));
    if (!look_at(job) || !gather(job, static_cast<uint64_t>(id), position)) continue;
    if (job.source != jobs.front().source) continue;
    jobs.reserve(jobs.size() + 1);  // once it is claimed nothing may fail
    if (claim(job) != Claim::kDone) return;
    jobs.push_back(std::move(job));
  }
} catch (const std::exception&) {
  return;  // no memory: see above
}

// False if the job's first record needs no reading: it is in memory, or its entry is damaged, which
// decoding will report.
bool ReadAhead::look_at(Job& job) {
  Job::Wanted& first = job.wanted.front();
  try {
    const Record record = job.origin.reader->locate(job.origin.id);
    first.id = job.origin.id;
    first.record = record;
    if (!job.origin.needs_none() && !is_hot(job.origin, record)) return true;
    int state = kQueued;
    first.request->state.compare_exchange_strong(state, kResident);
  } catch (const Error&) {
    return false;
  }
  return false;
}

// Where everything has been in the page cache for a while, a look now and then is enough.
bool ReadAhead::is_hot(const Origin& origin, const Record& record) {
  const bool ready = origin.reader->is_ready(origin.id);
  // The tier's disk is asked at once, the shard's not at all.
  if (!ready && origin.reader->find_in_tier(origin.id, record)) return false;
  const bool trusted = !ready && hot_ >= kTrusted && hot_ % kTrustedStep != 0;
  if (!ready && !trusted && is_cold(origin, record)) {
    hot_ = calm_ = 0;
    set_cold(true);
    return false;
  }
  resident_.fetch_add(1, std::memory_order_relaxed);
  if (!ready) ++hot_;
  if (++calm_ == kTrusted) set_cold(false);
  if (!trusted && origin.entries != nullptr) origin.entries->touch(origin.id);
  return true;
}

// Looking takes a system call, and where that is preadv2 the kernel begins to read a page. So where
// the last records were not in memory, few are looked at; of those that are to stay in the page
// cache, an epoch later, all.
bool ReadAhead::is_cold(const Origin& origin, const Record& record) {
  const bool kept = is_kept(record.shard, record.offset, plan_.keep);
  uint32_t& run = cold_run_[kept ? 1 : 0];
  if (run >= (kept ? kTrusted : kTrustedStep) && run++ % kTrustedStep != 0) return true;
  const bool cold = !origin.reader->is_resident(record);
  run = cold ? run + 1 : 0;
  return cold;
}

void ReadAhead::set_cold(bool cold) {
  if (cold_.exchange(cold) == cold) return;
  queued_.clear();
  if (!cold) return;
  for (const auto& group : groups_) {
    index_neighbours(group, group == groups_.front() ? position_ : 0);
  }
}

void ReadAhead::index_neighbours(const std::shared_ptr<Group>& group, uint32_t first) noexcept try {
  for (size_t i = first; i < group->ids.size(); ++i) {
    if (group->ids[i] < 0) continue;
    queued_.try_emplace(static_cast<uint64_t>(group->ids[i]), group, &group->requests[i]);
  }
} catch (const std::exception&) {
  return;  // no memory: these are not joined
}

// Moves the announced groups to those that are planned; waits while there are none at all. False
// when the object is being closed.
bool ReadAhead::take_announced() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] { return !groups_.empty() || !announced_.empty() || closing_; });
  has_announced_ = false;
  if (groups_.empty() && loading_ == 0 && !announced_.empty()) {
    leader_ = announced_.front();
    leads_ = false;  // until one of its records turns out to be far
  }
  while (!announced_.empty()) {
    const std::shared_ptr<Group> group = std::move(announced_.front());
    announced_.pop_front();
    groups_.push_back(group);
    if (cold_) index_neighbours(group, 0);
  }
  return !closing_;
}

void ReadAhead::advance() {
  const Group& group = *groups_.front();
  const auto found = queued_.find(static_cast<uint64_t>(group.ids[position_]));
  if (found != queued_.end() && found->second.get() == &group.requests[position_]) {
    queued_.erase(found);
  }
  if (++position_ < group.ids.size()) return;
  groups_.pop_front();
  position_ = 0;
  if (!leads_) leader_.reset();
}

uint64_t ReadAhead::releases() const {
  const std::lock_guard lock(space_->mutex);
  return space_->releases;
}

// Until a buffer has come back since there were `before` releases.
bool ReadAhead::wait_for_space(uint64_t before) {
  std::unique_lock lock(space_->mutex);
  space_->changed.wait(lock, [&] { return space_->releases != before || space_->closing; });
  return !space_->closing;
}

// Until nothing of the group that leads is being read.
bool ReadAhead::wait_for_leader() {
  std::unique_lock lock(space_->mutex);
  space_->changed.wait(lock, [&] { return space_->closing || !leader_->is_loading(); });
  leads_ = false;
  leader_.reset();
  return !space_->closing;
}

// Decides which bytes the job reads. False if they can never be read ahead.
bool ReadAhead::gather(Job& job, uint64_t sample, uint32_t position) {
  const Record record = job.wanted.front().record;
  job.loaded.reset();
  const auto in_tier = job.origin.reader->find_in_tier(job.origin.id, record);
  job.in_tier = in_tier.has_value();
  job.source = in_tier ? in_tier->source : job.origin.reader->source(record.shard);
  job.begin = in_tier ? in_tier->offset : record.offset;
  job.end = job.begin + record.length;
  if (job.source == nullptr) return false;
  expect(job.source->in_flight());
  if (!in_tier && leader_ == groups_.front() && job.source->is_far()) leads_ = true;
  if (is_split(job, *groups_.front(), position)) return true;
  if (BufferPool::cost(ByteSource::room(job.begin, record.length)) > plan_.budget) return false;
  if (!in_tier && !queued_.empty()) {
    extend(job, sample, 1);
    extend(job, sample, -1);
  }
  return true;
}

// Whether the job's record is read in parts, which have room.
bool ReadAhead::is_split(Job& job, const Group& group, uint32_t position) const {
  if (job.in_tier || group.needs == nullptr) return false;
  job.loaded = worth(group, position, job.origin, job.wanted.front().record, *job.source);
  if (job.loaded && BufferPool::cost(job.room()) > plan_.budget) job.loaded.reset();
  return job.loaded.has_value();
}

// The bytes that decoding needs of a record, if reading them alone pays. What a cache will keep is
// read whole.
std::optional<LoadedBytes> ReadAhead::worth(const Group& group, uint32_t position,
                                            const Origin& origin, const Record& record,
                                            ByteSource& source) {
  const ByteSource::Joins joins = source.joins();
  if (group.needs == nullptr || record.length <= joins.split || origin.entries == nullptr)
    return {};
  if (origin.reader->has_tier() || origin.is_wanted()) return {};
  const std::optional<LoadedBytes> loaded = group.needs(position, origin, record, joins.gap);
  if (!loaded || loaded->size() + joins.split > record.length) return {};
  return loaded;
}

// A damaged entry ends it; decoding will report it.
void ReadAhead::extend(Job& job, uint64_t sample, int step) try {
  const uint32_t shard = job.wanted.front().record.shard;
  const ByteSource::Joins joins = job.source->joins();
  const size_t longest = std::clamp<size_t>(plan_.budget / 32, 64 << 10, joins.longest);
  const auto gap_to = [&](const Record& record) {
    // Where the records overlap, the difference is huge.
    return step > 0 ? record.offset - job.end : job.begin - (record.offset + record.length);
  };
  uint32_t empty = 0;
  for (uint64_t id = job.origin.id;;) {
    sample += static_cast<uint64_t>(static_cast<int64_t>(step));
    id += static_cast<uint64_t>(static_cast<int64_t>(step));
    const auto found = queued_.find(sample);
    if (found == queued_.end() || !may_join(*found->second)) {
      // A place of a list without a picture has no bytes.
      if (empty < kMostEmpty && job.origin.reader->index().record(id).length == 0) {
        ++empty;
        continue;
      }
      if (joins.others == 0) return;
      // Read along if somebody behind it can be joined.
      const Record other = job.origin.reader->locate(id);
      if (other.shard != shard || gap_to(other) > joins.others) return;
      if (gap_to(other) + other.length > joins.others) return;
      continue;
    }
    const Origin origin = find_(sample);
    if (origin.reader != job.origin.reader || origin.reader->is_ready(origin.id)) return;
    if (origin.needs_none()) return;
    const Record record = origin.reader->locate(origin.id);
    if (origin.reader->find_in_tier(origin.id, record)) return;
    if (groups_.front()->needs != nullptr && has_parts(origin, record)) return;
    const uint64_t begin = std::min(job.begin, record.offset);
    const uint64_t end = std::max(job.end, record.offset + record.length);
    if (record.shard != shard || gap_to(record) > joins.gap || end - begin > longest) return;
    job.begin = begin;
    job.end = end;
    job.wanted.push_back({found->second, origin.id, record});
  }
} catch (const Error&) {
  return;
}

// What is asked for with the group that leads is its own.
bool ReadAhead::may_join(const Request& request) const {
  return request.state == kQueued &&
         (!leads_ || leader_ != groups_.front() || leader_->has(request));
}

// Reserves memory, then the requests: decoding waits for no request that waits for memory.
ReadAhead::Claim ReadAhead::claim(Job& job) {
  job.buffer = pool_->acquire(job.room());
  if (job.buffer == nullptr) return Claim::kNoSpace;
  ++loading_;
  std::erase_if(job.wanted, [](const Job::Wanted& wanted) {
    int state = kQueued;
    return !wanted.request->state.compare_exchange_strong(state, kLoading);
  });
  if (!job.wanted.empty()) return Claim::kDone;
  job.buffer.reset();
  --loading_;
  return Claim::kLost;
}

}  // namespace fastload
