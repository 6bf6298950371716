// The memory for what is read ahead (csrc/core/io/buffer_pool.h).
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "io/buffer_pool.h"

namespace fastload::test {
namespace {

TEST(buffers_come_from_one_arena) {
  std::atomic<int> released{0};
  const auto pool = BufferPool::make((6 << 20) + 5000, [&] { ++released; });
  CHECK_EQ(pool->budget(), size_t{(6 << 20) + 4096});
  CHECK(pool->acquire(7 << 20) == nullptr);
  std::vector<std::shared_ptr<uint8_t>> held;
  for (int i = 0; i < 6; ++i) held.push_back(pool->acquire((1 << 20) - 100));
  for (const auto& buffer : held) {
    CHECK_EQ(reinterpret_cast<uintptr_t>(buffer.get()) % 4096, 0u);
    std::fill_n(buffer.get(), 1 << 20, uint8_t{7});
  }
  CHECK(pool->acquire(8000) == nullptr);
  CHECK(pool->acquire(1) != nullptr);  // the last page
  CHECK_EQ(released.load(), 1);
  held[1].reset();
  held[3].reset();
  CHECK(pool->acquire(3 << 20) == nullptr);  // not in one piece
  held[2].reset();
  CHECK_EQ(pool->in_use(), size_t{3 << 20});
  held[1] = pool->acquire(3 << 20);
  CHECK(held[1] != nullptr);
  held.clear();
  CHECK_EQ(pool->in_use(), 0u);
  const auto all = pool->acquire(pool->budget());
  CHECK(all != nullptr);
  CHECK_EQ(pool->peak(), pool->budget());
}

TEST(buffers_of_all_sizes_never_overlap) {
  std::mt19937 random(9);
  const auto pool = BufferPool::make(1 << 20, [] {});
  std::vector<std::pair<std::shared_ptr<uint8_t>, size_t>> held;
  for (int i = 0; i < 5000; ++i) {
    const size_t size = 1 + random() % 60000;
    auto buffer = pool->acquire(size);
    if (buffer == nullptr || random() % 3 == 0) {
      if (held.empty()) continue;
      const size_t victim = random() % held.size();
      const uint8_t* const bytes = held[victim].first.get();  // nobody else has written there
      const uint8_t* const end = bytes + held[victim].second;
      CHECK(std::all_of(bytes, end, [&](uint8_t b) { return b == *bytes; }));
      held.erase(held.begin() + static_cast<long>(victim));
      continue;
    }
    std::fill_n(buffer.get(), size, static_cast<uint8_t>(random() >> 8));
    held.emplace_back(std::move(buffer), size);
  }
  size_t sum = 0;
  for (const auto& entry : held) sum += BufferPool::cost(entry.second);
  CHECK_EQ(pool->in_use(), sum);
}

}  // namespace
}  // namespace fastload::test
