// Memory of batches, handed out and taken back.
//
// Fresh memory costs a page fault for every 4 KiB, which for a float32 batch takes longer than
// decoding it; so memory goes round. Giving it back runs no Python: an interrupt that arrived there
// would be lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace fastload {

// Safe to use from many threads.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  // At most `keep` free buffers are kept, the largest; more are given back to the system.
  static std::shared_ptr<SlotPool> make(size_t keep);
  ~SlotPool();
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // Page-aligned bytes, contents undefined. Destroying the lease gives the memory back; it may
  // outlive the pool's other owners. Throws Error(kMemory) when the system has none.
  class Lease {
   public:
    Lease(std::shared_ptr<SlotPool> pool, uint8_t* data, size_t size)
        : pool_(std::move(pool)), data_(data), size_(size) {}
    ~Lease() { pool_->give_back(data_, size_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    [[nodiscard]] uint8_t* data() const { return data_; }

   private:
    std::shared_ptr<SlotPool> pool_;
    uint8_t* data_;
    size_t size_;
  };
  std::unique_ptr<Lease> lease(size_t size);

 private:
  struct Buffer {
    uint8_t* data;
    size_t size;
  };
  explicit SlotPool(size_t keep) : keep_(keep) {}
  void give_back(uint8_t* data, size_t size) noexcept;

  size_t keep_;
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace fastload
