// A file whose bytes may not be in memory: is a range there, and reading it into own memory,
// without leaving in the page cache what will not be needed again soon.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "io/file.h"

namespace fastload {

// Safe to use from many threads.
class ColdFile {
 public:
  explicit ColdFile(const std::string& path);  // Throws Error(kIo).
  ColdFile(File file, std::string path);

  [[nodiscard]] const File& file() const { return cached_; }
  [[nodiscard]] bool was_reopened() const;

  // Whether the page with byte `offset` is in the page cache. Waits for no storage, but Linux
  // begins to read a page that is not there. Nothing where the kernel does not say (preadv2 with
  // RWF_NOWAIT; not on network file systems).
  [[nodiscard]] std::optional<bool> is_resident(uint64_t offset) const;

  // Reads [offset, offset + length) into `memory` and returns where in it the range begins. With
  // `keep` the page cache has the range afterwards; without, it is read past the cache where the
  // file system can, else the cache is told to drop it, and memory is aligned to File::kAlignment
  // and has whole blocks of that. Throws as File::read.
  const uint8_t* read(uint64_t offset, size_t length, uint8_t* memory, bool keep);

 private:
  const File* direct();
  bool read_direct(const File& file, uint64_t begin, size_t length, uint8_t* memory) const;

  std::string path_;
  File cached_;
  std::once_flag direct_once_;
  std::optional<File> direct_file_;
  size_t block_ = File::kAlignment;           // of reads by it
  std::atomic<const File*> direct_{nullptr};  // once opened
  std::atomic<bool> no_direct_{false};
};

}  // namespace fastload
