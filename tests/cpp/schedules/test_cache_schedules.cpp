// What processes do with a cache file and with a disk tier at the same time: all orders of their
// steps up to a bound, and a kill at each.
#include <cstdlib>
#include <memory>
#include <vector>

#include "cache/coefficient_cache.h"
#include "cache/pixel_cache.h"
#include "check.h"
#include "run_all.h"
#include "small_files.h"

namespace fastload::test {
namespace {

using Files = std::vector<std::shared_ptr<CacheFile>>;

// Whether bytes are the record's, looked at in two steps, as decoding does not take them at once
// either.
bool equals(Bytes bytes, uint64_t id) {
  const std::vector<uint8_t> wanted = record_bytes(id);
  std::vector<uint8_t> got(bytes.begin(), bytes.begin() + kBytes / 2);
  step_here();
  got.insert(got.end(), bytes.begin() + kBytes / 2, bytes.end());
  return got == wanted;
}

void check_counts(CacheFile& file, size_t killed) {
  const auto ready = static_cast<int64_t>(file.count_ready());
  const int64_t wrong = static_cast<int64_t>(file.counts().ready_records) - ready;
  CHECK(std::abs(wrong) <= static_cast<int64_t>(killed));
}

// ---- records as they are -----------------------------------------------------------------------

// Without a checksum: what is ready is the record, whoever has put it there.
void use_record(CacheFile& file, uint64_t id) {
  Bytes found = file.find(id);
  if (found.empty()) {
    file.store(id, record_bytes(id), record_crc(id));
    found = file.find(id);
    CHECK(!found.empty());
  }
  CHECK(equals(found, id));
}

Stage records(const SmallCache& cache, Files& files, std::vector<std::vector<uint64_t>> orders) {
  Stage stage;
  stage.begin = [&cache, &files, orders] {
    files.clear();
    cache.reset();
    std::vector<Actor> actors;
    for (size_t i = 0; i < orders.size(); ++i) {
      files.push_back(cache.attach());
      actors.push_back({[&files, i, orders] {
                          for (const uint64_t id : orders[i]) use_record(*files[i], id);
                        },
                        [&files, i] { files[i].reset(); }});
    }
    return actors;
  };
  stage.check = [&cache](size_t killed) {
    const auto later = cache.attach();
    check_counts(*later, killed);
    for (uint64_t id = 0; id < kRecords; ++id) use_record(*later, id);
    CHECK_EQ(later->count_ready(), kRecords);
    CHECK_EQ(later->counts().failed, 0u);
  };
  return stage;
}

TEST(two_store_the_same_records) {
  const SmallCache cache("encoded");
  Files files;
  run_all("two store the same records", records(cache, files, {{0, 1}, {1, 0}}), 3);
}

TEST(three_store_the_same_record) {
  const SmallCache cache("encoded");
  Files files;
  run_all("three store the same record", records(cache, files, {{0}, {0}, {0}}), 3);
}

TEST(a_record_that_is_published_before_its_bytes_is_found) {
  const SmallCache cache("encoded");
  Files files;
  must_find(records(cache, files, {{0}, {0}}), Defect::kPublishedFirst);
}

// ---- pixels, and coefficients -------------------------------------------------------------------

void use_pixels(CacheFile& file, PixelCache& pixels, uint64_t id) {
  Bytes found = pixels.find(id, 2, 2);
  if (found.empty() && pixels.wants(id, 2, 2)) {
    pixels.store(id, record_bytes(id));
    found = pixels.find(id, 2, 2);
  }
  if (!found.empty()) CHECK(equals(found, id));
  CHECK(found.empty() || file.has(found));
}

Stage decoded(const SmallCache& cache, Files& files, bool damaged) {
  Stage stage;
  stage.begin = [&cache, &files, damaged] {
    files.clear();
    damaged ? cache.reset_damaged(0) : cache.reset();
    std::vector<Actor> actors;
    for (size_t i = 0; i < 2; ++i) {
      files.push_back(cache.attach());
      actors.push_back({[&files, i] {
                          PixelCache pixels(*files[i], "decoded-full", kRecords);
                          use_pixels(*files[i], pixels, 0);
                          use_pixels(*files[i], pixels, 0);
                        },
                        [&files, i] { files[i].reset(); }});
    }
    return actors;
  };
  stage.check = [&cache, &files, damaged](size_t killed) {
    for (const auto& file : files) {
      CHECK(file == nullptr || damaged || file->counts().damaged == 0);
    }
    const auto later = cache.attach();
    if (!damaged) check_counts(*later, killed);
    PixelCache pixels(*later, "decoded-full", kRecords);
    use_pixels(*later, pixels, 0);
    CHECK(!pixels.find(0, 2, 2).empty());
    CHECK_EQ(later->count_ready(), 1u);
  };
  return stage;
}

TEST(pixels_are_right_and_none_is_thrown_away) {
  const SmallCache cache("decoded-full");
  Files files;
  run_all("two keep pixels", decoded(cache, files, false), 3);
}

TEST(damaged_pixels_are_stored_again) {
  const SmallCache cache("decoded-full");
  Files files;
  run_all("two find damaged pixels", decoded(cache, files, true), 3);
}

TEST(a_checksum_that_comes_after_its_pixels_is_found) {
  const SmallCache cache("decoded-full");
  Files files;
  must_find(decoded(cache, files, false), Defect::kNoRelease);
}

// Of no codec, so kept as it is; what matters here is who does so, and when.
Record set_record(uint64_t id) {
  Record record{};
  record.length = kBytes;
  record.crc32c = record_crc(id);
  return record;
}

void use_coefficients(CoefficientCache& cache, uint64_t id) {
  Bytes found = cache.find(id, set_record(id));
  if (found.empty() && cache.take(id)) {
    cache.put(id, set_record(id), record_bytes(id), DecodeLimits{});
    found = cache.find(id, set_record(id));
  }
  if (!found.empty()) CHECK(equals(found, id));
}

Stage coefficients(const SmallCache& cache, Files& files,
                   std::vector<std::shared_ptr<CoefficientCache>>& caches, size_t threads) {
  Stage stage;
  stage.begin = [&cache, &files, &caches, threads] {
    caches.clear();
    files.clear();
    cache.reset();
    std::vector<Actor> actors;
    for (size_t i = 0; i < 2; ++i) {
      files.push_back(cache.attach());
      caches.push_back(std::make_shared<CoefficientCache>(*files[i], kRecords, 0));
    }
    for (size_t i = 0; i < threads; ++i) {  // the third one is another thread of the second process
      const size_t process = i < 2 ? i : 1;
      actors.push_back({[&caches, process] {
                          use_coefficients(*caches[process], 0);
                          use_coefficients(*caches[process], 0);
                        },
                        [&files, threads, process] {
                          if (threads == 2 || process == 0) files[process].reset();
                        }});
    }
    return actors;
  };
  stage.check = [&cache, &files, &caches](size_t killed) {
    for (const auto& file : files) CHECK(file == nullptr || file->counts().damaged == 0);
    caches.clear();
    files.clear();  // all have ended: their claims are free
    const auto later = cache.attach();
    check_counts(*later, killed);
    CoefficientCache own(*later, kRecords, 0);
    use_coefficients(own, 0);
    CHECK(!own.find(0, set_record(0)).empty());
  };
  return stage;
}

TEST(coefficients_are_right_and_none_is_thrown_away) {
  const SmallCache cache("coefficients");
  Files files;
  std::vector<std::shared_ptr<CoefficientCache>> caches;
  run_all("two keep coefficients", coefficients(cache, files, caches, 2), 3);
  run_all("three threads of two processes keep coefficients", coefficients(cache, files, caches, 3),
          2);
}

TEST(coefficients_without_a_release_are_found) {
  const SmallCache cache("coefficients");
  Files files;
  std::vector<std::shared_ptr<CoefficientCache>> caches;
  must_find(coefficients(cache, files, caches, 2), Defect::kNoRelease);
}

// ---- copies of tables
// -----------------------------------------------------------------------------

void use_table(CacheFile& file) {
  const std::vector<uint8_t> whole = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto [begin, size] = file.copy_range(Table::kIndex);
  CHECK_EQ(size, 8u);
  if (file.copy(Table::kIndex).empty() && file.claim(begin, begin + size)) {
    if (file.copy(Table::kIndex).empty()) {
      CHECK(file.write_copy(Table::kIndex, 0, Bytes(whole).first(4)));
      CHECK(file.write_copy(Table::kIndex, 4, Bytes(whole).subspan(4)));
    }
    file.release(begin, begin + size);
  }
  const Bytes copy = file.copy(Table::kIndex);
  CHECK(copy.empty() || std::vector<uint8_t>(copy.begin(), copy.end()) == whole);
}

TEST(a_copy_of_a_table_is_whole) {
  const SmallCache cache("encoded");
  Files files;
  Stage stage = records(cache, files, {});
  stage.one_writer = true;
  stage.begin = [&cache, &files] {
    files.clear();
    cache.reset();
    std::vector<Actor> actors;
    for (size_t i = 0; i < 3; ++i) {
      files.push_back(cache.attach());
      actors.push_back({[&files, i] { use_table(*files[i]); }, [&files, i] { files[i].reset(); }});
    }
    return actors;
  };
  stage.check = [&cache, &files](size_t) {
    files.clear();
    const auto later = cache.attach();
    use_table(*later);
    CHECK(!later->copy(Table::kIndex).empty());
  };
  run_all("three copy a table", stage, 2);
}

}  // namespace
}  // namespace fastload::test
