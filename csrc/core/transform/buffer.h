// Scratch memory of one thread: aligned for vector loads, grows, never shrinks, contents not kept.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace fastload {

template <typename T>
class Buffer {
 public:
  // Room for `count` elements, uninitialised; pointers from before are void.
  void reserve(size_t count) {
    if (count <= size_) return;
    const size_t bytes = (count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    data_.reset(static_cast<T*>(std::aligned_alloc(kAlign, bytes)));
    size_ = data_ ? count : 0;
    if (!data_) throw std::bad_alloc();
  }
  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }
  // Lets go of the memory if it is more than that many bytes.
  void trim(size_t most) {
    if (size_ * sizeof(T) <= most) return;
    data_.reset();
    size_ = 0;
  }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  static constexpr size_t kAlign = 64;
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace fastload
