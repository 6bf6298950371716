// Filling the node's cache, or the page cache, with the records of a set: what `fastload warm`
// runs.
//
// DESIGN. The records that are wanted are cut into chunks of neighbours, about 8 MiB each. A thread
// takes the next chunk; if something of it is missing, it claims the chunk's sample ids, so that of
// several processes on a node one alone reads it, and reads what is still missing in large
// requests, in the order of the file, past the page cache unless that is the target; records that
// are in memory already it copies from the mapping. What it finds claimed it leaves, and comes back
// to it at the end: it is there then, or its owner died, and this process reads it. So whoever has
// come to the end knows that everything is there, and a process that is killed costs no more than
// the chunks that it had in hand.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "cache/cache_file.h"
#include "io/range_claims.h"
#include "io/read_scope.h"
#include "shard/reader.h"

namespace fastload {

// Throws Error(kTruncated): bytes of the record were lost before they were put anywhere.
[[noreturn]] void throw_lost(uint64_t id);

// Where a Filler puts records. Safe to use from many threads.
class FillTarget {
 public:
  virtual ~FillTarget() = default;
  [[nodiscard]] virtual bool has_room(uint64_t id) const = 0;
  // Whether the record is there already.
  virtual bool has(uint64_t id) = 0;
  // Puts it there; the bytes have been checked. Throws Error.
  virtual void put(uint64_t id, const Record& record, Bytes bytes) = 0;
  // Whether reading shall leave the bytes in the page cache.
  [[nodiscard]] virtual bool is_page_cache() const { return false; }
};

// A node cache's file as a target: records as they are.
class CacheTarget : public FillTarget {
 public:
  explicit CacheTarget(CacheFile& cache) : cache_(cache) {}
  [[nodiscard]] bool has_room(uint64_t id) const override { return cache_.has_room(id); }
  bool has(uint64_t id) override { return cache_.is_ready(id); }
  void put(uint64_t id, const Record& record, Bytes bytes) override;

 private:
  CacheFile& cache_;
};

// The page cache as a target: a record is there when a few of its pages are, and put by reading.
class PageCacheTarget : public FillTarget {
 public:
  explicit PageCacheTarget(Reader& reader) : reader_(reader) {}
  [[nodiscard]] bool has_room(uint64_t) const override { return true; }
  bool has(uint64_t id) override { return reader_.is_resident(reader_.locate(id)); }
  void put(uint64_t, const Record&, Bytes) override {}
  [[nodiscard]] bool is_page_cache() const override { return true; }

 private:
  Reader& reader_;
};

struct FillPlan {
  int threads = 16;          // >= 1; they wait for storage most of the time
  std::string claims;        // a file that all who fill the target share, for RangeClaims
  uint64_t first_claim = 0;  // the byte in it that stands for sample 0
  std::vector<int64_t> ids;  // ascending, each once: the records that are wanted
  bool only_ids = false;     // else all are
  uint64_t chunk = 8 << 20;  // bytes of records that are claimed, and read in one request, at most
};

// start() and stop() are for one thread, the rest for any.
class Filler {
 public:
  struct Counts {
    uint64_t records = 0, bytes = 0;                  // wanted, and with room
    uint64_t no_room_records = 0, no_room_bytes = 0;  // wanted, without
    uint64_t there_records = 0, there_bytes = 0;  // found there, or put there by others meanwhile
    uint64_t put_records = 0, put_bytes = 0;      // by this object
    uint64_t read_bytes = 0;                      // requested from the source for them
    uint64_t requests = 0;
    uint64_t failed_records = 0;
    uint64_t claimed_chunks = 0;  // that others have claimed now
    bool waits = false;           // nothing is left to do but what others have claimed
  };
  using Failures = std::vector<std::pair<uint64_t, std::string>>;  // sample id, reason

  // `reader` and `target` must outlive it. Reads the whole index. Throws Error(kIo, kValue) and
  // what Index::record does.
  Filler(Reader& reader, FillTarget& target, FillPlan plan);
  ~Filler();  // as stop()
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;

  void start();
  // True once nothing is left to do: everything is there, but for the failures. Blocks for
  // `seconds` at most.
  bool wait(double seconds);
  // Ends the threads after the requests in hand, and those at once that wait for a store.
  // Idempotent.
  void stop();

  [[nodiscard]] Counts counts() const;
  // The first kFailures of the records that could not be read, or not stored.
  [[nodiscard]] Failures failures() const;
  static constexpr size_t kFailures = 100;

 private:
  struct Chunk {
    size_t first, last;  // positions in ids: [first, last)
    uint64_t bytes;
    uint64_t begin, end;  // what to claim: [begin, end)
  };
  struct Wanted {
    uint64_t id;
    uint32_t shard, length;
    uint64_t offset;
  };
  struct Buffer;
  struct Held;
  class Turn;

  void cut();
  [[nodiscard]] uint64_t id_at(size_t position) const;
  void run() noexcept;
  void leave(const Chunk& chunk, Turn& turn);
  void fail(const Chunk& chunk, const std::exception& error) noexcept;
  bool next(Chunk& chunk, Turn& turn);
  bool visit(const Chunk& chunk, Buffer& buffer, Turn& turn);
  std::vector<Wanted> missing(const Chunk& chunk);
  void fill(std::vector<Wanted> wanted, Buffer& buffer, Turn& turn);
  void read(std::span<const Wanted> wanted, uint64_t end, Buffer& buffer);
  [[nodiscard]] bool is_hot(const Wanted& one);
  bool put(const Wanted& one, Bytes bytes) noexcept;
  void read_alone(const Wanted& one, bool hot, Buffer& buffer);

  Reader& reader_;
  FillTarget& target_;
  const FillPlan plan_;
  RangeClaims claims_;
  std::vector<Chunk> chunks_;
  Counts totals_;  // wanted and without room: fixed
  std::vector<std::thread> threads_;
  ReadStop reads_;  // of the threads

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_, turn_;
  size_t turns_ = 0;           // threads that copy what is in memory
  size_t next_ = 0;            // of chunks_
  std::deque<Chunk> claimed_;  // by others, when looked at
  size_t busy_ = 0;            // threads with a chunk
  Failures failures_;
  std::atomic<bool> stopping_{false};  // read without it, too
  std::atomic<size_t> filling_{0};     // threads that have claimed their chunk

  std::atomic<uint64_t> there_records_{0}, there_bytes_{0}, put_records_{0}, put_bytes_{0};
  std::atomic<uint64_t> read_bytes_{0}, requests_{0}, failed_{0};
};

}  // namespace fastload
