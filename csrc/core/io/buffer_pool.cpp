#include "io/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace fastload {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;

// `size` bytes that begin at a huge page's place; nullptr without memory.
uint8_t* map_aligned(size_t size) {
  const size_t room = size + kHugePage;
  void* found = ::mmap(nullptr, room, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<uint8_t*>(found);
  const size_t skipped = -reinterpret_cast<uintptr_t>(begin) % kHugePage;
  if (skipped > 0) ::munmap(begin, skipped);
  ::munmap(begin + skipped + size, room - skipped - size);
  return begin + skipped;
}

}  // namespace

std::shared_ptr<BufferPool> BufferPool::make(size_t budget, std::function<void()> released) {
  return std::shared_ptr<BufferPool>(new BufferPool(budget / kPage * kPage, std::move(released)));
}

BufferPool::~BufferPool() {
  if (arena_ != nullptr) ::munmap(arena_, budget_);
}

size_t BufferPool::cost(size_t size) {
  return (std::max(size, size_t{1}) + kPage - 1) / kPage * kPage;
}

bool BufferPool::map() {
  if (arena_ != nullptr || budget_ == 0) return arena_ != nullptr;
  free_.try_emplace(0, budget_);
  arena_ = map_aligned(budget_);
  if (arena_ == nullptr) return false;
  ::madvise(arena_, budget_, MADV_HUGEPAGE);
  ::madvise(arena_, budget_, MADV_DONTFORK);
  return true;
}

std::shared_ptr<uint8_t> BufferPool::acquire(size_t size) {
  size = cost(size);
  // What giving back takes is had before: a buffer may go when there is no memory.
  Spans made;
  Spans::node_type node = made.extract(made.emplace(0, 0).first);
  uint8_t* data = take(size);
  if (data == nullptr) return nullptr;
  return {data, [pool = shared_from_this(), size, node = std::move(node)](uint8_t* p) mutable {
            pool->give_back(p, size, std::move(node));
          }};
}

uint8_t* BufferPool::take(size_t size) {
  const std::lock_guard lock(mutex_);
  if (!map()) return nullptr;
  const auto place = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& span) { return span.second >= size; });
  if (place == free_.end()) return nullptr;
  const auto [offset, room] = *place;
  Spans::node_type rest = free_.extract(place);
  if (room > size) {
    rest.key() = offset + size;
    rest.mapped() = room - size;
    free_.insert(std::move(rest));
  }
  in_use_ += size;
  peak_ = std::max(peak_, offset + size);
  touch(peak_);
  return arena_ + offset;
}

// Each huge page is touched here, by one thread, for else all that are given a part of it would
// make, and zero, one each, and all but one be in vain.
void BufferPool::touch(size_t end) {
  for (; touched_ < end; touched_ += kHugePage) {
    *const_cast<volatile uint8_t*>(arena_ + touched_) = 0;
  }
}

void BufferPool::give_back(uint8_t* data, size_t size, Spans::node_type node) noexcept {
  {
    const std::lock_guard lock(mutex_);
    in_use_ -= size;
    auto offset = static_cast<size_t>(data - arena_);
    auto next = free_.lower_bound(offset);
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += before->second;
        free_.erase(before);
      }
    }
    if (next != free_.end() && offset + size == next->first) {
      size += next->second;
      free_.erase(next);
    }
    node.key() = offset;
    node.mapped() = size;
    free_.insert(std::move(node));
  }
  released_();
}

size_t BufferPool::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

size_t BufferPool::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace fastload
