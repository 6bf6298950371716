// Caches without memory: what was not kept is missing, what is there is right, and all is counted.
#include <algorithm>
#include <memory>
#include <optional>

#include "../check.h"
#include "../made_cache.h"
#include "../made_set.h"
#include "../made_tier.h"
#include "cache/coefficient_target.h"
#include "cache/filler.h"
#include "engine/kept_pictures.h"
#include "everywhere.h"
#include "failing.h"
#include "pictures.h"

namespace fastload::test {
namespace {

TEST(a_filler_without_memory_counts_what_it_could_not_do) {
  MadeSet set(30, 300, 0);
  size_t lacking = 0;
  // Whether a thread of it meets the lack, or who starts them, is chance: again if need be.
  for (int round = 0; round == 0 || (lacking == 0 && round < 50); ++round) {
    fail_in_turn("filling a cache", [&](int64_t successes, bool for_good) {
      const MadeCache made(set, set.size());
      const std::shared_ptr<CacheFile> cache = made.attach();
      set.open();
      CacheTarget target(*cache);
      FillPlan plan;
      plan.threads = 2;
      plan.claims = cache->path();
      plan.chunk = 1000;
      try {
        const Failing failing(successes, for_good);
        Filler filler(set.reader(), target, std::move(plan));
        filler.start();
        while (!filler.wait(60)) CHECK(false);  // it hangs
        filler.stop();
        const Filler::Counts counts = filler.counts();
        CHECK(counts.put_records + counts.there_records + counts.failed_records >= set.size());
        lacking += counts.failed_records > 0 ? 1 : 0;
      } catch (const std::bad_alloc&) {
        return;
      } catch (const Error& error) {  // no thread could be started, or no file be opened
        CHECK(error.kind() == ErrorKind::kIo || error.kind() == ErrorKind::kMemory);
        return;
      }
      for (size_t i = 0; i < set.size(); ++i) {
        CHECK(!cache->is_ready(i) || set.equals(i, cache->find(i)));
      }
    });
  }
  CHECK(lacking > 0);
}

TEST(a_cache_without_memory_is_attached_to_or_not) {
  MadeSet set(20, 200, 0);
  const MadeCache made(set, set.size(), true, 2);
  fail_in_turn("attaching to a cache", [&](int64_t successes, bool for_good) {
    std::shared_ptr<CacheFile> cache;
    try {
      const Failing failing(successes, for_good);
      cache = made.attach();
    } catch (const std::bad_alloc&) {
      return;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kMemory);
      return;
    }
    CHECK_EQ(cache->size(), set.size());
  });
}

// All records, twice: the second time from where they are kept.
Made twice(const MadeSet& set, Reader& reader) {
  Made all;
  for (int round = 0; round < 2; ++round) {
    for (size_t id = 0; id < set.size(); ++id) {
      std::vector<uint8_t> scratch;
      const Bytes bytes = reader.read(id, scratch);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  return all;
}

TEST(records_are_kept_without_memory) {
  MadeSet set(20, 3000, 0);
  std::optional<MadeCache> cache;
  fail_everywhere(
      "records by a cache",
      [&] {
        const auto file = cache->attach();
        Index index(set.index(), file);
        Reader reader(set.reader(), index, file);
        return twice(set, reader);
      },
      [&] { cache.emplace(set, set.size() / 2); });
  std::optional<MadeTier> tier;
  fail_everywhere(
      "records by a disk tier",
      [&] {
        Reader reader(set.reader(), set.index(), nullptr, tier->attach(true));
        return twice(set, reader);
      },
      [&] { tier.emplace(set, 12, 6); });
}

TEST(coefficients_are_kept_without_memory) {
  MadeSet set({jpeg(small_picture()), progressive(), jpeg(small_picture(0)), {1, 2, 3, 4}});
  std::optional<MadeCache> cache;
  fail_everywhere(
      "a cache of coefficients",
      [&] {
        const auto file = cache->attach();
        CoefficientTarget target(*file, {});
        Made all;
        for (size_t id = 0; id < set.size(); ++id) {
          std::vector<uint8_t> scratch;
          const Bytes bytes = set.reader().read(id, scratch);
          target.put(id, set.record(id), bytes);
          const Bytes kept = file->find(id);
          CHECK(!kept.empty());
          all.insert(all.end(), kept.begin(), kept.end());
        }
        return all;
      },
      [&] { cache.emplace(set, set.size(), true, 0, true); });
}

TEST(without_memory_a_picture_is_not_kept) {
  fail_in_turn("keeping pictures", [&](int64_t successes, bool for_good) {
    KeptPictures kept(1 << 16);
    {
      const Failing failing(successes, for_good);
      const KeptPictures::Use use = kept.make(8, 8, 1);
      if (use) {
        std::fill_n(use.pixels(), 64, uint8_t{5});
        kept.keep(7, use);
      }
    }
    const KeptPictures::Use found = kept.find(7, 8, 8);
    CHECK(!found || found.pixels()[63] == 5);
    CHECK(has_failed() || static_cast<bool>(found));
  });
}

}  // namespace
}  // namespace fastload::test
