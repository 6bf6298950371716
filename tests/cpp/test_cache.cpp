// The node cache: what is stored, what is found, and what happens when somebody writes into it.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "made_cache.h"
#include "made_set.h"
#include "read_ahead/read_ahead.h"

namespace fastload::test {
namespace {

constexpr size_t kCount = 200;
constexpr size_t kRoom = 150;

struct Cached {
  MadeSet set{kCount, 3000, 10};
  MadeCache file{set, kRoom, true, 3};
  std::shared_ptr<CacheFile> cache = file.attach();
  std::vector<uint8_t> scratch;

  Cached() { set.use(cache); }
  bool reads(uint64_t id) { return set.equals(id, set.reader().read(id, scratch)); }
  [[nodiscard]] uint64_t state_offset(uint64_t id) const {
    return cache->header().table_offset + id * sizeof(CacheEntry) + offsetof(CacheEntry, state);
  }
};

TEST(what_is_read_is_stored_and_found_by_others) {
  Cached a;
  for (size_t id = 0; id < kCount; ++id) CHECK(a.reads(id));
  CHECK_EQ(a.cache->counts().misses, kCount);
  CHECK_EQ(a.cache->counts().stored, kRoom);
  CHECK_EQ(a.cache->count_ready(), kRoom);
  for (size_t id = 0; id < kCount; ++id) CHECK(a.reads(id));
  CHECK_EQ(a.cache->counts().hits, kRoom);
  a.set.replace();  // the shard is gone: what the cache has is not
  a.set.open();
  const auto other = a.file.attach(O_RDONLY);
  a.set.use(other);
  for (size_t id = 0; id < kRoom; ++id) CHECK(a.reads(id));
  CHECK_THROWS(kChecksum, "CRC-32C", a.reads(kRoom));
  CHECK_EQ(other->counts().hits, kRoom);
}

TEST(damaged_records_are_read_from_the_shard_and_stored_again) {
  Cached a;
  for (size_t id = 0; id < kRoom; ++id) CHECK(a.reads(id));
  const uint64_t place = a.cache->place(7).offset;
  const uint8_t other = static_cast<uint8_t>(*a.cache->find(7).data() ^ 1);
  a.file.scribble(place, &other, 1);
  a.set.open();  // a process that has checked nothing yet
  const auto fresh = a.file.attach();
  a.set.use(fresh);
  for (size_t id = 0; id < kRoom; ++id) CHECK(a.reads(id));
  CHECK_EQ(fresh->counts().damaged, 1u);
  CHECK_EQ(fresh->counts().stored, 1u);
  CHECK_EQ(fresh->counts().hits, kRoom - 1);
  CHECK_EQ(fresh->counts().ready_records, kRoom);
  CHECK(a.set.equals(7, fresh->find(7)));
}

TEST(a_state_word_that_lies_is_caught) {
  Cached a;
  const uint32_t ready = 1;
  for (size_t id = 0; id < kCount; ++id) a.file.scribble(a.state_offset(id), &ready, 4);
  for (size_t id = 0; id < kCount; ++id) CHECK(a.reads(id));
  CHECK_EQ(a.cache->counts().damaged, kCount);
  CHECK_EQ(a.cache->counts().hits, 0u);
  CHECK_EQ(a.cache->counts().stored, kRoom);
  const uint32_t empty = 0;
  a.file.scribble(a.state_offset(3), &empty, 4);
  for (size_t id = 0; id < kCount; ++id) CHECK(a.reads(id));
  CHECK_EQ(a.cache->counts().damaged, kCount);
  CHECK(a.cache->is_ready(3));
}

TEST(random_bytes_in_the_table_do_no_harm) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    Cached a;
    for (size_t id = 0; id < kCount; ++id) CHECK(a.reads(id));
    std::vector<uint8_t> noise(1 + random() % 2000);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random() >> 7);
    const uint64_t table = kCount * sizeof(CacheEntry);
    const uint64_t at = random() % (table - noise.size());
    a.file.scribble(a.cache->header().table_offset + at, noise.data(), noise.size());
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t id = 0; id < kCount; ++id) CHECK(a.reads(id));
    }
    a.set.open();
    a.set.use(a.file.attach());
    for (size_t id = 0; id < kCount; ++id) CHECK(a.reads(id));
  }
}

TEST(many_threads_and_attachments_store_and_read_at_once) {
  Cached a;
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<std::shared_ptr<CacheFile>> files;
  for (int i = 0; i < 3; ++i) {
    const auto size = static_cast<uint64_t>(std::filesystem::file_size(a.set.path("shard")));
    const Reader plain(a.set.reader().index(), {{a.set.path("shard"), size}});
    files.push_back(a.file.attach());
    readers.push_back(std::make_unique<Reader>(plain, a.set.reader().index(), files.back()));
  }
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      std::vector<uint8_t> scratch;
      std::vector<uint64_t> ids(kCount);
      std::iota(ids.begin(), ids.end(), 0);
      for (unsigned pass = 0; pass < 3; ++pass) {
        std::shuffle(ids.begin(), ids.end(), std::mt19937(i * 10 + pass));
        for (const uint64_t id : ids) {
          if (!a.set.equals(id, readers[i / 2]->read_cold(id, scratch))) ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong, 0u);
  uint64_t stored = 0, hits = 0, misses = 0;
  for (const auto& file : files) {
    const CacheFile::Counts counts = file->counts();
    stored += counts.stored;
    hits += counts.hits;
    misses += counts.misses;
    CHECK_EQ(counts.damaged + counts.failed, 0u);
  }
  CHECK_EQ(stored, kRoom);
  CHECK_EQ(hits + misses, 6 * 3 * kCount);
  CHECK_EQ(files[0]->count_ready(), kRoom);
  CHECK_EQ(files[1]->counts().ready_records, kRoom);
}

TEST(readers_of_the_same_shards_use_a_cache_each_or_none) {
  MadeSet set(kCount, 3000, 10), same(kCount, 3000, 10);
  MadeCache first(set, kRoom), second(same, 20);
  const auto one = first.attach(), two = second.attach();
  Reader& plain = set.reader();
  auto with_one = std::make_unique<Reader>(plain, plain.index(), one);
  const Reader from_view(*with_one, plain.index(), two);
  std::vector<uint8_t> scratch;
  for (size_t id = 0; id < kCount; ++id) CHECK(set.equals(id, plain.read(id, scratch)));
  CHECK_EQ(one->counts().stored + one->counts().misses, 0u);
  for (size_t id = 0; id < kCount; ++id) CHECK(set.equals(id, with_one->read(id, scratch)));
  CHECK_EQ(one->counts().stored, kRoom);
  CHECK_EQ(two->counts().stored + two->counts().misses, 0u);
  CHECK(with_one->is_ready(3) && !plain.is_ready(3) && !plain.wants(3) && from_view.wants(3));
  with_one.reset();
  CHECK_EQ(one.use_count(), 1);  // nobody holds it any more
  CHECK(set.equals(3, plain.read(3, scratch)));
}

TEST(reading_ahead_fills_the_cache_and_then_needs_no_storage) {
  Cached a;
  auto find = [&](uint64_t id) { return ReadAhead::Origin{&a.set.reader(), nullptr, id}; };
  ReadAhead ahead({1 << 20, 1}, find);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const uint64_t hits = a.cache->counts().hits, misses = a.cache->counts().misses;
    std::vector<int64_t> ids(kCount);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(static_cast<unsigned>(epoch)));
    const auto group = ahead.announce(ids);
    for (uint32_t i = 0; i < kCount; ++i) {
      const auto id = static_cast<uint64_t>(ids[i]);
      std::shared_ptr<const void> held;
      const Bytes bytes = ahead.read(group.get(), i, find(id), a.scratch, held);
      CHECK(a.set.equals(id, bytes));
    }
    const CacheFile::Counts counts = a.cache->counts();
    CHECK_EQ(counts.hits - hits + counts.misses - misses, kCount);
    if (epoch == 1) CHECK_EQ(counts.hits - hits, kRoom);
  }
  ahead.close();
  CHECK_EQ(a.cache->count_ready(), kRoom);
  CHECK_EQ(a.cache->counts().stored, kRoom);
}

TEST(a_cache_of_another_set_is_refused) {
  Cached a;
  MadeSet other(kCount, 3001, 10);
  CHECK_THROWS(kValue, "of another dataset", other.use(a.cache));
}

TEST(the_index_comes_from_its_copy_once_that_is_complete) {
  Cached a;
  const Index& plain = a.set.index();
  Index index(plain, a.cache);
  const Bytes whole = a.file.index();
  CHECK(a.cache->write_copy(Table::kIndex, 0, whole.first(100)));
  std::vector<Record> unused;
  const Record* const own = index.records(unused).data();
  CHECK(!a.cache->write_copy(Table::kIndex, 100, whole));  // beyond its end
  CHECK(!a.cache->write_copy(Table::kEntries, 0, whole));  // it has no room
  CHECK(a.cache->write_copy(Table::kIndex, 100, whole.subspan(100)));
  CHECK(index.records(unused).data() != own);
  for (size_t id = 0; id < kCount; ++id) {
    CHECK_EQ(index.record(id).crc32c, a.set.record(id).crc32c);
    CHECK(a.reads(id));
  }
  CHECK_EQ(index.records(unused).size(), kCount);
  index.verify();
}

TEST(a_damaged_copy_of_the_index_is_not_used) {
  for (const size_t place : {size_t{5}, size_t{300}, size_t{5000}, SIZE_MAX}) {
    Cached a;
    std::vector<uint8_t> copy(a.file.index().begin(), a.file.index().end());
    copy[std::min(place, copy.size() - 1)] ^= 4;
    CHECK(a.cache->write_copy(Table::kIndex, 0, copy));
    Index index(Index(a.set.path("index")), a.cache);
    for (size_t id = 0; id < kCount; ++id) {
      CHECK_EQ(index.record(id).crc32c, a.set.record(id).crc32c);
      CHECK_EQ(index.record(id).offset, a.set.record(id).offset);
    }
    index.verify();
  }
}

TEST(a_copy_is_damaged_while_threads_use_it) {
  Cached a;
  CHECK(a.cache->write_copy(Table::kIndex, 0, a.file.index()));
  const uint8_t byte = 0xAA;
  for (uint64_t at = 130; at < a.file.index().size(); at += 1000) {
    a.file.scribble(a.cache->header().index_offset + at, &byte, 1);
  }
  Index index(Index(a.set.path("index")), a.cache);
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (size_t id = 0; id < kCount; ++id) {
        if (index.record(id).crc32c != a.set.record(id).crc32c) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong, 0u);
}

}  // namespace
}  // namespace fastload::test
