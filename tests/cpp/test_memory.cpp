// Lack of memory, wherever it comes: operator new fails at the k-th call, for every k, once or from
// then on. Nothing ends the process or waits for ever, close() throws nothing, and what is
// delivered is right or reported. A program of its own, because it replaces operator new.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "cache/filler.h"
#include "check.h"
#include "engine/engine.h"
#include "engine/kept_pictures.h"
#include "io/buffer_pool.h"
#include "made_cache.h"
#include "made_set.h"
#include "plain_job.h"
#include "tiny_dataset.h"

namespace {

constexpr int64_t kNever = -1;
std::atomic<int64_t> left{kNever};  // calls that succeed before one fails
std::atomic<bool> lasting{false};   // all after it fail, too
std::atomic<bool> failed{false};

bool fails() noexcept {
  if (left.load() == kNever) return false;
  const int64_t before = left.fetch_sub(1);
  if (before > 0) return false;
  if (before == 0 || lasting) {
    failed = true;
    if (lasting) left = 0;
    return true;
  }
  left = kNever;
  return false;
}

void* allocate(size_t size, size_t alignment) {
  void* memory = nullptr;
  if (!fails()) {
    const size_t room = std::max<size_t>(size, 1);
    memory = alignment <= alignof(std::max_align_t)
                 ? std::malloc(room)
                 : std::aligned_alloc(alignment, (room + alignment - 1) / alignment * alignment);
  }
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return allocate(size, 1); }
void* operator new[](size_t size) { return allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

// Nothing is in the page cache, so that everything is read ahead.
extern "C" int mincore(void*, size_t length, unsigned char* state) noexcept {
  std::fill_n(state, (length + 4095) / 4096, 0);
  return 0;
}

namespace fastload::test {
namespace {

constexpr size_t kBatches = 3, kBatch = 4;

// Memory fails in here.
struct Failing {
  Failing(int64_t successes, bool for_good) {
    failed = false;
    lasting = for_good;
    left = successes;
  }
  ~Failing() { left = kNever; }
};

struct Slots {
  std::vector<uint8_t> images = std::vector<uint8_t>(kBatches * kBatch * kTinyBytes, 77);
  std::vector<int64_t> labels = std::vector<int64_t>(kBatches * kBatch, 77);
};

// How often each batch was delivered, and whether a fault says that memory was lacking.
struct Delivery {
  bool whole = false;
  bool starved = false;
};

void run_engine(Reader* reader, Slots& slots, std::vector<Delivery>& deliveries) {
  const EnginePointer engine = make_engine(Sources({{reader, nullptr, {}, 0}}), plain_plan(2),
                                           {2, 0, {}}, nullptr, {1 << 20, 1});
  std::vector<Engine::Ticket> tickets;
  for (size_t b = 0; b < kBatches; ++b) {
    BatchRequest request =
        plain_request(engine->plan(),
                      std::span(slots.images).subspan(b * kBatch * kTinyBytes, kBatch * kTinyBytes),
                      std::span(slots.labels).subspan(b * kBatch, kBatch), {});
    for (size_t i = 0; i < kBatch; ++i) request.ids.push_back(static_cast<int64_t>(b * kBatch + i));
    if (b == 1) request.ahead = engine->announce(request.ids);
    tickets.push_back(engine->submit(std::move(request)));
  }
  for (size_t b = 0; b < kBatches; ++b) {
    CHECK(engine->wait(tickets[b], 60));  // else it hangs
    for (const SampleFault& fault : engine->collect(tickets[b])) {
      CHECK(fault.kind == ErrorKind::kMemory);
      deliveries[b].starved = true;
    }
    deliveries[b].whole = true;
  }
  engine->close();
}

void check_delivered(const Slots& slots, const std::vector<Delivery>& deliveries) {
  for (size_t i = 0; i < kBatches * kBatch; ++i) {
    const Delivery& delivery = deliveries[i / kBatch];
    if (!delivery.whole) continue;
    const bool blank = slots.labels[i] == kIgnoreLabel;
    CHECK(!blank || delivery.starved);
    if (!blank) CHECK_EQ(slots.labels[i], static_cast<int64_t>(i));
    for (size_t k = 0; k < kTinyBytes; ++k) {
      CHECK_EQ(slots.images[i * kTinyBytes + k], static_cast<uint8_t>(blank ? 0 : i));
    }
  }
}

TEST(an_engine_without_memory_says_so) {
  const TinyDataset data(kBatches * kBatch);
  size_t refused = 0, starved = 0;
  // Whether a decoding thread or the caller meets the lack is chance: again if need be.
  for (int round = 0; round < 2 || (starved == 0 && round < 100); ++round) {
    const bool for_good = round % 2 != 0;
    for (int64_t successes = 0;; ++successes) {
      Slots slots;
      std::vector<Delivery> deliveries(kBatches);
      {
        const Failing failing(successes, for_good);
        try {
          run_engine(data.reader(), slots, deliveries);
        } catch (const std::bad_alloc&) {
          ++refused;
        } catch (const Error& error) {
          CHECK(error.kind() == ErrorKind::kMemory);
          ++refused;
        }
      }
      check_delivered(slots, deliveries);
      for (const Delivery& delivery : deliveries) starved += delivery.starved ? 1 : 0;
      if (failed) continue;
      for (const Delivery& delivery : deliveries) CHECK(delivery.whole && !delivery.starved);
      break;  // that was more than it takes
    }
  }
  CHECK(refused > 10);  // calls that threw
  CHECK(starved > 0);   // batches whose samples had none
}

TEST(a_filler_without_memory_counts_what_it_could_not_do) {
  MadeSet set(30, 300, 0);
  size_t lacking = 0;
  for (int round = 0; round < 2 || (lacking == 0 && round < 100); ++round) {
    const bool for_good = round % 2 != 0;
    for (int64_t successes = 0;; ++successes) {
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
        continue;
      } catch (const Error& error) {  // no thread could be started
        CHECK(error.kind() == ErrorKind::kIo);
        continue;
      }
      for (size_t i = 0; i < set.size(); ++i) {
        CHECK(!cache->is_ready(i) || set.equals(i, cache->find(i)));
      }
      if (!failed) break;
    }
  }
  CHECK(lacking > 0);
}

TEST(a_cache_without_memory_is_attached_to_or_not) {
  MadeSet set(20, 200, 0);
  const MadeCache made(set, set.size(), true, 2);
  for (const bool for_good : {false, true}) {
    for (int64_t successes = 0;; ++successes) {
      std::shared_ptr<CacheFile> cache;
      try {
        const Failing failing(successes, for_good);
        cache = made.attach();
      } catch (const std::bad_alloc&) {
        continue;
      }
      CHECK_EQ(cache->size(), set.size());
      if (!failed) break;
    }
  }
}

TEST(without_memory_a_picture_is_not_kept) {
  for (const bool for_good : {false, true}) {
    for (int64_t successes = 0;; ++successes) {
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
      if (failed) continue;
      CHECK(static_cast<bool>(found));
      break;
    }
  }
}

TEST(buffers_come_back_without_memory) {
  const auto pool = BufferPool::make(64 << 10, [] {});
  std::vector<std::shared_ptr<uint8_t>> buffers;
  for (int i = 0; i < 16; ++i) buffers.push_back(pool->acquire(4096));
  {
    const Failing failing(0, true);
    for (size_t i = 0; i < buffers.size(); i += 2) buffers[i].reset();  // apart from each other
    for (size_t i = 1; i < buffers.size(); i += 2) buffers[i].reset();
  }
  CHECK_EQ(pool->in_use(), size_t{0});
  CHECK(pool->acquire(64 << 10) != nullptr);  // in one piece again
}

}  // namespace
}  // namespace fastload::test
