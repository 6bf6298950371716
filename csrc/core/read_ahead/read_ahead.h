// Reads records before decoding needs them.
//
// DESIGN. The samples of coming batches are announced in the order in which they will be decoded. A
// thread goes through them and looks whether each record is in memory (a system call that reads
// nothing). If so, decoding will use the mapping, and that was all: over a set in the page cache no
// memory is taken and no further thread started. If not, threads, as many as are needed to have
// as many requests in flight as the source is worth, read records into buffers of their own,
// neighbours in one request where the order allows it, within a budget of bytes, the next one
// needed first.
//
// A decoding thread that comes to a record takes the buffer; it waits if the record is being read;
// if nobody has begun to read it, because the budget is used up or decoding is faster, it reads it
// itself. So nothing here can block it for ever, and a request that fails (a bad block, a cut file)
// is repeated by the decoding thread, for that record alone, whose error it is then; but where the
// source has asked again until its patience was at an end, that is the record's error.
//
// Records of a store share a line. So when nothing is under way, at the beginning say, the first
// batch has the line for itself: what comes behind it is asked for when all of it is there.
//
// Records that the node's cache has are in memory. Those that it has room for are put there by the
// threads that read them, and read past the page cache. Of the rest a share that fits into the page
// cache is kept there, always the same share, and what is left is read past it: a page cache that
// is smaller than the set and takes in everything would drop each record before the next epoch
// needs it.
//
// Of a record that no cache keeps, decoding may need some bytes only; who announces a batch says
// which. Where the source finds it worth while, these are read alone, and each part is compared
// with its own CRC-32C when decoding takes it. What is not right then, or not enough, decoding
// reads whole.
//
// Records that the tier below has are read from its source, by a request each, and compared with
// their CRC-32C here; what is damaged there decoding reads from storage by itself. What was read
// from storage goes to the tier after decoding has it.
//
// LOCKS. A request's state is an atomic, and only one change leaves each state, so decoding takes
// no lock. `planning_` is held by the thread that decides what is read next; `mutex_`, which may be
// taken while holding it, guards the announced groups and the list of threads.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/loaded_bytes.h"
#include "cache/coefficient_cache.h"
#include "cache/pixel_cache.h"
#include "io/buffer_pool.h"
#include "io/read_scope.h"
#include "shard/entries.h"
#include "shard/reader.h"

namespace fastload {

struct ReadAheadPlan {
  size_t budget = 0;  // bytes of buffers; 0: nothing is read ahead
  double keep = 1;    // share of the set that stays in the page cache once it has been read
};

class ReadAhead {
 public:
  // Where a sample is.
  struct Origin {
    Reader* reader;
    Entries* entries;  // nullptr: none
    uint64_t id;       // in that reader
    // Records whose pixels are there need not be read; nullptr: none.
    const PixelCache* pixels = nullptr;
    // Likewise, records that are kept as coefficients; what it wants is read whole.
    const CoefficientCache* coefficients = nullptr;

    // Whether decoding will not ask for the record.
    [[nodiscard]] bool needs_none() const {
      return (pixels != nullptr && pixels->is_ready(id)) ||
             (coefficients != nullptr && coefficients->is_ready(id));
    }
    // Whether a cache in memory keeps the record once it has been read.
    [[nodiscard]] bool is_wanted() const {
      return reader->wants(id) || (coefficients != nullptr && coefficients->wants(id));
    }
  };
  using Find = std::function<Origin(uint64_t)>;

  ReadAhead(const ReadAheadPlan& plan, Find find);
  ~ReadAhead();  // as close()
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The samples of one batch; opaque.
  struct Group;
  // Records (-1: none) that will be needed, after all those announced before; each `together` of
  // them are of one sample, and asked for in one call. nullptr when nothing is read ahead.
  // `needs` says which bytes of the record at a position decoding will need, by parts of its
  // entries (Entries::find_parts); nothing: all, or it is not known. May be asked from any thread.
  using Needs = std::function<std::optional<LoadedBytes>(uint32_t position, const Origin& origin,
                                                         const Record& record, size_t gap)>;
  std::shared_ptr<void> announce(std::vector<int64_t> ids, uint32_t together = 1,
                                 Needs needs = nullptr);
  // The same where samples have any number of records: those of sample i are ids[starts[i]] up to
  // ids[starts[i + 1]], ascending.
  std::shared_ptr<void> announce(std::vector<int64_t> ids, std::vector<uint32_t> starts);
  // The position of such a sample's record in its group; nothing: it was not announced.
  static std::optional<uint32_t> find(const void* group, uint32_t sample, int64_t record) noexcept;
  // They will not be needed.
  void drop(const std::shared_ptr<void>& group) noexcept;
  // The record at `position` of the group, as Reader::read. The bytes are valid as long as
  // `scratch` and `held`. With `loaded` they may be the parts that it says then, checked:
  // announce().
  Bytes read(void* group, uint32_t position, const Origin& origin, std::vector<uint8_t>& scratch,
             std::shared_ptr<const void>& held, std::optional<LoadedBytes>* loaded = nullptr);
  // The whole record, which was read() in parts and is needed whole.
  Bytes read_whole(const Origin& origin, std::vector<uint8_t>& scratch);
  // The record at `position` of the group is not needed.
  void skip(void* group, uint32_t position) noexcept;
  // Reads that wait for a store end, with an error; with stop() those to come, too.
  void interrupt() { stop_.interrupt(); }
  void stop() { stop_.stop(); }
  // The same, and ends the threads; what is being read from files is waited for. Idempotent.
  void close();

  struct Counts {
    uint64_t resident = 0;      // records found in memory
    uint64_t ahead = 0;         // records read ahead
    uint64_t requests = 0;      // reads from storage for them
    uint64_t bytes = 0;         // of them
    uint64_t late = 0;          // records that decoding read itself, not being in memory
    uint64_t waits = 0;         // records that decoding waited for
    uint64_t parts = 0;         // records of which parts were read, by whomever
    uint64_t part_bytes = 0;    // of them; these records have
    uint64_t parts_of = 0;      // so many bytes
    uint64_t parts_whole = 0;   // such records that were read once more, whole
    uint64_t buffer_bytes = 0;  // in use now
    uint64_t buffer_peak = 0;   // mapped at a time, at most
    uint64_t threads = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct Request;
  struct Job;
  // Outlives the object for as long as a buffer does.
  struct Space {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t releases = 0;
    bool closing = false;
  };

  enum class Claim { kDone, kNoSpace, kLost };

  std::shared_ptr<void> add(std::shared_ptr<Group> group);
  void run() noexcept;
  using Jobs = std::vector<Job>;
  bool plan(Jobs& jobs);
  bool next(Jobs& jobs);
  void add_together(Jobs& jobs) noexcept;
  bool look_at(Job& job);
  static void let_go(Request& request) noexcept;
  bool take_announced();
  bool wait_for_space(uint64_t releases);
  bool wait_for_leader();
  uint64_t releases() const;
  bool is_hot(const Origin& origin, const Record& record);
  bool is_cold(const Origin& origin, const Record& record);
  void set_cold(bool cold);
  void index_neighbours(const std::shared_ptr<Group>& group, uint32_t first) noexcept;
  bool gather(Job& job, uint64_t sample, uint32_t position);
  bool is_split(Job& job, const Group& group, uint32_t position) const;
  static std::optional<LoadedBytes> worth(const Group& group, uint32_t position,
                                          const Origin& origin, const Record& record,
                                          ByteSource& source);
  static void add_ranges(const Job& job, std::vector<RangeRequest>& ranges);
  Bytes read_parts(const Group& group, uint32_t position, const Origin& origin,
                   std::vector<uint8_t>& scratch, std::optional<LoadedBytes>& loaded);
  void count_parts(const LoadedBytes& loaded, const Record& record);
  void extend(Job& job, uint64_t sample, int step);
  [[nodiscard]] bool may_join(const Request& request) const;
  Claim claim(Job& job);
  void advance();
  void load(Jobs& jobs) noexcept;
  void ask(Jobs& jobs);
  void publish(Job& job);
  void check_in_tier(Job& job) noexcept;
  static void store(const Job& job);
  static void store_in_tier(const Job& job) noexcept;
  void start_thread();
  void expect(size_t in_flight);

  const ReadAheadPlan plan_;
  const Find find_;
  const std::shared_ptr<Space> space_;
  const std::shared_ptr<BufferPool> pool_;
  ReadStop stop_;

  std::mutex planning_;  // guards the following
  std::deque<std::shared_ptr<Group>> groups_;
  uint32_t position_ = 0;  // in the first of them: the next request to look at
  std::unordered_map<uint64_t, std::shared_ptr<Request>>
      queued_;                          // by sample id, for joining neighbours
  std::shared_ptr<Group> leader_;       // has the line for itself, if it needs one
  uint32_t hot_ = 0;                    // records in a row that were in the page cache
  uint32_t calm_ = 0;                   // records in a row that were there or in the node's cache
  std::array<uint32_t, 2> cold_run_{};  // that were not: of those to drop, and of those to keep

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable work_;
  std::deque<std::shared_ptr<Group>> announced_;
  std::vector<std::thread> threads_;

  std::atomic<bool> closing_{false};
  std::atomic<bool> has_announced_{false};
  std::atomic<bool> cold_{false};   // the last records were not all in memory
  std::atomic<int> waiting_{0};     // threads without a job
  std::atomic<int> loading_{0};     // jobs that are being read
  std::atomic<bool> leads_{false};  // what is behind `leader_` waits for it
  std::atomic<size_t> most_threads_{1};
  std::atomic<uint64_t> resident_{0}, ahead_{0}, requests_{0}, bytes_{0}, late_{0}, waits_{0};
  std::atomic<uint64_t> parts_{0}, part_bytes_{0}, parts_of_{0}, parts_whole_{0};
};

}  // namespace fastload
