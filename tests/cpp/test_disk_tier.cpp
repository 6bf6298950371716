// The disk tier's slots, and reading ahead from them.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "cache/disk_tier.h"
#include "check.h"
#include "file_system.h"
#include "made_set.h"
#include "made_tier.h"
#include "read_ahead/read_ahead.h"

namespace fastload::test {
namespace {

void use(MadeSet& set, Reader& reader, std::unique_ptr<Reader>& with,
         const std::shared_ptr<DiskTier>& tier) {
  with = std::make_unique<Reader>(reader, set.index(), nullptr, tier);
}

size_t read_all(MadeSet& set, Reader& reader) {
  std::vector<uint8_t> scratch;
  size_t wrong = 0;
  for (size_t id = 0; id < set.size(); ++id) {
    wrong += set.equals(id, reader.read(id, scratch)) ? 0 : 1;
  }
  return wrong;
}

TEST(a_tier_gives_what_it_was_given) {
  const Reset reset;
  MadeSet set(200, 8000, 10);
  const MadeTier made(set, 200, 200);
  const auto tier = made.attach(true);
  std::unique_ptr<Reader> reader;
  use(set, set.reader(), reader, tier);
  for (int round = 0; round < 3; ++round) CHECK_EQ(read_all(set, *reader), 0u);
  CHECK_EQ(tier->counts().stored, 200u);
  CHECK_EQ(tier->counts().hits, 400u);
  const auto other = made.attach(false);  // another process
  use(set, set.reader(), reader, other);
  CHECK_EQ(read_all(set, *reader), 0u);
  CHECK_EQ(other->counts().hits, 200u);
  CHECK_EQ(other->counts().held_records, 200u);
}

TEST(what_a_tier_has_is_checked_each_time) {
  const Reset reset;
  MadeSet set(100, 8000, 10);
  const MadeTier made(set, 100, 100);
  const auto tier = made.attach(true);
  std::unique_ptr<Reader> reader;
  use(set, set.reader(), reader, tier);
  CHECK_EQ(read_all(set, *reader), 0u);
  for (int round = 1; round <= 3; ++round) {
    made.scribble(0, std::vector<uint8_t>(1 << 20, static_cast<uint8_t>(round)));
    CHECK_EQ(::truncate((set.path("tier") + ".data").c_str(), 100 * (4096 + 8192)), 0);
    CHECK_EQ(read_all(set, *reader), 0u);
    CHECK_EQ(tier->counts().damaged, 100u * static_cast<unsigned>(round));
    CHECK_EQ(tier->counts().held_records, 100u);  // each went back to its place
  }
}

TEST(tables_of_garbage_are_misses) {
  const Reset reset;
  MadeSet set(100, 8000, 10);
  const MadeTier made(set, 60, 60);
  std::mt19937 random(3);
  const auto tier = made.attach(true);
  std::unique_ptr<Reader> reader;
  use(set, set.reader(), reader, tier);
  for (int round = 0; round < 50; ++round) {
    CHECK_EQ(read_all(set, *reader), 0u);
    std::vector<uint8_t> garbage(4 * (100 + 120));
    for (uint8_t& byte : garbage) byte = static_cast<uint8_t>(random() % 3 == 0 ? random() : 0);
    made.scribble(kTierHeaderBytes + kTierLiveBytes, garbage, true);
    CHECK_EQ(read_all(set, *reader), 0u);
  }
  use(set, set.reader(), reader, made.attach(true));
  for (int round = 0; round < 4; ++round) CHECK_EQ(read_all(set, *reader), 0u);
  CHECK(tier->counts().held_records > 90);
}

TEST(reading_ahead_reads_from_a_tier) {
  const Reset reset;
  file_system.cold = true;
  MadeSet set(300, 8000, 100);
  const MadeTier made(set, 300, 300);
  const auto tier = made.attach(true);
  std::unique_ptr<Reader> reader;
  use(set, set.reader(), reader, tier);
  const auto find = [&](uint64_t id) { return ReadAhead::Origin{reader.get(), nullptr, id}; };
  for (int round = 0; round < 4; ++round) {
    if (round == 2) made.scribble(0, std::vector<uint8_t>(100 * 4096, 7));
    ReadAhead ahead({256 << 10, 0.5}, find);
    std::vector<int64_t> ids(set.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7 % ids.size());
    const std::shared_ptr<void> group = ahead.announce(ids);
    std::vector<std::thread> threads;
    std::atomic<uint32_t> next{0};
    std::atomic<size_t> wrong{0};
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&] {
        std::vector<uint8_t> scratch;
        for (uint32_t i = next++; i < ids.size(); i = next++) {
          std::shared_ptr<const void> held;
          const auto id = static_cast<uint64_t>(ids[i]);
          const Bytes bytes = ahead.read(group.get(), i, find(id), scratch, held);
          if (!set.equals(id, bytes)) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK_EQ(wrong.load(), 0u);
    ahead.close();
    const DiskTier::Counts counts = tier->counts();
    if (round == 0) CHECK_EQ(counts.misses, 300u);
    if (round == 1) CHECK_EQ(counts.hits, 300 + counts.busy);
    if (round >= 2) CHECK(counts.damaged >= 90);
  }
  CHECK_EQ(tier->counts().held_records, 300u);
}

// A second slot for one record would leave another without room.
TEST(threads_that_store_one_record_take_one_slot) {
  const Reset reset;
  MadeSet set(300, 4000, 8);
  const MadeTier made(set, 300, 300);
  const auto tier = made.attach(true);
  const std::vector<uint8_t> bytes(4000, 7);
  std::atomic<size_t> arrived{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      for (uint64_t id = 0; id < set.size(); ++id) {
        for (++arrived; arrived < 2 * (id + 1);) std::this_thread::yield();
        tier->store(id, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(tier->counts().stored, 300u);
  for (uint64_t id = 0; id < set.size(); ++id) CHECK(tier->find(id, 4000).has_value());
}

TEST(many_threads_change_a_small_tier) {
  const Reset reset;
  MadeSet set(400, 4000, 10);
  const MadeTier made(set, 20, 1);
  const auto tier = made.attach(true);
  std::vector<uint16_t> masks(400), levels(400);
  std::vector<std::thread> threads;
  std::atomic<size_t> wrong{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const auto own = thread % 2 == 0 ? tier : made.attach(false);
      std::unique_ptr<Reader> reader;
      use(set, set.reader(), reader, own);
      std::mt19937 random(static_cast<unsigned>(thread));
      for (uint64_t round = 0; round < 5; ++round) {
        std::vector<uint16_t> order(400);
        for (uint16_t& mask : order) mask = static_cast<uint16_t>(random());
        own->uses().set({round, order, std::vector<uint16_t>(400)});
        own->uses().move(round, 0, false);
        wrong += read_all(set, *reader);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0u);
  CHECK(tier->counts().dropped > 0);
  CHECK_EQ(tier->counts().held_records, 20u);
}

}  // namespace
}  // namespace fastload::test
