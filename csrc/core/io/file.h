// A file opened for reading.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace fastload {

// Throws Error(kIo): "<what> <path>: <strerror(errno)>".
[[noreturn]] void throw_system_error(const std::string& what, const std::string& path);

// Owns a descriptor, opened O_RDONLY | O_CLOEXEC; move-only.
class File {
 public:
  File() = default;
  explicit File(const std::string& path);  // Throws Error(kIo).
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
  // Reads exactly `length` bytes at `offset` into `out`. Throws Error(kIo), or Error(kTruncated) at
  // the end.
  void read(uint64_t offset, uint8_t* out, size_t length) const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace fastload
