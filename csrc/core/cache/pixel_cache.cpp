#include "cache/pixel_cache.h"

#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"

namespace fastload {

PixelCache::PixelCache(CacheFile& file, const std::string& tier, uint64_t records) : file_(file) {
  const CacheHeader& header = file.header();
  const std::string found(header.tier, ::strnlen(header.tier, sizeof(header.tier)));
  if (found != tier || file.size() != records) {
    throw Error(ErrorKind::kValue, file.path() + " must be of the tier " + tier + " with " +
                                       std::to_string(records) + " records. Found: " + found +
                                       " with " + std::to_string(file.size()) + ".");
  }
  checked_ = std::make_unique<std::atomic<uint64_t>[]>(records / 64 + 1);
}

Bytes PixelCache::find(uint64_t id, uint32_t width, uint32_t height) noexcept {
  const CacheFile::Found found = file_.look(id);
  if (found.bytes.empty()) {
    file_.count_miss();
    return {};
  }
  std::atomic<uint64_t>& word = checked_[id / 64];
  const uint64_t bit = uint64_t{1} << (id % 64);
  const bool fits = found.width == width && found.height == height &&
                    found.bytes.size() == uint64_t{width} * height * 3;
  const bool known = (word.load(std::memory_order_relaxed) & bit) != 0;
  if (!fits || (!known && crc32c(found.bytes) != found.crc32c)) {
    file_.reject(id);
    file_.count_miss();
    return {};
  }
  if (!known) word.fetch_or(bit, std::memory_order_relaxed);
  file_.count_hit();
  return found.bytes;
}

bool PixelCache::wants(uint64_t id, uint32_t width, uint32_t height) const noexcept {
  if (!file_.is_writable() || file_.is_ready(id)) return false;
  const CacheFile::Place place = file_.place(id);
  return place.length > 0 && place.width == width && place.height == height &&
         place.length == uint64_t{width} * height * 3;
}

void PixelCache::store(uint64_t id, Bytes pixels) noexcept {
  file_.store(id, pixels, crc32c(pixels));
}

}  // namespace fastload
