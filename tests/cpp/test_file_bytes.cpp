// Files on a network file system: read where they are needed, never mapped, opened again when
// stale.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
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
  Index& index = set.index();
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
  Index& index = set.index();
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
    FileBytes file(open_file(path));
    file.need(0, 5);
    CHECK_EQ(file.at(0, 5)[4], uint8_t{'n'});
    file.need(file.size() - 10, 10);
    CHECK_EQ(file.at(file.size() - 1, 1)[0], uint8_t{0});
    CHECK_THROWS(kTruncated, "ends at byte", file.need(file.size() - 5, 6));
    CHECK(!file.mapped() && !is_mapped(path));
  }
  std::filesystem::remove(path);
}

// An index of more records than are kept in memory where no temporary file can be had: some of them
// marked, all others zeros that take no space on the disk. The last one's key covers two pages.
class HugeIndex {
 public:
  static constexpr uint64_t kRecords = 9'000'000, kStep = 50'001, kKey = 1'500'000;
  static constexpr uint64_t kPage = 1 << 18, kRecordPages = kRecords * sizeof(Record) / kPage;
  HugeIndex() : path_(temporary("-huge-index")) {
    PagedHeader header{};
    std::memcpy(header.magic, "FLINDEX1", 8);
    header.major = 1;
    header.header_bytes = sizeof(header);
    header.num_records = kRecords;
    header.data_offset = sizeof(header);
    header.page_bytes = kPage;
    header.table_offset = sizeof(header) + kRecords * sizeof(Record);
    header.bytes_offset = header.table_offset + (kRecords + 1) * sizeof(uint64_t);
    header.data_size = header.bytes_offset + kKey - sizeof(header);
    header.pages_offset = header.data_offset + header.data_size;
    pages_.resize((header.data_size + kPage - 1) / kPage);
    header.file_size = header.pages_offset + pages_.size() * sizeof(uint32_t);
    for (uint64_t id = 0; id < kRecords; id += kStep) {
      put(id * sizeof(Record) + offsetof(Record, offset), &id, sizeof(id));
    }
    const uint64_t end = kKey;
    put(header.bytes_offset - sizeof(end) - sizeof(header), &end, sizeof(end));
    const std::string key(kKey, 'k');
    put(header.bytes_offset - sizeof(header), key.data(), key.size());
    write(header);
  }
  ~HugeIndex() { std::filesystem::remove(path_); }
  HugeIndex(const HugeIndex&) = delete;
  HugeIndex& operator=(const HugeIndex&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  // Changes a byte of a record in the file.
  void scribble(uint64_t id) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(sizeof(PagedHeader) + id * sizeof(Record)));
    file.put('x');
  }

 private:
  // Bytes of the data region.
  void put(uint64_t begin, const void* bytes, size_t length) {
    const auto* from = static_cast<const uint8_t*>(bytes);
    for (size_t i = 0; i < length; ++i) {
      std::vector<uint8_t>& page = pages_[(begin + i) / kPage];
      page.resize(kPage);
      page[(begin + i) % kPage] = from[i];
    }
  }
  void write(PagedHeader& header) const {
    std::ofstream file(path_, std::ios::binary);
    const std::vector<uint8_t> zeros(kPage);
    std::vector<uint32_t> crcs;
    for (size_t i = 0; i < pages_.size(); ++i) {
      const uint64_t length = std::min(kPage, header.data_size - i * kPage);
      const std::vector<uint8_t>& page = pages_[i].empty() ? zeros : pages_[i];
      crcs.push_back(crc32c({page.data(), length}));
      if (pages_[i].empty()) continue;
      file.seekp(static_cast<std::streamoff>(sizeof(header) + i * kPage));
      file.write(reinterpret_cast<const char*>(page.data()), static_cast<std::streamsize>(length));
    }
    const Bytes table{reinterpret_cast<const uint8_t*>(crcs.data()), crcs.size() * 4};
    header.pages_crc = crc32c(table);
    header.header_crc = crc32c({reinterpret_cast<const uint8_t*>(&header), sizeof(header) - 4});
    file.seekp(static_cast<std::streamoff>(header.pages_offset));
    file.write(reinterpret_cast<const char*>(table.data()),
               static_cast<std::streamsize>(table.size()));
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
  }

  const std::string path_;
  std::vector<std::vector<uint8_t>> pages_;  // empty: zeros
};

// $TMPDIR, for a while.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const char* folder) {
    if (const char* const before = std::getenv("TMPDIR"); before != nullptr) before_ = before;
    ::setenv("TMPDIR", folder, 1);
  }
  ~TemporaryFolder() {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  std::string before_;
};

TEST(without_a_temporary_file_the_memory_of_a_huge_remote_one_is_bounded) {
  const HugeIndex made;
  const Reset reset;
  file_system.remote = true;
  const TemporaryFolder nowhere("/proc/nowhere");
  Index index(made.path());
  std::atomic<size_t> wrong{0};
  auto work = [&] {
    for (uint64_t id = 0; id < HugeIndex::kRecords; id += HugeIndex::kStep) {
      if (index.record(id).offset != id || index.record(id + 1).offset != 0) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0u);
  index.verify();
  CHECK(index.key(HugeIndex::kRecords - 1) == std::string(HugeIndex::kKey, 'k'));
  std::vector<Record> own;
  CHECK_EQ(index.records(own).size(), HugeIndex::kRecords);
  CHECK_EQ(own[HugeIndex::kStep].offset, HugeIndex::kStep);
  // What is kept needs no further request; of the rest as much is read as is asked for.
  const uint64_t before = file_system.preads;
  for (uint64_t i = 0; i < HugeIndex::kRecordPages; ++i) {
    index.record(i * HugeIndex::kPage / sizeof(Record));
  }
  const uint64_t kept = HugeIndex::kRecordPages - (file_system.preads - before);
  CHECK(kept * HugeIndex::kPage <= FileBytes::kInMemory);
  CHECK(kept * HugeIndex::kPage > FileBytes::kInMemory / 2);
}

TEST(pages_that_do_not_stay_are_checked_again_in_a_file_that_was_opened_again) {
  const HugeIndex made;
  const Reset reset;
  file_system.remote = true;
  const TemporaryFolder nowhere("/proc/nowhere");
  Index index(made.path());
  index.verify();
  const uint64_t last = HugeIndex::kRecords - 5;
  made.scribble(last);
  file_system.stale = 1;
  index.record(HugeIndex::kRecords - HugeIndex::kStep);
  CHECK_THROWS(kChecksum, "have CRC-32C", index.record(last));
  CHECK_EQ(index.record(HugeIndex::kStep).offset, HugeIndex::kStep);
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
