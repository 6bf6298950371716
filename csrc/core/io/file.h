// A file opened for reading.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"

namespace fastload {

// Throws Error(kIo), or kMemory for ENOMEM: "<what> <path>: <strerror(errno)>".
[[noreturn]] void throw_system_error(const std::string& what, const std::string& path);

// openat(2), again while signals interrupt it, as they may on network file systems; -1 and errno.
[[nodiscard]] int open_at(int folder, const std::string& path, int flags,
                          unsigned mode = 0) noexcept;
[[nodiscard]] int open_path(const std::string& path, int flags, unsigned mode = 0) noexcept;

// Up to out.size() bytes at `offset`, fewer only where the file ends; -1 and errno.
[[nodiscard]] ssize_t read_up_to(int descriptor, std::span<uint8_t> out, uint64_t offset) noexcept;

// Owns a descriptor, opened O_RDONLY | O_CLOEXEC; move-only. Reading is safe from many threads. A
// file that a server has replaced meanwhile (ESTALE) is opened again, once for each read.
class File {
 public:
  // kDirect: O_DIRECT, past the page cache. Memory must then be aligned to kAlignment, offsets and
  // lengths to direct_alignment().
  enum class Access { kCached, kDirect };
  static constexpr size_t kAlignment = 4096;

  File() = default;
  explicit File(const std::string& path, Access access = Access::kCached);  // Throws Error(kIo).
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] uint64_t size() const;  // bytes, by fstat
  // True on file systems where a map may raise SIGBUS or stall without bound: NFS, SMB, FUSE,
  // Lustre, ...
  [[nodiscard]] bool is_remote() const;
  [[nodiscard]] bool is_in_memory() const;  // tmpfs, ramfs
  // What the kernel says of the file (statx, Linux 6.1), often 512 bytes; else kAlignment. Never
  // more.
  [[nodiscard]] size_t direct_alignment() const;
  // Whether the file was opened again: what was checked before may have been another file.
  [[nodiscard]] bool was_reopened() const { return reopened_.load(std::memory_order_acquire); }
  // Reads exactly `length` bytes at `offset` into `out`. Throws Error(kIo), or Error(kTruncated) at
  // the end.
  void read(uint64_t offset, uint8_t* out, size_t length) const;
  // One pread: up to `length` bytes; 0 at the end. Throws Error(kIo), or Error(kTruncated) if the
  // file has another size when it is opened again.
  size_t read_some(uint64_t offset, uint8_t* out, size_t length) const;

 private:
  void reopen() const;

  std::string path_;
  Access access_ = Access::kCached;
  int descriptor_ = -1;
  uint64_t opened_size_ = 0;
  mutable std::atomic<bool> reopened_{false};
};

}  // namespace fastload
