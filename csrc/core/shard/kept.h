// What of a dataset may be kept in memory elsewhere than in its files: what the index, the entry
// points and the reader know of a cache. The node's cache (cache/cache_file.h) is one.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"

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

  // Whether the record has a place, and is not there yet.
  [[nodiscard]] virtual bool wants(uint64_t id) const noexcept = 0;
  // Puts a checked record into its place, if it is wanted.
  virtual void store(uint64_t id, Bytes bytes, uint32_t crc32c) noexcept = 0;

  // A record was read, from here or from elsewhere.
  virtual void count_hit() noexcept = 0;
  virtual void count_miss() noexcept = 0;
};

}  // namespace fastload
