#include "collate/slot_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastload {

std::shared_ptr<SlotPool> SlotPool::make(size_t keep) {
  return std::shared_ptr<SlotPool>(new SlotPool(keep));
}

SlotPool::~SlotPool() {
  for (const Buffer& buffer : free_) ::munmap(buffer.data, buffer.size);
}

std::unique_ptr<SlotPool::Lease> SlotPool::lease(size_t size) {
  size = std::max<size_t>(size, 1);
  {
    const std::lock_guard lock(mutex_);
    auto fits = free_.end();  // the least of those that do: larger ones are for larger batches
    for (auto buffer = free_.begin(); buffer != free_.end(); ++buffer) {
      const bool less = fits == free_.end() || buffer->size < fits->size;
      if (buffer->size >= size && less) fits = buffer;
    }
    if (fits != free_.end()) {
      auto lease = std::make_unique<Lease>(shared_from_this(), fits->data, fits->size);
      free_.erase(fits);
      return lease;
    }
  }
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorKind::kMemory, "No memory for a batch of " + std::to_string(size) +
                                        " bytes: " + std::strerror(errno) +
                                        ". Lower batch_size or prefetch_factor.");
  }
  ::madvise(data, size, MADV_HUGEPAGE);
  try {
    return std::make_unique<Lease>(shared_from_this(), static_cast<uint8_t*>(data), size);
  } catch (...) {
    ::munmap(data, size);
    throw;
  }
}

void SlotPool::give_back(uint8_t* data, size_t size) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (free_.size() < keep_) {
      free_.push_back({data, size});
      return;
    }
    // Of batches that differ in size the largest fit all others: were they the ones to go, each
    // large batch would be fresh memory again.
    const auto smallest = std::min_element(
        free_.begin(), free_.end(),
        [](const Buffer& one, const Buffer& other) { return one.size < other.size; });
    if (smallest != free_.end() && smallest->size < size) {
      std::swap(smallest->data, data);
      std::swap(smallest->size, size);
    }
  } catch (const std::bad_alloc&) {
    // It goes back to the system, which has use for it.
  }
  ::munmap(data, size);
}

}  // namespace fastload
