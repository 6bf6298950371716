#include "cache/filler.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/thread.h"
#include "io/guarded_range.h"

namespace fastload {
namespace {

constexpr uint64_t kGap = 64 << 10;  // bytes between two records that are read for nothing
constexpr size_t kHugePage = 2 << 20;
constexpr auto kPoll = std::chrono::milliseconds(5);  // between two looks at a claimed chunk

}  // namespace

void throw_lost(uint64_t id) {
  throw Error(ErrorKind::kTruncated, "sample " + std::to_string(id) +
                                         ": its shard was cut while it was read. Restore it.");
}

// A thread's memory for requests: grows to the largest. In huge pages (see BufferPool).
struct Filler::Buffer {
  std::unique_ptr<uint8_t, decltype(&std::free)> memory{nullptr, &std::free};
  size_t size = 0;
  std::vector<uint8_t> scratch;

  uint8_t* room(size_t bytes) {
    if (bytes > size) {
      memory.reset();  // before the new one is had
      size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
      memory.reset(static_cast<uint8_t*>(std::aligned_alloc(kHugePage, size)));
      if (memory == nullptr) size = 0;
      ::madvise(memory.get(), size, MADV_HUGEPAGE);
    }
    if (memory == nullptr) throw std::bad_alloc();
    return memory.get();
  }
};

// The right to copy from the page cache, which as many threads have at once as there are cores:
// more would wait for each other at the locks of the target's files. A thread keeps it from chunk
// to chunk, and waits for it before it claims one, so that those without it hold nothing that
// another process could copy. Threads wait for storage, and for each other, without it.
class Filler::Turn {
 public:
  explicit Turn(Filler& filler) : filler_(filler) {}
  ~Turn() { give(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void take() {
    if (taken_) return;
    std::unique_lock lock(filler_.mutex_);
    filler_.turn_.wait(lock, [this] { return filler_.turns_ < most_ || filler_.stopping_; });
    ++filler_.turns_;
    taken_ = true;
  }

  void give() {
    if (!taken_) return;
    const std::lock_guard lock(filler_.mutex_);
    give_locked();
  }
  // As give(), for who holds the mutex.
  void give_locked() {
    if (!taken_) return;
    --filler_.turns_;
    filler_.turn_.notify_one();
    taken_ = false;
  }

 private:
  Filler& filler_;
  const size_t most_ = std::max(1U, std::thread::hardware_concurrency());
  bool taken_ = false;
};

// A claim that ends with the scope.
struct Filler::Held {
  Filler& filler;
  const Chunk& chunk;
  bool taken = false;
  bool take() {
    ++filler.filling_;
    taken = filler.claims_.claim(chunk.begin, chunk.end);
    if (!taken) --filler.filling_;
    return taken;
  }
  ~Held() {
    if (!taken) return;
    filler.claims_.release(chunk.begin, chunk.end);
    --filler.filling_;
  }
};

void CacheTarget::put(uint64_t id, const Record& record, Bytes bytes) {
  if (is_lost(bytes)) throw_lost(id);
  cache_.store(id, bytes, record.crc32c);
  cache_.check_stored(id);
}

Filler::Filler(Reader& reader, FillTarget& target, FillPlan plan)
    : reader_(reader), target_(target), plan_(std::move(plan)), claims_(plan_.claims) {
  if (plan_.threads < 1) {
    throw Error(ErrorKind::kValue, "threads must be >= 1. Found: " + std::to_string(plan_.threads));
  }
  cut();
}

Filler::~Filler() { stop(); }

uint64_t Filler::id_at(size_t position) const {
  return !plan_.only_ids ? position : static_cast<uint64_t>(plan_.ids[position]);
}

void Filler::cut() {
  const size_t count = plan_.only_ids ? plan_.ids.size() : reader_.index().size();
  Chunk open{0, 0, 0, 0, 0};
  for (size_t i = 0; i < count; ++i) {
    if (plan_.only_ids && (plan_.ids[i] < 0 || (i > 0 && plan_.ids[i] <= plan_.ids[i - 1]))) {
      throw Error(ErrorKind::kValue, "Sample ids must be ascending, each once, and >= 0.");
    }
    const uint64_t id = id_at(i), length = reader_.index().record(id).length;
    if (!target_.has_room(id)) {
      ++totals_.no_room_records;
      totals_.no_room_bytes += length;
      continue;
    }
    ++totals_.records;
    totals_.bytes += length;
    if (open.bytes == 0) open = {i, i, 0, plan_.first_claim + id, 0};
    open.last = i + 1;
    open.end = plan_.first_claim + id + 1;
    open.bytes += length;
    if (open.bytes >= plan_.chunk) {
      chunks_.push_back(open);
      open.bytes = 0;
    }
  }
  if (open.bytes > 0) chunks_.push_back(open);
}

void Filler::start() {
  const size_t wanted = std::min(static_cast<size_t>(plan_.threads), chunks_.size());
  try {
    threads_.reserve(wanted);
    while (threads_.size() < wanted) {
      threads_.push_back(start_thread("fastload-fill", [this] { run(); }));
    }
  } catch (const std::exception&) {
    // No more threads, or no memory for them: the ones that there are do it.
  }
  if (threads_.empty() && wanted > 0) {
    throw Error(ErrorKind::kIo,
                "no thread can be started: raise 'ulimit -u' or pids.max, or give more memory.");
  }
}

bool Filler::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] {
    return next_ == chunks_.size() && claimed_.empty() && busy_ == 0;
  });
}

void Filler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  turn_.notify_all();
  reads_.stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Filler::Counts Filler::counts() const {
  Counts counts = totals_;
  counts.there_records = there_records_;
  counts.there_bytes = there_bytes_;
  counts.put_records = put_records_;
  counts.put_bytes = put_bytes_;
  counts.read_bytes = read_bytes_;
  counts.requests = requests_;
  counts.failed_records = failed_;
  const std::lock_guard lock(mutex_);
  counts.claimed_chunks = claimed_.size();
  const bool left = busy_ > 0 || !claimed_.empty();
  counts.waits = next_ == chunks_.size() && left && filling_ == 0;
  return counts;
}

Filler::Failures Filler::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

void Filler::run() noexcept {
  const ReadScope scope(reads_);
  Buffer buffer;
  Turn turn(*this);
  Chunk chunk;
  while (next(chunk, turn)) {
    bool done = true;
    try {
      done = visit(chunk, buffer, turn);
      if (!done) leave(chunk, turn);
    } catch (const std::exception& error) {
      fail(chunk, error);
    }
    const std::lock_guard lock(mutex_);
    --busy_;
    changed_.notify_all();
  }
}

// Somebody else has claimed it: it is looked at again at the end.
void Filler::leave(const Chunk& chunk, Turn& turn) {
  std::unique_lock lock(mutex_);
  turn.give_locked();
  claimed_.push_back(chunk);
  // Nothing but what others have claimed is left: there is time.
  if (next_ == chunks_.size()) changed_.wait_for(lock, kPoll, [this] { return bool{stopping_}; });
}

// There is no memory even to look at the chunk, or the index has been damaged since.
void Filler::fail(const Chunk& chunk, const std::exception& error) noexcept {
  failed_ += chunk.last - chunk.first;
  try {
    const std::lock_guard lock(mutex_);
    if (failures_.size() < kFailures) failures_.emplace_back(id_at(chunk.first), error.what());
  } catch (const std::exception&) {
    // It is counted.
  }
}

// The next chunk for a thread; false when there is, and will be, none.
bool Filler::next(Chunk& chunk, Turn& turn) {
  std::unique_lock lock(mutex_);
  if (next_ == chunks_.size()) turn.give_locked();
  changed_.wait(lock, [this] {
    return stopping_ || next_ < chunks_.size() || !claimed_.empty() || busy_ == 0;
  });
  if (stopping_) return false;
  if (next_ < chunks_.size()) {
    chunk = chunks_[next_++];
  } else if (!claimed_.empty()) {
    chunk = claimed_.front();
    claimed_.pop_front();
  } else {
    return false;
  }
  ++busy_;
  return true;
}

// False: another process has claimed it.
bool Filler::visit(const Chunk& chunk, Buffer& buffer, Turn& turn) {
  std::vector<Wanted> wanted = missing(chunk);
  const bool claims = !wanted.empty();
  Held held{*this, chunk};  // until the end, however that comes
  if (claims) {
    if (is_hot(wanted.front())) turn.take();
    if (!held.take()) return false;
    wanted = missing(chunk);  // what was put there before we had the claim
  }
  uint64_t records = 0, bytes = chunk.bytes;
  for (size_t i = chunk.first; i < chunk.last; ++i) records += target_.has_room(id_at(i)) ? 1 : 0;
  for (const Wanted& one : wanted) bytes -= one.length;
  there_records_ += records - wanted.size();
  there_bytes_ += bytes;
  fill(std::move(wanted), buffer, turn);
  return true;
}

std::vector<Filler::Wanted> Filler::missing(const Chunk& chunk) {
  std::vector<Wanted> wanted;
  for (size_t i = chunk.first; i < chunk.last; ++i) {
    const uint64_t id = id_at(i);
    if (!target_.has_room(id)) continue;
    try {
      if (target_.has(id)) continue;
    } catch (const Error&) {
      // Whatever it is, reading it says so.
    }
    const Record record = reader_.index().record(id);
    wanted.push_back({id, record.shard, record.length, record.offset});
  }
  return wanted;
}

void Filler::fill(std::vector<Wanted> wanted, Buffer& buffer, Turn& turn) {
  std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    return a.shard != b.shard ? a.shard < b.shard : a.offset < b.offset;
  });
  for (size_t first = 0; first < wanted.size() && !stopping_;) {
    const bool hot = is_hot(wanted[first]);
    hot ? turn.take() : turn.give();
    size_t last = first + 1;
    uint64_t end = wanted[first].offset + wanted[first].length;
    if (hot) {
      read_alone(wanted[first], hot, buffer);
    } else {
      for (; last < wanted.size() && wanted[last].shard == wanted[first].shard; ++last) {
        const Wanted& one = wanted[last];
        const uint64_t its_end = std::max(end, one.offset + one.length);
        if (one.offset > end + kGap || its_end - wanted[first].offset > plan_.chunk) break;
        end = its_end;
      }
      read(std::span(wanted).subspan(first, last - first), end, buffer);
    }
    first = last;
  }
}

// One request for neighbours. What goes wrong in it is read again record by record, to say which.
void Filler::read(std::span<const Wanted> wanted, uint64_t end, Buffer& buffer) {
  const uint64_t begin = wanted.front().offset;
  const uint8_t* bytes = nullptr;
  try {
    for (const Wanted& one : wanted) reader_.locate(one.id);
    ByteSource* const source = reader_.source(wanted.front().shard);
    if (source != nullptr) {
      const size_t length = end - begin;
      uint8_t* const memory = buffer.room(ByteSource::room(begin, length));
      bytes = source->read(begin, length, memory, target_.is_page_cache());
      read_bytes_ += length;
      ++requests_;
    }
  } catch (const std::exception&) {
    bytes = nullptr;
  }
  for (const Wanted& one : wanted) {
    if (bytes == nullptr || !put(one, {bytes + (one.offset - begin), one.length})) {
      read_alone(one, false, buffer);
    }
  }
}

// Whether the record is copied from the page cache, where it stays.
bool Filler::is_hot(const Wanted& one) {
  if (target_.is_page_cache()) return false;
  try {
    return reader_.is_resident(reader_.locate(one.id));
  } catch (const Error&) {
    return false;  // reading it says why
  }
}

bool Filler::put(const Wanted& one, Bytes bytes) noexcept {
  try {
    const Record record = reader_.locate(one.id);
    reader_.check(one.id, record, bytes);
    target_.put(one.id, record, bytes);
  } catch (const std::exception&) {
    return false;
  }
  ++put_records_;
  put_bytes_ += one.length;
  return true;
}

// From the mapping, which saves a copy, if it is `hot`; else by a request of its own, also where
// the mapping has just lost bytes: that says what is wrong with the file.
void Filler::read_alone(const Wanted& one, bool hot, Buffer& buffer) {
  const uint64_t losses = loss_count();
  try {
    const Bytes bytes =
        hot ? reader_.read(one.id, buffer.scratch) : reader_.read_cold(one.id, buffer.scratch);
    read_bytes_ += one.length;
    if (!hot) ++requests_;
    target_.put(one.id, reader_.locate(one.id), bytes);
    ++put_records_;
    put_bytes_ += one.length;
  } catch (const std::exception& error) {
    if (hot && loss_count() != losses) return read_alone(one, false, buffer);
    ++failed_;
    const std::lock_guard lock(mutex_);
    if (failures_.size() < kFailures) failures_.emplace_back(one.id, error.what());
  }
}

}  // namespace fastload
