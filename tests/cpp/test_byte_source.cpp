// Sources of bytes: files by several ranges at once, and readers, reading ahead and fillers on a
// source that is no file.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cache/cache_file.h"
#include "cache/filler.h"
#include "check.h"
#include "file_system.h"
#include "io/byte_source.h"
#include "made_cache.h"
#include "made_set.h"
#include "read_ahead/read_ahead.h"

namespace fastload::test {
namespace {

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }
};

std::unique_ptr<uint8_t, Free> memory_for(uint64_t offset, size_t length) {
  return std::unique_ptr<uint8_t, Free>(static_cast<uint8_t*>(
      std::aligned_alloc(ByteSource::kAlignment, ByteSource::room(offset, length))));
}

std::vector<uint8_t> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Bytes in another place than a file system: no mapping, answers in any order.
class Store final : public ByteSource {
 public:
  struct Counts {
    std::atomic<uint64_t> calls{0}, ranges{0};
    std::atomic<uint64_t> bad{~uint64_t{0}};  // ranges with this byte have an error
  };

  Store(const std::string& path, std::vector<uint8_t> bytes, Counts& counts)
      : ByteSource("store:" + path, bytes.size()), bytes_(std::move(bytes)), counts_(counts) {}

  using ByteSource::read;
  void read(std::span<RangeRequest> ranges, bool /*keep*/) noexcept override {
    ++counts_.calls;
    for (size_t i = ranges.size(); i-- > 0;) answer(ranges[i]);
  }
  [[nodiscard]] bool is_changed() const noexcept override { return false; }
  [[nodiscard]] std::unique_ptr<ByteSource> open_again() const override {
    return std::make_unique<Store>(name(), bytes_, counts_);
  }

 private:
  void answer(RangeRequest& range) {
    ++counts_.ranges;
    const uint64_t bad = counts_.bad;
    if (bad >= range.offset && bad < range.offset + range.length) {
      range.error = std::make_exception_ptr(Error(ErrorKind::kIo, name() + ": no answer"));
      return;
    }
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(range.offset), range.length,
                range.memory);
    range.bytes = range.memory;
  }

  const std::vector<uint8_t> bytes_;
  Counts& counts_;
};

// A reader of a set whose shard lies in a Store.
std::unique_ptr<Reader> reader_of(MadeSet& set, Store::Counts& counts) {
  const uint64_t size = std::filesystem::file_size(set.path("shard"));
  return std::make_unique<Reader>(set.index(), std::vector<ShardFile>{{set.path("shard"), size}},
                                  [&counts](const std::string& path) {
                                    return std::make_unique<Store>(path, contents(path), counts);
                                  });
}

TEST(ranges_of_a_file_are_answered_one_by_one) {
  const Reset reset;
  MadeSet set(50, 20'000, 100);
  const std::vector<uint8_t> expected = contents(set.path("shard"));
  for (const bool remote : {false, true}) {
    file_system.remote = remote;
    const std::unique_ptr<ByteSource> source = open_file(set.path("shard"));
    CHECK_EQ(source->size(), expected.size());
    CHECK_EQ(source->mapping().empty(), remote);
    CHECK(source->can_read() && !source->is_changed());
    for (const bool keep : {false, true}) {
      std::vector<RangeRequest> ranges;
      std::vector<std::unique_ptr<uint8_t, Free>> memory;
      for (size_t id = set.size(); id-- > 0;) {
        const Record& record = set.record(id);
        memory.push_back(memory_for(record.offset, record.length));
        ranges.push_back({record.offset, record.length, memory.back().get(), nullptr, nullptr});
      }
      ranges[3].offset = source->size() - 10;  // it ends before
      ranges[3].length = 11;
      source->read(ranges, keep);
      for (size_t i = 0; i < ranges.size(); ++i) {
        CHECK_EQ(ranges[i].error != nullptr, i == 3);
        CHECK_EQ(ranges[i].bytes == nullptr, i == 3);
        if (i == 3) continue;
        CHECK(std::equal(ranges[i].bytes, ranges[i].bytes + ranges[i].length,
                         expected.begin() + static_cast<std::ptrdiff_t>(ranges[i].offset)));
      }
      const auto own = memory_for(0, 11);
      CHECK_THROWS(kTruncated, "ends at byte",
                   source->read(source->size() - 10, 11, own.get(), keep));
    }
  }
}

TEST(memory_for_a_range_has_whole_blocks) {
  constexpr size_t kBlock = ByteSource::kAlignment;
  CHECK_EQ(ByteSource::room(0, 1), kBlock);
  CHECK_EQ(ByteSource::room(0, kBlock), kBlock);
  CHECK_EQ(ByteSource::room(kBlock - 1, 2), 2 * kBlock);
  CHECK_EQ(ByteSource::room(3 * kBlock, 2 * kBlock + 1), 3 * kBlock);
}

TEST(a_mapped_file_that_was_changed_says_so) {
  const Reset reset;
  MadeSet set(50, 20'000, 0);
  const std::unique_ptr<ByteSource> source = open_file(set.path("shard"));
  CHECK(source->is_whole() && source->is_resident(0, source->size()));
  std::filesystem::resize_file(set.path("shard"), 10);
  CHECK(!source->is_whole());
  CHECK_EQ(source->open_again()->size(), 10u);
  const Bytes mapping = source->mapping();
  static_cast<void>(*static_cast<const volatile uint8_t*>(&mapping.back()));
  CHECK(source->is_changed());
}

TEST(records_are_read_from_a_source_that_is_no_file) {
  const Reset reset;
  MadeSet set(200, 3000, 100);
  Store::Counts counts;
  const std::unique_ptr<Reader> reader = reader_of(set, counts);
  std::vector<uint8_t> scratch;
  for (size_t id = 0; id < set.size(); ++id) {
    const Bytes bytes = reader->read(id, scratch);
    CHECK(set.equals(id, bytes) && reader->is_there(id, bytes, scratch));
    CHECK(!reader->is_resident(set.record(id)));
  }
  CHECK_EQ(counts.ranges.load(), set.size());
  counts.bad = set.record(7).offset;
  CHECK_THROWS(kIo, "no answer", reader->read(7, scratch));
  CHECK(set.equals(8, reader->read(8, scratch)));
}

TEST(records_of_another_table_are_read_from_the_same_shards) {
  const Reset reset;
  MadeSet set(100, 3000, 10);
  Store::Counts counts;
  size_t opened = 0;
  const uint64_t size = std::filesystem::file_size(set.path("shard"));
  const Reader first(set.index(), {{set.path("shard"), size}}, [&](const std::string& path) {
    ++opened;
    return std::make_unique<Store>(path, contents(path), counts);
  });
  Index other(set.path("index"));
  Reader one(first, set.index()), two(first, other);
  std::vector<uint8_t> scratch;
  for (size_t id = 0; id < set.size(); ++id) {
    CHECK(set.equals(id, one.read(id, scratch)));
    CHECK(set.equals(id, two.read(id, scratch)));
  }
  CHECK_EQ(opened, 1u);
}

TEST(reading_ahead_from_a_source_that_is_no_file) {
  const Reset reset;
  MadeSet set(300, 4000, 100);
  Store::Counts counts;
  const std::unique_ptr<Reader> reader = reader_of(set, counts);
  ReadAhead ahead({1 << 20, 1},
                  [&](uint64_t id) { return ReadAhead::Origin{reader.get(), nullptr, id}; });
  std::vector<int64_t> ids(set.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>((i * 7) % ids.size());
  counts.bad = set.record(14).offset;
  const std::shared_ptr<void> group = ahead.announce(ids);
  while (ahead.counts().ahead == 0) std::this_thread::yield();  // before decoding wants them
  std::vector<uint8_t> scratch;
  for (uint32_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<uint64_t>(ids[i]);
    std::shared_ptr<const void> held;
    auto read = [&] {
      return ahead.read(group.get(), i, {reader.get(), nullptr, id}, scratch, held);
    };
    if (id == 14) {
      CHECK_THROWS(kIo, "no answer", read());
    } else {
      CHECK(set.equals(id, read()));
    }
  }
  CHECK(ahead.counts().ahead > 0);
  CHECK_EQ(ahead.counts().resident, 0u);
}

TEST(the_records_of_a_sample_are_asked_for_together) {
  const Reset reset;
  MadeSet set(200, 4000, 100);
  Store::Counts counts;
  const std::unique_ptr<Reader> first = reader_of(set, counts);
  Index other(set.path("index"));
  Reader second(*first, other);
  const uint64_t half = set.size() / 2;  // a sample has a record of each half
  auto find = [&](uint64_t id) {
    return ReadAhead::Origin{id < half ? first.get() : &second, nullptr, id};
  };
  ReadAhead ahead({1 << 20, 1}, find);
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < half; ++i) {
    const uint64_t sample = i * 7 % half;
    ids.insert(ids.end(), {static_cast<int64_t>(sample), static_cast<int64_t>(sample + half)});
  }
  counts.bad = set.record(14 + half).offset;
  const std::shared_ptr<void> group = ahead.announce(ids, 2);
  while (ahead.counts().ahead == 0) std::this_thread::yield();  // before decoding wants them
  std::vector<uint8_t> scratch;
  for (uint32_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<uint64_t>(ids[i]);
    std::shared_ptr<const void> held;
    auto read = [&] { return ahead.read(group.get(), i, find(id), scratch, held); };
    if (id == 14 + half) {
      CHECK_THROWS(kIo, "no answer", read());  // and its sample's other record is there
    } else {
      CHECK(set.equals(id, read()));
    }
  }
  CHECK(counts.ranges > counts.calls);
}

TEST(a_cache_is_filled_from_a_source_that_is_no_file) {
  const Reset reset;
  MadeSet set(300, 4000, 100);
  Store::Counts counts;
  const std::unique_ptr<Reader> reader = reader_of(set, counts);
  const MadeCache made(set, set.size());
  const std::shared_ptr<CacheFile> cache = made.attach();
  CacheTarget target(*cache);
  FillPlan plan;
  plan.threads = 3;
  plan.chunk = 50'000;
  counts.bad = set.record(14).offset;
  Filler filler(*reader, target, plan);
  filler.start();
  while (!filler.wait(1)) {
  }
  filler.stop();
  const Filler::Failures failures = filler.failures();
  CHECK_EQ(failures.size(), 1u);
  CHECK_EQ(failures.front().first, 14u);
  for (size_t id = 0; id < set.size(); ++id) {
    CHECK_EQ(cache->is_ready(id), id != 14);
    if (id != 14) CHECK(set.equals(id, cache->find(id)));
  }
  CHECK(filler.counts().requests < set.size() / 2);  // neighbours in one
}

}  // namespace
}  // namespace fastload::test
