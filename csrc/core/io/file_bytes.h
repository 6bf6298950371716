// A source's bytes by their offset, in memory when they are asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "io/byte_source.h"

namespace fastload {

// DESIGN. A source with a mapping is used by that. Any other is read into memory of the same
// layout: all of a small one at once, of a larger one what need() is told. Memory that has been
// filled stays, since callers keep pointers into it. So that this is bounded, too, a large source's
// memory is a temporary local file without a name, which the kernel writes out and drops as it does
// with any page cache. Where there is no room for one, memory is anonymous, the first kInMemory
// bytes that keep() is asked for stay, and the rest is read each time by who needs it: the kernel's
// page cache has it, as long as there is memory for that.
class FileBytes {
 public:
  static constexpr size_t kWhole = 4 << 20;       // up to this size all is read at once
  static constexpr size_t kInMemory = 256 << 20;  // up to this size memory is anonymous

  // Throws Error(kIo, kTruncated).
  explicit FileBytes(std::unique_ptr<ByteSource> source);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  [[nodiscard]] size_t size() const { return size_; }
  // The bytes [offset, offset + length), inside the file, of which need() has been told.
  [[nodiscard]] Bytes at(size_t offset, size_t length) const { return {data_ + offset, length}; }
  // Whether bytes may be brought into memory, for good; asked once for the same ones.
  [[nodiscard]] bool keep(size_t length) noexcept;
  // Brings bytes into memory; of a mapping the kernel is told that they will be wanted. Not for
  // the same bytes by two threads at once. Throws Error(kIo, kTruncated).
  void need(size_t offset, size_t length);
  // Reads bytes that were not to be kept. Throws as need().
  void read(size_t offset, uint8_t* out, size_t length) const {
    source_->read(offset, length, out, true);
  }
  // See ByteSource.
  [[nodiscard]] bool is_changed() const noexcept { return source_->is_changed(); }
  [[nodiscard]] bool mapped() const { return own_ == nullptr; }

 private:
  void reserve();

  const std::unique_ptr<ByteSource> source_;
  const size_t size_;
  const uint8_t* data_ = nullptr;
  uint8_t* own_ = nullptr;  // without a mapping
  bool whole_ = false;      // all of it has been read
  bool bounded_ = false;    // not all of it may be kept
  std::atomic<size_t> kept_{0};
};

}  // namespace fastload
