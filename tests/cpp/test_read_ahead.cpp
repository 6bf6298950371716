// Reading ahead, on a file system that does what a test says: the calls that ReadAhead makes are
// defined here, in the test program, and take the place of the C library's.
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "file_system.h"
#include "made_set.h"
#include "read_ahead/read_ahead.h"

using fastload::test::file_system;

extern "C" {

ssize_t pread(int descriptor, void* memory, size_t length, off_t offset) {
  ++file_system.preads;
  if (file_system.delay_us > 0) ::usleep(static_cast<useconds_t>(file_system.delay_us));
  if (file_system.stale > 0 && file_system.stale-- > 0) {
    errno = ESTALE;
    return -1;
  }
  const int64_t bad = file_system.bad;
  if (bad >= offset && bad < offset + static_cast<int64_t>(length)) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, descriptor, memory, std::min(length, file_system.longest.load()),
                   offset);
}

int mincore(void*, size_t length, unsigned char* state) noexcept {
  std::fill_n(state, (length + 4095) / 4096, file_system.cold && !file_system.foreign ? 0 : 1);
  return 0;
}

uid_t geteuid() noexcept {
  return file_system.foreign ? 12345 : static_cast<uid_t>(::syscall(SYS_geteuid));
}

int faccessat(int, const char*, int, int) noexcept { return file_system.foreign ? -1 : 0; }

ssize_t preadv2(int, const struct iovec*, int, off_t, int) {
  ++file_system.looks;
  if (!file_system.silent && !file_system.cold) return 1;
  errno = file_system.silent ? EOPNOTSUPP : EAGAIN;
  return -1;
}

int fstatfs(int, struct statfs* status) {
  status->f_type = file_system.remote ? 0x6969 : 0xEF53;  // NFS, ext4
  return 0;
}

}  // extern "C"

namespace fastload::test {

FileSystem file_system;

namespace {

size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

ReadAhead::Find find_in(MadeSet& set) {
  return [&set](uint64_t id) { return ReadAhead::Origin{&set.reader(), nullptr, id}; };
}

std::vector<int64_t> shuffled_ids(size_t count, unsigned seed) {
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  return ids;
}

struct Batches {
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::shared_ptr<void>> groups;

  Batches(ReadAhead& ahead, const std::vector<int64_t>& all, size_t batch) {
    for (size_t i = 0; i < all.size(); i += batch) {
      ids.emplace_back(all.begin() + static_cast<long>(i),
                       all.begin() + static_cast<long>(std::min(i + batch, all.size())));
      groups.push_back(ahead.announce(ids.back()));
    }
  }
};

// Reads everything by `threads` threads, as decoding does; the number of records that were wrong.
size_t read_all(ReadAhead& ahead, MadeSet& set, const Batches& batches, int threads) {
  std::atomic<size_t> next{0}, wrong{0};
  const size_t batch = batches.ids.front().size();
  auto work = [&] {
    std::vector<uint8_t> scratch;
    for (size_t i = next++; i / batch < batches.ids.size(); i = next++) {
      const auto& ids = batches.ids[i / batch];
      if (i % batch >= ids.size() || ids[i % batch] < 0) continue;
      const auto id = static_cast<uint64_t>(ids[i % batch]);
      std::shared_ptr<const void> held;
      const Bytes bytes =
          ahead.read(batches.groups[i / batch].get(), static_cast<uint32_t>(i % batch),
                     find_in(set)(id), scratch, held);
      if (!set.equals(id, bytes)) ++wrong;
    }
  };
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) all.emplace_back(work);
  for (std::thread& thread : all) thread.join();
  return wrong;
}

TEST(what_is_in_memory_takes_no_buffer_and_one_thread) {
  const Reset reset;
  MadeSet set(1000, 3000, 10);
  ReadAhead ahead({1 << 20, 1}, find_in(set));
  const Batches batches(ahead, shuffled_ids(1000, 1), 64);
  CHECK_EQ(read_all(ahead, set, batches, 2), 0u);
  const ReadAhead::Counts counts = ahead.counts();
  CHECK_EQ(counts.buffer_peak, 0u);
  CHECK_EQ(counts.threads, 1u);
  CHECK_EQ(file_system.preads.load(), 0u);
}

TEST(records_of_samples_that_have_any_number_are_found_by_sample) {
  const Reset reset;
  file_system.cold = true;
  MadeSet set(1000, 3000, 10);
  ReadAhead ahead({1 << 20, 1}, find_in(set));
  const std::vector<std::vector<int64_t>> samples{{500, 501, 900}, {}, {17}, {500}};
  const auto group = ahead.announce({500, 501, 900, 17, 500}, {0, 3, 3, 4, 5});
  const auto find = [&](uint32_t sample, int64_t record) {
    return ReadAhead::find(group.get(), sample, record).value_or(99);
  };
  CHECK_EQ(find(0, 500), 0u);
  CHECK_EQ(find(0, 900), 2u);
  CHECK_EQ(find(0, 17), 99u);
  CHECK_EQ(find(0, 1000), 99u);
  CHECK_EQ(find(1, 17), 99u);
  CHECK_EQ(find(2, 17), 3u);
  CHECK_EQ(find(3, 500), 4u);
  CHECK(!ReadAhead::find(nullptr, 3, 500).has_value());
  size_t wrong = 0;
  for (uint32_t sample = 0; sample < samples.size(); ++sample) {
    for (const int64_t record : samples[sample]) {
      std::vector<uint8_t> scratch;
      std::shared_ptr<const void> held;
      const auto id = static_cast<uint64_t>(record);
      const Bytes bytes =
          ahead.read(group.get(), find(sample, record), find_in(set)(id), scratch, held);
      if (!set.equals(id, bytes)) ++wrong;
    }
  }
  CHECK_EQ(wrong, 0u);
  const ReadAhead::Counts counts = ahead.counts();
  CHECK_EQ(counts.ahead + counts.late, 5u);
}

TEST(without_a_budget_nothing_is_announced) {
  const Reset reset;
  file_system.cold = true;
  MadeSet set(10, 100, 0);
  ReadAhead ahead({0, 1}, find_in(set));
  CHECK(ahead.announce({1, 2}) == nullptr);
  CHECK_EQ(ahead.counts().threads, 0u);
}

// A thread that has been joined may be listed for a moment more.
bool thread_count_becomes(size_t wanted) {
  for (int i = 0; i < 60'000; ++i, ::usleep(1000)) {
    if (thread_count() <= wanted) return true;
  }
  return false;
}

// Until `bytes` of buffers hold records that nobody has asked for yet; at most a minute.
bool filled(const ReadAhead& ahead, size_t bytes) {
  for (int i = 0; i < 60'000 && ahead.counts().buffer_bytes < bytes; ++i) ::usleep(1000);
  return ahead.counts().buffer_bytes >= bytes;
}

// Until no buffer is in use: a thread may be giving back one that nobody needed.
bool emptied(const ReadAhead& ahead) {
  for (int i = 0; i < 60'000; ++i, ::usleep(1000)) {
    if (ahead.counts().buffer_bytes == 0) return true;
  }
  return false;
}

// Until reading ahead is through with `count` records, so that decoding does not overtake it; at
// most a minute.
bool is_through(const ReadAhead& ahead, uint64_t count) {
  for (int i = 0; i < 60'000; ++i, ::usleep(1000)) {
    const ReadAhead::Counts counts = ahead.counts();
    if (counts.ahead + counts.resident >= count) return true;
  }
  return false;
}

TEST(what_is_not_in_memory_is_read_within_the_budget) {
  const Reset reset;
  file_system.cold = true;
  const size_t before = thread_count();
  for (const size_t budget : {size_t{16} << 10, size_t{100} << 10, size_t{4} << 20}) {
    for (const double keep : {0.0, 0.5, 1.0}) {
      MadeSet set(1500, 9000, 100);
      ReadAhead ahead({budget, keep}, find_in(set));
      const Batches batches(ahead, shuffled_ids(1500, 3), 50);
      const bool large = budget > 1 << 20;  // else decoding, which takes no time here, outruns it
      if (large) CHECK(filled(ahead, budget / 2));
      CHECK_EQ(read_all(ahead, set, batches, 3), 0u);
      CHECK(emptied(ahead));
      const ReadAhead::Counts counts = ahead.counts();
      CHECK(counts.buffer_peak <= budget);
      CHECK_EQ(counts.ahead + counts.late, 1500u);
      if (large) CHECK(counts.ahead > 100);
      CHECK(counts.threads <= 48);  // as many as ByteSource::in_flight() says of files
    }
  }
  CHECK(thread_count_becomes(before));  // ReadAhead's destructor ends its threads
}

// Room for every record alone: on a busy machine reading runs ahead of what is announced, and joins
// none of it.
constexpr size_t kAmple = 64 << 20;

TEST(neighbours_are_read_together) {
  const Reset reset;
  file_system.cold = true;
  file_system.delay_us = 200;
  MadeSet set(2000, 2000, 10);
  bool together = false;
  for (int round = 0; round < 100 && !together; ++round) {  // see kAmple
    ReadAhead ahead({kAmple, 0}, find_in(set));
    const Batches batches(ahead, shuffled_ids(2000, 4), 100);
    CHECK(is_through(ahead, 2000));
    CHECK_EQ(read_all(ahead, set, batches, 1), 0u);
    const ReadAhead::Counts counts = ahead.counts();
    together = counts.requests * 3 < counts.ahead;
  }
  CHECK(together);
}

TEST(a_slow_file_is_waited_for) {
  const Reset reset;
  file_system.cold = true;
  file_system.delay_us = 2000;
  MadeSet set(200, 6000, 40000);  // gaps too large to read along
  bool waited = false, shared = false;
  // On a busy machine all may have been read before the first is asked for.
  for (int round = 0; round < 100 && !(waited && shared); ++round) {
    ReadAhead ahead({1 << 20, 0}, find_in(set));
    const Batches batches(ahead, shuffled_ids(200, 4), 10);
    CHECK_EQ(read_all(ahead, set, batches, 4), 0u);
    waited = waited || ahead.counts().waits > 0;
    shared = shared || ahead.counts().threads > 4;  // as many as keep the requests in flight
  }
  CHECK(waited);
  CHECK(shared);
}

TEST(dropped_batches_give_their_buffers_back) {
  const Reset reset;
  file_system.cold = true;
  file_system.delay_us = 100;
  MadeSet set(1000, 5000, 10);
  ReadAhead ahead({200 << 10, 0}, find_in(set));
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    Batches batches(ahead, shuffled_ids(1000, static_cast<unsigned>(round)), 20);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    for (const auto& group : batches.groups) ahead.drop(group);
  }
  const Batches batches(ahead, shuffled_ids(1000, 99), 20);
  CHECK_EQ(read_all(ahead, set, batches, 2), 0u);
  CHECK(emptied(ahead));
  CHECK(ahead.counts().buffer_peak <= 200 << 10);
}

TEST(closing_waits_for_what_is_in_flight_and_buffers_outlive_it) {
  const Reset reset;
  file_system.cold = true;
  file_system.delay_us = 500;
  const size_t before = thread_count();
  for (int round = 0; round < 20; ++round) {
    MadeSet set(300, 5000, 10);
    std::vector<std::shared_ptr<void>> groups;
    {
      ReadAhead ahead({100 << 10, 0}, find_in(set));
      const Batches batches(ahead, shuffled_ids(300, 1), 20);
      groups = batches.groups;
      std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
    }
    CHECK(thread_count_becomes(before));
  }
}

TEST(padding_and_repeated_ids) {
  const Reset reset;
  file_system.cold = true;
  MadeSet set(50, 5000, 10);
  ReadAhead ahead({1 << 20, 0}, find_in(set));
  std::vector<int64_t> ids;
  for (int i = 0; i < 400; ++i) ids.push_back(i % 7 == 0 ? -1 : i % 50);
  const Batches batches(ahead, ids, 16);
  CHECK_EQ(read_all(ahead, set, batches, 3), 0u);
}

TEST(short_reads_are_continued) {
  const Reset reset;
  file_system.cold = true;
  for (const size_t longest : {size_t{1000}, size_t{4096}, size_t{8192}}) {
    file_system.longest = longest;
    MadeSet set(200, 20000, 10);
    ReadAhead ahead({1 << 20, 0}, find_in(set));
    const Batches batches(ahead, shuffled_ids(200, 2), 16);
    CHECK_EQ(read_all(ahead, set, batches, 2), 0u);
  }
}

TEST(a_bad_block_is_the_error_of_its_record_alone) {
  const Reset reset;
  file_system.cold = true;
  MadeSet set(200, 3000, 0);
  file_system.bad = static_cast<int64_t>(set.record(120).offset);
  ReadAhead ahead({1 << 20, 0}, find_in(set));
  const Batches batches(ahead, shuffled_ids(200, 2), 200);
  std::vector<uint8_t> scratch;
  for (uint32_t i = 0; i < 200; ++i) {
    const auto id = static_cast<uint64_t>(batches.ids[0][i]);
    std::shared_ptr<const void> held;
    auto read = [&] {
      return ahead.read(batches.groups[0].get(), i, find_in(set)(id), scratch, held);
    };
    if (id == 120) {
      CHECK_THROWS(kIo, "Input/output error", read());
    } else {
      CHECK(set.equals(id, read()));
    }
  }
}

TEST(a_file_cut_after_it_was_opened_is_an_error_not_a_signal) {
  const Reset reset;
  file_system.cold = true;
  MadeSet set(200, 3000, 0);
  CHECK(set.reader().source(0) != nullptr);
  std::filesystem::resize_file(set.path("shard"), set.record(100).offset);
  ReadAhead ahead({1 << 20, 0}, find_in(set));
  const Batches batches(ahead, shuffled_ids(200, 2), 200);
  std::vector<uint8_t> scratch;
  for (uint32_t i = 0; i < 200; ++i) {
    const auto id = static_cast<uint64_t>(batches.ids[0][i]);
    std::shared_ptr<const void> held;
    auto read = [&] {
      return ahead.read(batches.groups[0].get(), i, find_in(set)(id), scratch, held);
    };
    if (id >= 100) {
      CHECK_THROWS(kTruncated, "ends at byte", read());
    } else {
      CHECK(set.equals(id, read()));
    }
  }
}

TEST(network_file_systems_are_never_mapped) {
  const Reset reset;
  file_system.remote = file_system.silent = true;
  MadeSet set(300, 3000, 10);
  ReadAhead ahead({1 << 20, 1}, find_in(set));
  const Batches batches(ahead, shuffled_ids(300, 2), 30);
  CHECK_EQ(read_all(ahead, set, batches, 2), 0u);
  const ReadAhead::Counts counts = ahead.counts();
  CHECK_EQ(counts.resident, 0u);
  CHECK_EQ(counts.ahead + counts.late, 300u);
}

// preadv2() begins to read the page that it is asked for, so it is asked only where mincore() does
// not tell, and seldom of what is read past the page cache.
TEST(looking_for_cold_records_reads_little) {
  const Reset reset;
  file_system.cold = true;
  for (const bool foreign : {false, true}) {
    for (const double keep : {0.0, 1.0}) {
      file_system.foreign = foreign;
      file_system.looks = 0;
      MadeSet set(3000, 300, 10);
      ReadAhead ahead({kAmple, keep}, find_in(set));
      const Batches batches(ahead, shuffled_ids(3000, 1), 100);
      CHECK(is_through(ahead, 3000));
      CHECK_EQ(read_all(ahead, set, batches, 1), 0u);
      CHECK(foreign || file_system.looks == 0);
      CHECK(file_system.looks <= 3000 / 8 + (keep > 0 ? 256 : 8) + 1);
      CHECK_EQ(ahead.counts().ahead, 3000u);
    }
  }
}

TEST(a_set_that_comes_into_memory_is_noticed) {
  const Reset reset;
  for (const bool foreign : {false, true}) {
    file_system.foreign = foreign;
    file_system.cold = true;
    MadeSet set(4000, 300, 10);
    ReadAhead ahead({kAmple, 0}, find_in(set));
    const std::vector<int64_t> ids = shuffled_ids(4000, 1);
    const Batches first(ahead, {ids.begin(), ids.begin() + 1000}, 100);
    CHECK(is_through(ahead, 1000));
    CHECK_EQ(read_all(ahead, set, first, 2), 0u);
    file_system.cold = false;
    const Batches second(ahead, {ids.begin() + 1000, ids.end()}, 100);
    CHECK(is_through(ahead, 4000));
    CHECK_EQ(read_all(ahead, set, second, 2), 0u);
    CHECK(ahead.counts().resident > 0);
  }
}

TEST(where_nothing_says_what_is_in_memory_it_is_taken_to_be) {
  const Reset reset;
  file_system.silent = file_system.foreign = true;
  MadeSet set(300, 3000, 10);  // just written
  ReadAhead ahead({1 << 20, 1}, find_in(set));
  const Batches batches(ahead, shuffled_ids(300, 2), 30);
  CHECK_EQ(read_all(ahead, set, batches, 2), 0u);
  CHECK_EQ(ahead.counts().ahead, 0u);
}

}  // namespace
}  // namespace fastload::test
