// The decoded tier of the node cache: RGB pixels of whole pictures instead of records.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "cache/cache_file.h"

namespace fastload {

// Safe to use from many threads.
class PixelCache {
 public:
  // `file` must outlive it. `tier` is what its pixels are, as the file's header must say, and
  // `records` how many the dataset has. Throws Error(kValue) where they differ.
  PixelCache(CacheFile& file, const std::string& tier, uint64_t records);

  // The pixels of sample `id`, a view of the mapping; empty if they are not there. On this object's
  // first look their CRC-32C is checked; pixels that are not what was stored, or not width x
  // height, are rejected, and so not there.
  Bytes find(uint64_t id, uint32_t width, uint32_t height) noexcept;
  // Whether bytes are a view of the mapping.
  [[nodiscard]] bool has(Bytes bytes) const noexcept { return file_.has(bytes); }
  // For pixels that find() gave and somebody has used: whether they were what was stored.
  [[nodiscard]] bool is_there(Bytes pixels) noexcept { return file_.is_there(pixels); }
  [[nodiscard]] bool is_ready(uint64_t id) const noexcept { return file_.is_ready(id); }
  // Whether pixels of that size would be stored.
  [[nodiscard]] bool wants(uint64_t id, uint32_t width, uint32_t height) const noexcept;
  void store(uint64_t id, Bytes pixels) noexcept;

 private:
  CacheFile& file_;
  std::unique_ptr<std::atomic<uint64_t>[]> checked_;  // one bit a record
};

}  // namespace fastload
