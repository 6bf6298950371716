// The one reader for all shard formats: a record is a byte range of a file.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "io/file.h"
#include "io/mapping.h"
#include "shard/index.h"

namespace fastload {

struct ShardFile {
  std::string path;
  uint64_t size = 0;  // bytes, from the manifest
};

// Safe to use from many threads. A shard is opened when its first record is read: local files are
// memory-mapped; files on network file systems are read with pread, because a map of a file that
// somebody truncates there ends in SIGBUS.
class Reader {
 public:
  // `index` must outlive the reader.
  Reader(Index& index, std::vector<ShardFile> shards);

  // The record's bytes: a view of the mapping, or of `scratch`, which must outlive the view. Checks
  // range and, on the record's first read, its CRC-32C. Throws Error(kIo, kTruncated, kFormat,
  // kChecksum) naming shard and offset.
  Bytes read(uint64_t id, std::vector<uint8_t>& scratch);

  [[nodiscard]] Index& index() const { return index_; }
  // The shard's path, for messages; "?" when the entry is damaged.
  [[nodiscard]] std::string shard_path(uint64_t id) const;

 private:
  struct Open {
    std::once_flag once;
    File file;        // remote shards
    Mapping mapping;  // local shards
    bool mapped = false;
  };
  Open& open(uint32_t shard);
  void open_file(uint32_t shard);
  void check(uint64_t id, const Record& record, Bytes bytes);

  Index& index_;
  std::vector<ShardFile> shards_;
  std::vector<std::unique_ptr<Open>> open_;
  std::unique_ptr<std::atomic<uint64_t>[]> checked_;  // one bit a record
};

}  // namespace fastload
