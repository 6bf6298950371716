// Files on a network file system: read where they are needed, never mapped, opened again when
// stale.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "file_system.h"
#include "io/file_bytes.h"
#include "made_set.h"

namespace fastload::test {
namespace {

constexpr size_t kMany = 150'000;  // records: an index of 6 MB, more than is read at once

bool is_mapped(const std::string& path) {
  std::stringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  return maps.str().find(path) != std::string::npos;
}

std::string temporary(const std::string& name) {
  const std::string unique = "fastload-test-" + std::to_string(::getpid()) + name;
  return (std::filesystem::temp_directory_path() / unique).string();
}

TEST(a_local_index_is_mapped) {
  const Reset reset;
  MadeSet set(100, 10, 0);
  CHECK(is_mapped(set.path("index")));
  file_system.remote = true;
  const Index remote(set.path("index"));
  const uint64_t reads = file_system.preads;
  CHECK(reads > 0);
  set.open();
  CHECK_EQ(file_system.preads.load(), reads);
}

TEST(a_small_remote_index_is_read_at_once) {
  const Reset reset;
  file_system.remote = true;
  MadeSet set(1000, 10, 0);
  CHECK(!is_mapped(set.path("index")));
  CHECK_EQ(file_system.preads.load(), 1u);
  std::filesystem::resize_file(set.path("index"), 0);
  for (size_t id = 0; id < set.size(); ++id) {
    CHECK_EQ(set.reader().index().record(id).offset, set.record(id).offset);
  }
  CHECK_EQ(file_system.preads.load(), 1u);
}

TEST(a_large_remote_index_is_read_page_by_page) {
  const Reset reset;
  file_system.remote = true;
  MadeSet set(kMany, 3, 0);
  CHECK(!is_mapped(set.path("index")));
  Index& index = set.reader().index();
  const uint64_t opening = file_system.preads;
  CHECK(opening <= 3);
  index.record(5);
  index.record(6);
  CHECK_EQ(file_system.preads.load(), opening + 1);
  std::atomic<size_t> wrong{0};
  auto work = [&](size_t first) {
    for (size_t i = 0; i < kMany; ++i) {
      const size_t id = (first + i) % kMany;
      if (index.record(id).offset != set.record(id).offset) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) threads.emplace_back(work, t * 100);
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0u);
  CHECK(file_system.preads <= opening + 1 + (kMany * sizeof(Record)) / 4096 + 1);  // each page once
}

TEST(a_remote_index_that_is_cut_or_cannot_be_read_is_an_error) {
  const Reset reset;
  file_system.remote = true;
  MadeSet set(kMany, 3, 0);
  Index& index = set.reader().index();
  file_system.stale = 1;
  CHECK_EQ(index.record(kMany / 2).offset, set.record(kMany / 2).offset);
  file_system.bad = 128 + 32 * 1000;
  CHECK_THROWS(kIo, "Input/output error", index.record(1000));
  file_system.bad = -1;
  CHECK_EQ(index.record(1000).offset, set.record(1000).offset);  // asked again
  std::filesystem::resize_file(set.path("index"), 128 + 32 * 5000);
  CHECK_THROWS(kTruncated, "ends at byte", index.record(kMany - 1));
  CHECK_THROWS(kTruncated, "its header says", Index(set.path("index")));
}

TEST(a_huge_remote_file_is_held_in_a_temporary_one) {
  const Reset reset;
  file_system.remote = true;
  const std::string path = temporary("-huge");
  std::ofstream(path, std::ios::binary) << "begin";
  std::filesystem::resize_file(path, FileBytes::kInMemory + 5000);
  {
    std::ofstream(path, std::ios::binary | std::ios::in) << "begin";
    FileBytes file(path);
    file.need(0, 5);
    CHECK_EQ(file.at(0, 5)[4], uint8_t{'n'});
    file.need(file.size() - 10, 10);
    CHECK_EQ(file.at(file.size() - 1, 1)[0], uint8_t{0});
    CHECK_THROWS(kTruncated, "ends at byte", file.need(file.size() - 5, 6));
    CHECK(!file.mapped() && !is_mapped(path));
  }
  std::filesystem::remove(path);
}

TEST(a_stale_handle_is_opened_again_once) {
  const Reset reset;
  file_system.remote = true;
  MadeSet set(20, 3000, 10);
  std::vector<uint8_t> scratch;
  CHECK(set.equals(3, set.reader().read(3, scratch)));
  file_system.stale = 1;
  CHECK(set.equals(3, set.reader().read(3, scratch)));
  file_system.stale = 2;
  CHECK_THROWS(kIo, "tale", set.reader().read(3, scratch));
}

TEST(a_file_that_replaced_the_stale_one_is_checked_again) {
  const Reset reset;
  file_system.remote = true;
  MadeSet set(20, 3000, 10);
  std::vector<uint8_t> scratch;
  CHECK(set.equals(3, set.reader().read(3, scratch)));
  set.replace();
  file_system.stale = 1;
  CHECK_THROWS(kChecksum, "CRC-32C", set.reader().read(3, scratch));
  std::filesystem::resize_file(set.path("shard"), 5);
  file_system.stale = 1;
  CHECK_THROWS(kTruncated, "was replaced: it has 5 bytes", set.reader().read(3, scratch));
}

}  // namespace
}  // namespace fastload::test
