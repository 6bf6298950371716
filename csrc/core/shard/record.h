// A record: a byte range of a shard, with what is known of it before it is read.
#pragma once

#include <cstdint>
#include <string>

namespace fastload {

// One entry of a table of records, as it lies in the file (little-endian).
struct Record {
  uint64_t offset;  // first byte in the shard file
  uint32_t length;  // bytes, >= 1
  uint32_t crc32c;  // of those bytes
  int32_t label;    // class index, -1: none
  uint32_t shard;   // index into the manifest's shards
  uint16_t width;   // pixels, 0: not known
  uint16_t height;  // pixels, 0: not known
  uint8_t codec;    // enum Codec
  uint8_t channels;
  uint8_t flags;
  uint8_t reserved;
};
static_assert(sizeof(Record) == 32);

// Records by sample id: the index, or the column of a field that has records. Safe to use from many
// threads.
class RecordTable {
 public:
  virtual ~RecordTable() = default;

  [[nodiscard]] virtual uint64_t size() const = 0;
  // Identifies the table's whole contents.
  [[nodiscard]] virtual uint32_t digest() const = 0;
  [[nodiscard]] virtual const std::string& path() const = 0;
  // Throws Error(kValue) if id >= size(), and where the table is damaged.
  virtual Record record(uint64_t id) = 0;
};

}  // namespace fastload
