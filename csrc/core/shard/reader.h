// The one reader for all shard formats: a record is a byte range of a file.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/shown.h"
#include "io/byte_source.h"
#include "shard/kept.h"
#include "shard/record.h"

namespace fastload {

struct ShardFile {
  std::string path;
  uint64_t size = 0;  // bytes, from the manifest
};

// Safe to use from many threads. A shard is opened when its first record is read, and read from its
// mapping, or where it has none, by requests. Of a mapped file that somebody cuts, bytes that
// read() has returned may become zeros: who has used them asks is_lost() (io/guarded_range.h), and
// reads again, which is an error in words then.
class Reader {
 public:
  // `index` must outlive the reader.
  Reader(RecordTable& index, std::vector<ShardFile> shards, OpenSource open = open_file);
  // A reader of another table's records in the same shards, which are opened once for both.
  Reader(const Reader& reader, RecordTable& table);
  // Another reader of the same shards, which looks for records in the cache first, and puts those
  // there that it reads. `index` is of the same dataset. Throws Error(kValue) if the cache is
  // another's.
  Reader(const Reader& reader, RecordTable& index, std::shared_ptr<KeptRecords> cache);

  // The same with a tier below the cache (nullptr: no cache), or without one (nullptr): what it has
  // is read from there instead of from the shards, and what is read from the shards is put there,
  // unless the cache has a place for it.
  Reader(const Reader& reader, RecordTable& index, std::shared_ptr<KeptRecords> cache,
         std::shared_ptr<RecordTier> tier);

  // The record's bytes: a view of the cache, the mapping, or of `scratch`, which must outlive the
  // view. Checks range and, on the record's first read, its CRC-32C; what is damaged in the cache
  // is read from the shard. Throws Error(kIo, kTruncated, kFormat, kChecksum) naming shard and
  // offset.
  Bytes read(uint64_t id, std::vector<uint8_t>& scratch);
  // For bytes of read() that have been used: whether they were the record's. False: somebody has
  // cut a file meanwhile, and reading again says so, or finds the record elsewhere.
  [[nodiscard]] bool is_there(uint64_t id, Bytes bytes, const std::vector<uint8_t>& scratch);
  // The same by a request, never by the mapping: for what is not in memory, where a page fault for
  // each few KiB is slow.
  Bytes read_cold(uint64_t id, std::vector<uint8_t>& scratch);

  // For reading ahead. The entry of `id`, its shard and range checked. Throws Error(kValue,
  // kFormat, kChecksum).
  Record locate(uint64_t id);
  // As ByteSource's, of the record's bytes. Throws Error(kIo, kTruncated).
  bool is_resident(const Record& record);
  // The shard, to read from it into own memory; nullptr if it cannot be had.
  ByteSource* source(uint32_t shard) noexcept;
  // Checks bytes that were read from source() against the CRC-32C. Throws Error(kChecksum).
  void check(uint64_t id, const Record& record, Bytes bytes);
  // For a record of a source that is far, and whose bytes check() has refused: they may have been
  // damaged on their way, so they are asked for again, some times. Throws as read().
  Bytes read_again(uint64_t id, const Record& record, std::vector<uint8_t>& scratch);
  // Whether the cache has the record: read() waits for no storage.
  [[nodiscard]] bool is_ready(uint64_t id) const noexcept;
  // Whether the cache has a place for the record, and it is not there yet.
  [[nodiscard]] bool wants(uint64_t id) const noexcept;
  // Puts checked bytes into the cache, if it wants them.
  void keep(uint64_t id, const Record& record, Bytes bytes) noexcept;
  // A record that was read from source() is used.
  void count_miss() noexcept;

  // The tier's source, and where in it the record may be; nothing: it is not there.
  struct InTier {
    ByteSource* source;
    uint64_t offset;
  };
  [[nodiscard]] std::optional<InTier> find_in_tier(uint64_t id, const Record& record) noexcept;
  // Whether bytes that were read at find_in_tier() are the record; asked each time. If not, the
  // tier does not have it.
  bool check_in_tier(uint64_t id, const Record& record, uint64_t offset, Bytes bytes) noexcept;
  [[nodiscard]] bool has_tier() const noexcept { return tier_ != nullptr; }
  // Puts checked bytes, which were read from source(), into the tier, if it wants them.
  void keep_in_tier(uint64_t id, Bytes bytes) noexcept;

  [[nodiscard]] RecordTable& index() const { return index_; }
  // How the table's pictures are shown; another reader of the same table takes it over.
  [[nodiscard]] const Shown& shown() const { return shown_; }
  // Before the first record is decoded.
  void show(const Shown& shown) { shown_ = shown; }
  // The shard's path, for messages; "?" when the entry is damaged.
  [[nodiscard]] std::string shard_path(uint64_t id) const;

 private:
  struct Open {
    std::once_flag once;
    std::unique_ptr<ByteSource> source;
    Bytes mapping;  // the source's
  };
  // One bit a record: its CRC-32C was checked.
  using Checked = std::shared_ptr<std::atomic<uint64_t>[]>;
  // What all readers of these shards share.
  struct Shards {
    std::vector<ShardFile> files;
    OpenSource open_source;
    std::vector<std::unique_ptr<Open>> open;
  };
  Bytes find(uint64_t id, const Record& record) noexcept;
  Bytes read_tier(uint64_t id, const Record& record, std::vector<uint8_t>& scratch);
  Bytes read_mapped(uint64_t id, const Record& record, const Open& source,
                    std::vector<uint8_t>& scratch);
  Bytes read_lost(uint64_t id, const Record& record, std::vector<uint8_t>& scratch);
  Bytes request(uint64_t id, const Record& record, ByteSource& source,
                std::vector<uint8_t>& scratch);
  Bytes take(uint64_t id, const Record& record, ByteSource& source, std::vector<uint8_t>& scratch);
  Open& open(uint32_t shard);
  void open_source(uint32_t shard);

  RecordTable& index_;
  Shown shown_;
  const std::shared_ptr<Shards> shards_;
  const Checked checked_;                     // in the shards, by all readers of this table
  const std::shared_ptr<KeptRecords> cache_;  // nullptr: none
  const Checked kept_checked_;                // in the cache
  const std::shared_ptr<RecordTier> tier_;    // nullptr: none
};

}  // namespace fastload
