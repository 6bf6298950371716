// A file of the source folder, read whole although others may be writing to it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace fastload {

class SourceFile {
 public:
  // Opens `name` relative to the folder descriptor. Throws Error(kIo).
  SourceFile(int folder, const std::string& name);
  ~SourceFile();
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;

  // Reads the whole file to the front of `room` and returns its size; a file larger than `room` is
  // not read, only its size returned. One that changes meanwhile is read once more. Throws
  // Error(kIo), Error(kDecode) for an empty file, Error(kLimit) above `max_bytes`.
  uint64_t read_whole(std::span<uint8_t> room, uint64_t max_bytes) const;

 private:
  [[nodiscard]] uint64_t read(std::span<uint8_t> room) const;

  int descriptor_;
};

}  // namespace fastload
