// Memory for what is read ahead, within a budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace fastload {

// DESIGN. One arena of the budget's size, in huge pages where the system has them: its memory is
// contiguous, so a request to storage is one piece instead of one for each 4 KiB, which costs less
// time here and, in a virtual machine, much less in the host. Buffers are cut from the lowest place
// that has room, so the arena's end is touched, and takes memory, only when it is needed.
//
// Safe to use from many threads. A forked child does not have the memory.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // `released` is called, without a lock, whenever a buffer comes back.
  static std::shared_ptr<BufferPool> make(size_t budget, std::function<void()> released);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Page-aligned bytes, contents undefined; the last reference gives them back. They may outlive
  // the pool's other owners. nullptr if the budget has no room for them in one piece, or the system
  // has no memory.
  std::shared_ptr<uint8_t> acquire(size_t size);
  // What a buffer of this size takes of the budget.
  static size_t cost(size_t size);

  [[nodiscard]] size_t budget() const { return budget_; }
  [[nodiscard]] size_t in_use() const;
  [[nodiscard]] size_t peak() const;  // bytes from the arena's begin to the last one ever used

 private:
  BufferPool(size_t budget, std::function<void()> released)
      : budget_(budget), released_(std::move(released)) {}
  using Spans = std::map<size_t, size_t>;  // offset -> bytes
  bool map();
  uint8_t* take(size_t size);
  void touch(size_t end);
  void give_back(uint8_t* data, size_t size, Spans::node_type node) noexcept;

  const size_t budget_;
  const std::function<void()> released_;
  mutable std::mutex mutex_;
  uint8_t* arena_ = nullptr;  // mapped by the first acquire()
  Spans free_;                // neighbours are joined
  size_t in_use_ = 0;
  size_t peak_ = 0;
  size_t touched_ = 0;
};

}  // namespace fastload
