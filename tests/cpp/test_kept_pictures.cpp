// engine/kept_pictures: what is found is what was kept, within the bytes given, by many threads.
#include <cstring>
#include <thread>
#include <vector>

#include "base/row_sink.h"
#include "check.h"
#include "engine/kept_pictures.h"
#include "random.h"

namespace {

using fastload::KeptPictures;

// What of a budget a picture of one byte a pixel takes.
size_t taken(int width, int height) {
  return (static_cast<size_t>(width) * height + fastload::RowSink::kSlack + 63) / 64 * 64;
}

uint8_t byte_of(uint64_t key) { return static_cast<uint8_t>(1 + key % 251); }

// Fills and keeps a picture of its key's byte, if there is room.
bool put(KeptPictures& kept, uint64_t key, int width, int height) {
  const KeptPictures::Use use = kept.make(width, height, 1);
  if (!use) return false;
  std::memset(use.pixels(), byte_of(key), static_cast<size_t>(width) * height);
  kept.keep(key, use);
  return true;
}

bool has(KeptPictures& kept, uint64_t key, int width, int height) {
  const KeptPictures::Use use = kept.find(key, width, height);
  if (!use) return false;
  for (int i = 0; i < width * height; ++i) CHECK_EQ(use.pixels()[i], byte_of(key));
  return true;
}

}  // namespace

TEST(the_oldest_make_room) {
  KeptPictures kept(3 * taken(10, 10));
  for (uint64_t key = 0; key < 5; ++key) CHECK(put(kept, key, 10, 10));
  CHECK(!has(kept, 0, 10, 10) && !has(kept, 1, 10, 10));
  for (uint64_t key = 2; key < 5; ++key) CHECK(has(kept, key, 10, 10));
  CHECK_EQ(kept.counts().used_again, uint64_t{3});
  CHECK_EQ(kept.counts().bytes, 3 * taken(10, 10));
  CHECK(!has(kept, 4, 5, 20));  // another size
  kept.clear();
  CHECK(!has(kept, 4, 10, 10));
  CHECK_EQ(kept.counts().bytes, uint64_t{0});
}

TEST(what_is_in_use_stays) {
  KeptPictures kept(2 * taken(10, 10));
  put(kept, 1, 10, 10);
  put(kept, 2, 10, 10);
  {
    const KeptPictures::Use use = kept.find(1, 10, 10);
    CHECK(!put(kept, 3, 10, 10));
    CHECK_EQ(use.pixels()[99], byte_of(1));
  }
  CHECK(put(kept, 3, 10, 10));
  CHECK(!has(kept, 1, 10, 10) && has(kept, 2, 10, 10) && has(kept, 3, 10, 10));
  CHECK(!put(kept, 4, 100, 100));  // more than there is
  CHECK(!KeptPictures(0).make(1, 1, 1));
}

TEST(what_was_not_kept_is_not_found_and_makes_room) {
  KeptPictures kept(2 * taken(10, 10));
  static_cast<void>(kept.make(10, 10, 1));
  put(kept, 1, 10, 10);
  put(kept, 1, 10, 10);  // by two threads at once: the first one is found
  CHECK(has(kept, 1, 10, 10));
  put(kept, 2, 10, 10);
  CHECK(!has(kept, 1, 10, 10) && has(kept, 2, 10, 10));
  put(kept, 3, 10, 10);
  CHECK(has(kept, 2, 10, 10) && has(kept, 3, 10, 10));
}

TEST(pictures_of_any_size_by_many_threads) {
  KeptPictures kept(20'000);
  const auto side = [](uint64_t key, int most) { return static_cast<int>(1 + key * 37 % most); };
  std::vector<std::thread> threads;
  std::atomic<int> found{0};
  for (uint64_t seed = 1; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      fastload::test::Random random(seed);
      for (int i = 0; i < 3'000; ++i) {
        const auto key = static_cast<uint64_t>(random.in(0, 60));
        const int width = side(key, 61), height = side(key + 5, 53);
        if (has(kept, key, width, height)) {
          ++found;
        } else {
          put(kept, key, width, height);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(found > 0);
  CHECK(kept.counts().bytes <= 20'000);
}

TEST(samples_are_expected_as_long_as_they_are_kept) {
  KeptPictures kept(8'000);  // of which an eighth is left for what comes out of order
  for (uint64_t sample = 0; sample < 7; ++sample) CHECK(!kept.expect(sample, 1'000));
  for (uint64_t sample = 0; sample < 7; ++sample) CHECK(kept.expect(sample, 1'000));
  CHECK(!kept.expect(7, 1'000));
  CHECK(kept.expect(1, 1'000));
  CHECK(!kept.expect(0, 1'000));
  CHECK(!kept.expect(9, 7'001) && !kept.expect(9, 7'001));
  kept.expect_none();
  CHECK(!kept.expect(7, 1'000));
  KeptPictures none(0);
  CHECK(!none.expect(1, 1) && !none.expect(1, 1));
}
