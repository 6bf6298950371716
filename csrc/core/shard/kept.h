// What of a dataset may be kept in memory elsewhere than in its files: what the index, the entry
// points and the reader know of a cache. The node's cache (cache/cache_file.h) is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "io/byte_source.h"

namespace fastload {

// The dataset's tables that may be kept.
enum class Table { kIndex = 0, kEntries = 1 };

// Safe to use from many threads.
class KeptTables {
 public:
  virtual ~KeptTables() = default;
  // A copy of the whole file, once it is complete, else nothing: a view that lives as long as this
  // object. Unchecked: users compare it with the file.
  [[nodiscard]] virtual Bytes copy(Table table) const noexcept = 0;
};

// Safe to use from many threads.
class KeptRecords {
 public:
  virtual ~KeptRecords() = default;

  // For messages: where the records are kept.
  [[nodiscard]] virtual const std::string& path() const = 0;
  // The dataset that they are of: how many records it has, its index's digest.
  [[nodiscard]] virtual uint64_t size() const = 0;
  [[nodiscard]] virtual uint32_t index_digest() const = 0;

  // Whether the record is there: reading it waits for no storage.
  [[nodiscard]] virtual bool is_ready(uint64_t id) const noexcept = 0;
  // The record, unchecked; empty: it is not there. A view that lives as long as this object.
  [[nodiscard]] virtual Bytes find(uint64_t id) const noexcept = 0;
  // Whether bytes are a view that find() may have given.
  [[nodiscard]] virtual bool has(Bytes bytes) const noexcept = 0;
  // For bytes of find() that have been used: whether they were what is kept.
  [[nodiscard]] virtual bool is_there(Bytes bytes) noexcept = 0;
  // What find() gave is not the record: as if it were not there, until it is stored again.
  virtual void reject(uint64_t id) noexcept = 0;

  // Whether the record has a place, there or not.
  [[nodiscard]] virtual bool has_room(uint64_t id) const noexcept = 0;
  // Whether the record has a place, and is not there yet.
  [[nodiscard]] virtual bool wants(uint64_t id) const noexcept = 0;
  // Puts a checked record into its place, if it is wanted.
  virtual void store(uint64_t id, Bytes bytes, uint32_t crc32c) noexcept = 0;

  // A record was read, from here or from elsewhere.
  virtual void count_hit() noexcept = 0;
  virtual void count_miss() noexcept = 0;
};

// Where records are kept below memory, to be read from like a shard. What it has may be another
// record's bytes at any time, so all that is read from it is checked. Safe to use from many
// threads.
class RecordTier {
 public:
  virtual ~RecordTier() = default;

  // As KeptRecords'.
  [[nodiscard]] virtual const std::string& path() const = 0;
  [[nodiscard]] virtual uint64_t size() const = 0;
  [[nodiscard]] virtual uint32_t index_digest() const = 0;

  [[nodiscard]] virtual ByteSource& source() noexcept = 0;
  // Where in source() the record of so many bytes may be; nothing: it is not there.
  [[nodiscard]] virtual std::optional<uint64_t> find(uint64_t id,
                                                     uint32_t length) const noexcept = 0;
  // What was read at find() is not the record.
  virtual void reject(uint64_t id, uint64_t offset) noexcept = 0;
  // A checked record that was read from storage: puts it there, if it is worth it.
  virtual void store(uint64_t id, Bytes bytes) noexcept = 0;

  // A record of so many bytes was read, from here or from storage.
  virtual void count_hit(uint32_t length) noexcept = 0;
  virtual void count_miss(uint32_t length) noexcept = 0;
};

}  // namespace fastload
