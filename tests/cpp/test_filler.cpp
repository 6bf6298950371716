// Filling a cache: alone, beside others, and what cannot be had.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "cache/filler.h"
#include "check.h"
#include "file_system.h"
#include "made_cache.h"
#include "made_set.h"

namespace fastload::test {
namespace {

FillPlan plan_of(const CacheFile& cache, int threads, uint64_t chunk = 20000) {
  FillPlan plan;
  plan.threads = threads;
  plan.claims = cache.path();
  plan.chunk = chunk;
  return plan;
}

// What one process has: its own attachment, and a filler.
struct Process {
  Process(MadeSet& set, const MadeCache& made, int threads, uint64_t chunk = 20000)
      : cache(made.attach()),
        target(*cache),
        filler(set.reader(), target, plan_of(*cache, threads, chunk)) {}

  Filler::Counts finish() {
    while (!filler.wait(1)) {
    }
    filler.stop();
    return filler.counts();
  }

  std::shared_ptr<CacheFile> cache;
  CacheTarget target;
  Filler filler;
};

uint64_t bytes_of(const MadeSet& set) {
  uint64_t sum = 0;
  for (size_t i = 0; i < set.size(); ++i) sum += set.record(i).length;
  return sum;
}

void check_filled(const MadeSet& set, const CacheFile& cache, size_t room) {
  for (size_t i = 0; i < set.size(); ++i) {
    CHECK_EQ(cache.is_ready(i), i < room);
    if (i < room) CHECK(set.equals(i, cache.find(i)));
  }
}

TEST(a_set_is_read_once_and_what_is_there_is_not_read_again) {
  MadeSet set(300, 3000, 0);
  const MadeCache made(set, 300);
  for (const bool again : {false, true}) {
    Process process(set, made, 4);
    process.filler.start();
    const Filler::Counts counts = process.finish();
    CHECK_EQ(counts.records, 300u);
    CHECK_EQ(counts.bytes, bytes_of(set));
    CHECK_EQ(counts.put_bytes, again ? 0 : bytes_of(set));
    CHECK_EQ(counts.there_bytes, again ? bytes_of(set) : 0);
    CHECK_EQ(counts.read_bytes, again ? 0 : bytes_of(set));
    CHECK_EQ(counts.there_records + counts.put_records, 300u);
    CHECK_EQ(counts.failed_records, 0u);
    check_filled(set, *process.cache, 300);
  }
}

TEST(records_without_room_are_left_alone) {
  MadeSet set(100, 3000, 500);
  const MadeCache made(set, 60);
  Process process(set, made, 2);
  process.filler.start();
  const Filler::Counts counts = process.finish();
  CHECK_EQ(counts.put_records, 60u);
  CHECK_EQ(counts.no_room_records, 40u);
  CHECK_EQ(counts.bytes + counts.no_room_bytes, bytes_of(set));
  check_filled(set, *process.cache, 60);
}

TEST(several_at_once_read_each_byte_once) {
  MadeSet set(600, 3000, 0);
  const MadeCache made(set, 600);
  Process first(set, made, 3), second(set, made, 3), third(set, made, 3);
  for (Process* process : {&first, &second, &third}) process->filler.start();
  uint64_t put = 0, read = 0;
  for (Process* process : {&first, &second, &third}) {
    const Filler::Counts counts = process->finish();
    put += counts.put_records;
    read += counts.read_bytes;
    CHECK_EQ(counts.there_records + counts.put_records, 600u);
    CHECK_EQ(counts.claimed_chunks, 0u);
    check_filled(set, *process->cache, 600);  // each one's end is everybody's
  }
  CHECK_EQ(put, 600u);
  CHECK_EQ(read, bytes_of(set));
}

// Threads that have the turn to copy give it to those that wait for it, whatever comes next.
TEST(several_at_once_from_a_page_cache_that_comes_and_goes) {
  const Reset reset;
  MadeSet set(600, 3000, 0);
  for (int round = 0; round < 10; ++round) {
    const MadeCache made(set, 600);
    Process first(set, made, 16, 5000), second(set, made, 16, 5000);
    std::atomic<bool> done{false};
    std::thread other([&] {
      while (!done) {
        file_system.cold = !file_system.cold;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
    for (Process* process : {&first, &second}) process->filler.start();
    const uint64_t put = first.finish().put_records + second.finish().put_records;
    done = true;
    other.join();
    CHECK_EQ(put, 600u);
    check_filled(set, *first.cache, 600);
  }
}

TEST(what_another_has_claimed_is_waited_for_and_taken_over) {
  MadeSet set(100, 3000, 0);
  const MadeCache made(set, 100);
  Process process(set, made, 2);
  auto other = std::make_unique<RangeClaims>(process.cache->path());
  CHECK(other->claim(50, 51));
  process.filler.start();
  CHECK(!process.filler.wait(0.1));
  while (process.filler.counts().claimed_chunks == 0) std::this_thread::yield();
  CHECK(!process.cache->is_ready(50));
  other.reset();  // as if it had died
  CHECK_EQ(process.finish().put_records, 100u);
  check_filled(set, *process.cache, 100);
}

TEST(claims_exclude_other_objects_only) {
  MadeSet set(3, 30, 0);
  RangeClaims one(set.path("shard")), two(set.path("shard")), none("");
  CHECK(one.claim(5, 10));
  CHECK(one.claim(7, 12));
  CHECK(!two.claim(11, 20));
  CHECK(two.claim(12, 20));
  CHECK(none.claim(0, 100));
  one.release(5, 12);
  CHECK(two.claim(0, 12));
  none.release(0, 100);
  CHECK_THROWS(kIo, "cannot open", RangeClaims(set.path("missing")));
}

TEST(stopped_and_started_again_it_goes_on) {
  MadeSet set(500, 3000, 0);
  const MadeCache made(set, 500);
  uint64_t put = 0;
  {
    Process process(set, made, 2, 1);  // a chunk a record
    process.filler.start();
    while (process.filler.counts().put_records < 20) std::this_thread::yield();
    process.filler.stop();
    process.filler.stop();
    put = process.filler.counts().put_records;
    CHECK_EQ(process.cache->counts().ready_records, put);
  }
  Process process(set, made, 2);
  process.filler.start();
  const Filler::Counts counts = process.finish();
  CHECK_EQ(counts.there_records, put);
  CHECK_EQ(counts.put_records, 500 - put);
  check_filled(set, *process.cache, 500);
}

TEST(a_damaged_record_fails_alone) {
  MadeSet set(50, 3000, 0);
  const MadeCache made(set, 50);
  set.scribble(set.record(20).offset);
  Process process(set, made, 2);
  process.filler.start();
  const Filler::Counts counts = process.finish();
  CHECK_EQ(counts.failed_records, 1u);
  CHECK_EQ(counts.put_records, 49u);
  const Filler::Failures failures = process.filler.failures();
  CHECK_EQ(failures.size(), 1u);
  CHECK_EQ(failures[0].first, 20u);
  CHECK(failures[0].second.find("CRC-32C") != std::string::npos);
  CHECK(!process.cache->is_ready(20));
}

TEST(another_file_in_the_shards_place_fails_every_record_and_some_are_listed) {
  MadeSet set(300, 300, 0);
  const MadeCache made(set, 300);
  set.replace();
  Process process(set, made, 2);
  process.filler.start();
  CHECK_EQ(process.finish().failed_records, 300u);
  CHECK_EQ(process.filler.failures().size(), Filler::kFailures);
}

TEST(only_what_is_wanted_is_read) {
  MadeSet set(100, 3000, 0);
  const MadeCache made(set, 100);
  const std::shared_ptr<CacheFile> cache = made.attach();
  CacheTarget target(*cache);
  FillPlan plan = plan_of(*cache, 2);
  plan.only_ids = true;
  plan.ids = {3, 4, 70, 99};
  Filler filler(set.reader(), target, plan);
  filler.start();
  while (!filler.wait(1)) {
  }
  CHECK_EQ(filler.counts().put_records, 4u);
  for (size_t i = 0; i < 100; ++i) {
    CHECK_EQ(cache->is_ready(i), i == 3 || i == 4 || i == 70 || i == 99);
  }
  plan.ids = {};
  Filler none(set.reader(), target, plan);
  none.start();
  CHECK(none.wait(0));
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{4, 3}, {3, 3}, {-1}}) {
    plan.ids = wrong;
    CHECK_THROWS(kValue, "ascending", Filler(set.reader(), target, plan));
  }
  plan.ids = {100};
  CHECK_THROWS(kValue, "100", Filler(set.reader(), target, plan));
  plan.threads = 0;
  CHECK_THROWS(kValue, "threads", Filler(set.reader(), target, plan));
}

TEST(a_cache_that_may_not_be_written) {
  MadeSet set(10, 300, 0);
  const MadeCache made(set, 10);
  const std::shared_ptr<CacheFile> cache = made.attach(O_RDONLY);
  CacheTarget target(*cache);
  Filler filler(set.reader(), target, plan_of(*cache, 1));
  filler.start();
  while (!filler.wait(1)) {
  }
  CHECK_EQ(filler.counts().failed_records, 10u);
  CHECK(filler.failures()[0].second.find("cannot be written") != std::string::npos);
}

// Counts the threads that are putting at once.
class CountingTarget : public FillTarget {
 public:
  explicit CountingTarget(size_t count) : there_(count) {}
  [[nodiscard]] bool has_room(uint64_t) const override { return true; }
  bool has(uint64_t id) override { return there_[id]; }
  void put(uint64_t id, const Record&, Bytes) override {
    const int now = ++now_;
    int most = most_;
    while (most < now && !most_.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    there_[id] = true;
    --now_;
  }
  [[nodiscard]] int most() const { return most_; }

 private:
  std::vector<std::atomic<bool>> there_;
  std::atomic<int> now_{0}, most_{0};
};

TEST(what_is_in_memory_is_copied_by_as_many_threads_as_there_are_cores) {
  MadeSet set(200, 3000, 0);
  bool hot = true;  // not where the file system does not tell
  for (size_t i = 0; i < set.size(); ++i) {
    hot = hot && set.reader().is_resident(set.reader().locate(i));
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  CountingTarget target(set.size());
  FillPlan plan;
  plan.threads = 4 * cores;
  plan.claims = set.path("claims");
  plan.chunk = 10000;
  close(open(plan.claims.c_str(), O_CREAT | O_RDWR, 0600));
  Filler filler(set.reader(), target, plan);
  filler.start();
  while (!filler.wait(1)) {
  }
  CHECK_EQ(filler.counts().put_records, set.size());
  CHECK(!hot || target.most() <= cores);
  filler.stop();
}

TEST(the_page_cache_is_filled_by_reading) {
  MadeSet set(100, 3000, 200);
  PageCacheTarget target(set.reader());
  FillPlan plan;
  plan.threads = 2;
  Filler filler(set.reader(), target, plan);
  filler.start();
  while (!filler.wait(1)) {
  }
  filler.stop();
  CHECK_EQ(filler.counts().there_records + filler.counts().put_records, 100u);
  CHECK_EQ(filler.counts().failed_records, 0u);
}

}  // namespace
}  // namespace fastload::test
