#include "collate/slot_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

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
    const auto fits = std::find_if(free_.begin(), free_.end(),
                                   [&](const Buffer& buffer) { return buffer.size >= size; });
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
  } catch (const std::bad_alloc&) {
    // It goes back to the system, which has use for it.
  }
  ::munmap(data, size);
}

}  // namespace fastload
