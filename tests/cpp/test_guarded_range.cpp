// Mapped files that are cut while they are in use.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "io/file.h"
#include "io/guarded_range.h"
#include "io/mapping.h"
#include "made_cache.h"
#include "made_set.h"

namespace fastload::test {
namespace {

constexpr size_t kPage = 4096;

bool is_zero(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

TEST(what_a_file_has_lost_reads_as_zeros_and_is_known) {
  MadeSet set(100, 3000, 0);
  const Mapping mapping(set.path("shard")), other(set.path("shard"));
  const Bytes whole = mapping.bytes();
  const std::vector<uint8_t> before(whole.begin(), whole.end());
  const size_t kept = 5 * kPage;
  CHECK(whole.size() > 10 * kPage);
  const uint64_t losses = loss_count();
  std::filesystem::resize_file(set.path("shard"), kept);
  CHECK(std::memcmp(whole.data(), before.data(), kept) == 0);
  CHECK_EQ(loss_count(), losses);
  CHECK(is_zero(whole.subspan(7 * kPage)));
  CHECK_EQ(loss_count(), losses + 1);
  CHECK(mapping.is_damaged() && !other.is_damaged());
  CHECK(is_lost(whole.subspan(7 * kPage)) && !is_lost(whole.first(kept)));
  CHECK(is_zero(whole.subspan(kept)));  // an earlier page
  CHECK_EQ(loss_count(), losses + 2);
  CHECK(is_lost(whole.subspan(kept)) && is_lost(whole) && !is_lost(whole.first(kept)));
  CHECK(std::memcmp(whole.data(), before.data(), kept) == 0);
  const std::vector<std::string> lost = lost_files();
  CHECK(std::count(lost.begin(), lost.end(), set.path("shard")) == 1);
}

TEST(threads_lose_a_file_at_once) {
  MadeSet set(200, 3000, 0);
  const Mapping mapping(set.path("shard"));
  std::filesystem::resize_file(set.path("shard"), 0);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t at = t * 100; at < mapping.bytes().size(); at += kPage) {
        if (mapping.bytes()[at] != 0 || !is_lost(mapping.bytes().subspan(at, 1))) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST(a_shard_that_was_cut_is_an_error_and_one_that_is_whole_again_is_read) {
  MadeSet set(100, 3000, 0);
  std::vector<uint8_t> scratch;
  for (uint64_t id = 0; id < 100; ++id) set.reader().read(id, scratch);  // all are checked
  const auto size = std::filesystem::file_size(set.path("shard"));
  std::filesystem::copy_file(set.path("shard"), set.path("kept"));
  std::filesystem::resize_file(set.path("shard"), 0);
  const Bytes lost = set.reader().read(50, scratch);
  CHECK(is_zero(lost) && is_lost(lost));  // found after it was used
  CHECK_THROWS(kTruncated, "was changed while it was in use: it has 0 bytes",
               set.reader().read(50, scratch));
  std::filesystem::resize_file(set.path("shard"), size);  // with holes
  CHECK_THROWS(kChecksum, "CRC-32C", set.reader().read(50, scratch));
  std::filesystem::rename(set.path("kept"), set.path("shard"));
  CHECK(set.equals(50, set.reader().read(50, scratch)));
}

TEST(an_index_that_was_cut_is_an_error) {
  MadeSet set(4000, 10, 0);
  Index& index = set.index();
  index.verify();
  CHECK_EQ(index.record(3000).length, set.record(3000).length);
  std::filesystem::resize_file(set.path("index"), kPage);
  CHECK_THROWS(kTruncated, "was cut while it was in use", index.record(3000));
  CHECK_THROWS(kTruncated, "was cut while it was in use", index.key(3000));
  CHECK_THROWS(kTruncated, "was cut while it was in use", index.record(10));  // it may be next
}

TEST(a_cache_that_was_cut_has_what_is_left_and_stores_nothing) {
  for (const uint32_t stripes : {0U, 3U}) {
    MadeSet set(100, 3000, 0);
    const MadeCache made(set, set.size(), true, stripes);
    const std::shared_ptr<CacheFile> cache = made.attach();
    set.use(cache);
    std::vector<uint8_t> scratch;
    for (const int turn : {0, 1}) {
      for (uint64_t id = 0; id < 100; ++id) CHECK(set.equals(id, set.reader().read(id, scratch)));
      CHECK_EQ(cache->counts().hits, turn * 100U);
    }
    const std::string cut = stripes == 0 ? cache->path() : cache->path() + ".1";
    const auto size = std::filesystem::file_size(cut);
    std::filesystem::resize_file(cut, stripes == 0 ? cache->header().data_offset + 10 * kPage : 0);
    size_t again = 0;
    for (uint64_t id = 0; id < 100; ++id) {
      Bytes bytes = set.reader().read(id, scratch);
      static_cast<void>(set.equals(id, bytes));  // use them
      if (!set.reader().is_there(id, bytes, scratch)) {
        ++again;
        bytes = set.reader().read(id, scratch);  // from the shard
      }
      CHECK(set.equals(id, bytes));
    }
    CHECK(again > 0 && again < 5);  // the first that met it
    CHECK(!cache->is_writable());
    CHECK(std::filesystem::file_size(cut) < size);
  }
}

TEST(a_table_that_was_cut_has_no_records) {
  MadeSet set(1000, 30, 0);
  const MadeCache made(set, set.size());
  const std::shared_ptr<CacheFile> cache = made.attach();
  set.use(cache);
  std::vector<uint8_t> scratch;
  for (uint64_t id = 0; id < 1000; ++id) set.reader().read(id, scratch);
  std::filesystem::resize_file(cache->path(), 0);
  CHECK_EQ(cache->count_ready(), uint64_t{0});
  for (uint64_t id = 0; id < 1000; ++id) {
    CHECK(set.equals(id, set.reader().read(id, scratch)));
  }
}

// As Python's faulthandler does: a report, the handler that was there put back, and the signal
// sent.
struct sigaction put_back;
void hand_on(int number) {
  ::sigaction(number, &put_back, nullptr);
  ::raise(number);
}

TEST(a_handler_that_was_installed_later_hands_the_fault_on) {
  for (const size_t threads : {1U, 4U}) {
    MadeSet set(200, 3000, 0);
    const Mapping mapping(set.path("shard"));
    const Bytes gone = mapping.bytes().subspan(kPage);
    std::filesystem::resize_file(set.path("shard"), kPage);
    struct sigaction later = {};
    later.sa_handler = hand_on;
    later.sa_flags = SA_NODEFER;
    ::sigaction(SIGBUS, &later, &put_back);
    std::vector<std::thread> readers;
    std::atomic<int> wrong{0};
    for (size_t t = 0; t < threads; ++t) {
      readers.emplace_back([&] { wrong += is_zero(gone) && is_lost(gone) ? 0 : 1; });
    }
    for (std::thread& reader : readers) reader.join();
    CHECK_EQ(wrong.load(), 0);
    struct sigaction now = {};
    ::sigaction(SIGBUS, nullptr, &now);
    CHECK(now.sa_sigaction == put_back.sa_sigaction);
  }
}

TEST(any_other_fault_is_as_it_was) {
  MadeSet set(100, 3000, 0);
  const Mapping guarded(set.path("shard"));
  const File file(set.path("shard"));
  const void* const own = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  CHECK(own != MAP_FAILED);
  std::filesystem::resize_file(set.path("shard"), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    static_cast<void>(*static_cast<const volatile uint8_t*>(own));
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status != 0);  // a sanitizer's own handler ends it with a report
  CHECK(!WIFSIGNALED(status) || WTERMSIG(status) == SIGBUS);
}

}  // namespace
}  // namespace fastload::test
