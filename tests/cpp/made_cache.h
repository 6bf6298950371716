// A cache file made for a test, for the records of a MadeSet, with the obvious layout.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "cache/cache_file.h"
#include "made_set.h"

namespace fastload::test {

class MadeCache {
 public:
  // With room for the samples below `room`, in so many stripes; without a place for a copy of the
  // index if not `copies`; of coefficients, for which places are longer.
  MadeCache(MadeSet& set, size_t room, bool copies = true, uint32_t stripes = 0,
            bool coefficients = false)
      : path_(set.path("cache")) {
    std::ifstream index(set.path("index"), std::ios::binary);
    index_.assign(std::istreambuf_iterator<char>(index), {});
    CacheHeader header{};
    std::memcpy(header.magic, "FLCACHE1", 8);
    header.major = 1;
    header.header_bytes = kCacheHeaderBytes;
    header.num_records = set.size();
    header.table_offset = kCacheHeaderBytes + kCacheLiveBytes;
    header.index_offset = pages(header.table_offset + set.size() * sizeof(CacheEntry));
    header.index_size = copies ? index_.size() : 0;
    header.entries_offset = header.data_offset = pages(header.index_offset + header.index_size);
    if (stripes > 0) header.data_offset = up(header.entries_offset, kStripeAlignment);
    header.num_stripes = stripes;
    if (coefficients) std::memcpy(header.tier, kCoefficientTier, sizeof(kCoefficientTier));
    const uint32_t longer = coefficients ? 1000 : 0;
    header.index_digest = set.reader().index().digest();
    std::vector<CacheEntry> entries(set.size());
    uint64_t end = header.data_offset;
    begins_ = {0};
    for (size_t i = 0; i < set.size(); ++i) {
      if (i < room && begins_.size() <= i * stripes / room + (stripes > 0 ? 1 : 0) &&
          begins_.size() <= stripes) {
        end = up(end, kStripeAlignment);
        header.stripe_offset[begins_.size() - 1] = end;
        begins_.push_back(end);
      }
      entries[i].offset = i < room ? end : kNoRoom;
      entries[i].length = set.record(i).length + longer;
      entries[i].crc32c = set.record(i).crc32c;
      if (i < room) end += entries[i].length;
    }
    seal_places(entries.data(), entries.size(), 0);
    for (size_t i = 0; i < room; ++i) header.data_size += entries[i].length;
    header.file_size = end;
    header.room_records = room;
    std::vector<uint8_t> file(end);
    std::memcpy(file.data(), &header, sizeof(header));
    const uint32_t crc = crc32c({file.data(), kCacheHeaderBytes - 4});
    std::memcpy(file.data() + kCacheHeaderBytes - 4, &crc, sizeof(crc));
    std::memcpy(file.data() + header.table_offset, entries.data(),
                entries.size() * sizeof(CacheEntry));
    for (size_t i = 0; i < begins_.size(); ++i) {
      const uint64_t stop = i + 1 < begins_.size() ? begins_[i + 1] : end;
      std::ofstream(path_of(i), std::ios::binary)
          .write(reinterpret_cast<const char*>(file.data() + begins_[i]),
                 static_cast<std::streamsize>(stop - begins_[i]));
    }
  }

  // A new attachment.
  [[nodiscard]] std::shared_ptr<CacheFile> attach(int access = O_RDWR) const {
    return std::make_shared<CacheFile>(::open(path_.c_str(), access | O_CLOEXEC), path_);
  }
  [[nodiscard]] Bytes index() const { return index_; }
  // Writes over the file's bytes from `offset` on, as no process of ours does.
  void scribble(uint64_t offset, const void* bytes, size_t size) const {
    size_t i = begins_.size() - 1;
    while (begins_[i] > offset) --i;
    std::fstream file(path_of(i), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset - begins_[i]));
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  }

 private:
  static uint64_t up(uint64_t size, uint64_t step) { return (size + step - 1) / step * step; }
  static uint64_t pages(uint64_t size) { return up(size, 4096); }
  // Of the file itself (0) and of its stripes.
  [[nodiscard]] std::string path_of(size_t i) const {
    return i == 0 ? path_ : path_ + "." + std::to_string(i - 1);
  }

  std::string path_;
  std::vector<uint64_t> begins_;  // of the file itself and of its stripes, in the whole
  std::vector<uint8_t> index_;
};

}  // namespace fastload::test
