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
#include "made_set.h"
#include "shard/cache_file.h"

namespace fastload::test {

class MadeCache {
 public:
  // With room for the samples below `room`; without a place for a copy of the index if not
  // `copies`.
  MadeCache(MadeSet& set, size_t room, bool copies = true) : path_(set.path("cache")) {
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
    header.index_digest = set.reader().index().digest();
    std::vector<CacheEntry> entries(set.size());
    uint64_t end = header.data_offset;
    for (size_t i = 0; i < set.size(); ++i) {
      entries[i].offset = i < room ? end : kNoRoom;
      entries[i].length = set.record(i).length;
      entries[i].crc32c = set.record(i).crc32c;
      if (i < room) end += set.record(i).length;
    }
    seal_places(entries.data(), entries.size(), 0);
    header.data_size = end - header.data_offset;
    header.file_size = end;
    header.room_records = room;
    std::vector<uint8_t> file(end);
    std::memcpy(file.data(), &header, sizeof(header));
    const uint32_t crc = crc32c({file.data(), kCacheHeaderBytes - 4});
    std::memcpy(file.data() + kCacheHeaderBytes - 4, &crc, sizeof(crc));
    std::memcpy(file.data() + header.table_offset, entries.data(),
                entries.size() * sizeof(CacheEntry));
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(end));
  }

  // A new attachment.
  [[nodiscard]] std::shared_ptr<CacheFile> attach(int access = O_RDWR) const {
    return std::make_shared<CacheFile>(::open(path_.c_str(), access | O_CLOEXEC), path_);
  }
  [[nodiscard]] Bytes index() const { return index_; }
  // Writes over the file's bytes from `offset` on, as no process of ours does.
  void scribble(uint64_t offset, const void* bytes, size_t size) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  }

 private:
  static uint64_t pages(uint64_t size) { return (size + 4095) / 4096 * 4096; }

  std::string path_;
  std::vector<uint8_t> index_;
};

}  // namespace fastload::test
