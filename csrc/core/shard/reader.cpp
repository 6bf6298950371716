#include "shard/reader.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/error.h"
#include "io/guarded_range.h"

namespace fastload {
namespace {

// Where one answer in 40 is damaged, one record in two million is so each time.
constexpr int kMostAsked = 4;

std::shared_ptr<std::atomic<uint64_t>[]> bits(uint64_t count) {
  return std::make_unique<std::atomic<uint64_t>[]>(count / 64 + 1);
}

// Whether a cache or tier is of the index's dataset.
void check_same(const auto& kept, const RecordTable& index) {
  if (kept.size() == index.size() && kept.index_digest() == index.digest()) return;
  throw Error(ErrorKind::kValue, kept.path() + " is a cache of " + std::to_string(kept.size()) +
                                     " records of another " + "dataset than " + index.path() +
                                     " (" + std::to_string(index.size()) + " records).");
}

}  // namespace

Reader::Reader(RecordTable& index, std::vector<ShardFile> shards, OpenSource open)
    : index_(index), shards_(std::make_shared<Shards>()), checked_(bits(index.size())) {
  shards_->files = std::move(shards);
  shards_->open_source = std::move(open);
  shards_->open.reserve(shards_->files.size());
  for (size_t i = 0; i < shards_->files.size(); ++i) {
    shards_->open.push_back(std::make_unique<Open>());
  }
}

Reader::Reader(const Reader& reader, RecordTable& table)
    : index_(table), shards_(reader.shards_), checked_(bits(table.size())) {}

Reader::Reader(const Reader& reader, RecordTable& index, std::shared_ptr<KeptRecords> cache)
    : Reader(reader, index, std::move(cache), nullptr) {}

Reader::Reader(const Reader& reader, RecordTable& index, std::shared_ptr<KeptRecords> cache,
               std::shared_ptr<RecordTier> tier)
    : index_(index),
      shown_(reader.shown_),
      shards_(reader.shards_),
      checked_(reader.checked_),
      cache_(std::move(cache)),
      kept_checked_(cache_ == nullptr ? nullptr : bits(index.size())),
      tier_(std::move(tier)) {
  if (cache_ != nullptr) check_same(*cache_, index_);
  if (tier_ != nullptr) check_same(*tier_, index_);
}

void Reader::open_source(uint32_t shard) {
  const ShardFile& expected = shards_->files[shard];
  std::unique_ptr<ByteSource> source = shards_->open_source(expected.path);
  if (source->size() != expected.size) {
    throw Error(ErrorKind::kTruncated, expected.path + " has " + std::to_string(source->size()) +
                                           " bytes, the manifest says " +
                                           std::to_string(expected.size) +
                                           ". Restore the shard, or pack again.");
  }
  Open& open = *shards_->open[shard];
  open.mapping = source->mapping();
  open.source = std::move(source);
}

Reader::Open& Reader::open(uint32_t shard) {
  Open& open = *shards_->open[shard];
  std::call_once(open.once, [&] { open_source(shard); });
  return open;
}

Record Reader::locate(uint64_t id) {
  const Record record = index_.record(id);
  if (record.shard >= shards_->files.size()) {
    throw Error(ErrorKind::kFormat, index_.path() + ": sample " + std::to_string(id) +
                                        " names shard " + std::to_string(record.shard) + " of " +
                                        std::to_string(shards_->files.size()) + ". Pack again.");
  }
  const uint64_t size = shards_->files[record.shard].size;
  if (record.length == 0 || record.offset > size || record.length > size - record.offset) {
    throw Error(ErrorKind::kFormat, index_.path() + ": sample " + std::to_string(id) + " claims " +
                                        std::to_string(record.length) + " bytes at offset " +
                                        std::to_string(record.offset) + " of " +
                                        shards_->files[record.shard].path + " (" +
                                        std::to_string(size) + " bytes). Pack again.");
  }
  return record;
}

bool Reader::is_ready(uint64_t id) const noexcept {
  return cache_ != nullptr && cache_->is_ready(id);
}

bool Reader::wants(uint64_t id) const noexcept { return cache_ != nullptr && cache_->wants(id); }

void Reader::keep(uint64_t id, const Record& record, Bytes bytes) noexcept {
  if (cache_ != nullptr) cache_->store(id, bytes, record.crc32c);
}

void Reader::count_miss() noexcept {
  if (cache_ != nullptr) cache_->count_miss();
}

// The record in the cache; empty: it is not there, or damaged.
Bytes Reader::find(uint64_t id, const Record& record) noexcept {
  if (!is_ready(id)) return {};
  const Bytes bytes = cache_->find(id);
  std::atomic<uint64_t>& word = kept_checked_[id / 64];
  const uint64_t bit = uint64_t{1} << (id % 64);
  const bool checked = (word.load(std::memory_order_relaxed) & bit) != 0;
  // The index says what the record is, not the cache.
  if (bytes.size() != record.length || (!checked && crc32c(bytes) != record.crc32c)) {
    cache_->reject(id);
    return {};
  }
  if (!checked) word.fetch_or(bit, std::memory_order_relaxed);
  cache_->count_hit();
  return bytes;
}

Bytes Reader::read_mapped(uint64_t id, const Record& record, const Open& source,
                          std::vector<uint8_t>& scratch) {
  const Bytes bytes = source.mapping.subspan(record.offset, record.length);
  if (is_lost(bytes)) return read_lost(id, record, scratch);
  try {
    check(id, record, bytes);
  } catch (const Error&) {
    if (is_tail_there(bytes) && !is_lost(bytes)) throw;
    return read_lost(id, record, scratch);  // cut just now: the file says so
  }
  keep(id, record, bytes);
  keep_in_tier(id, bytes);
  count_miss();
  return bytes;
}

// What the mapping has lost the file may have again; else it says in words what it has not.
Bytes Reader::read_lost(uint64_t id, const Record& record, std::vector<uint8_t>& scratch) {
  const ShardFile& expected = shards_->files[record.shard];
  const std::unique_ptr<ByteSource> now = shards_->open[record.shard]->source->open_again();
  if (now->size() != expected.size) {
    throw Error(ErrorKind::kTruncated,
                expected.path + " was changed while it was in use: it has " +
                    std::to_string(now->size()) + " bytes, the manifest says " +
                    std::to_string(expected.size) + ". Restore the shard, or pack again.");
  }
  return request(id, record, *now, scratch);
}

Bytes Reader::request(uint64_t id, const Record& record, ByteSource& source,
                      std::vector<uint8_t>& scratch) {
  try {
    return take(id, record, source, scratch);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kChecksum || !source.is_far()) throw;
  }
  return read_again(id, record, scratch);
}

Bytes Reader::read_again(uint64_t id, const Record& record, std::vector<uint8_t>& scratch) {
  ByteSource& source = *open(record.shard).source;
  for (int asked = 2;; ++asked) {
    try {
      const Bytes bytes = take(id, record, source, scratch);
      source.came_damaged(source.name() + ", the " + std::to_string(record.length) +
                          " bytes of a record at offset " + std::to_string(record.offset));
      return bytes;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kChecksum) throw;
      if (asked < kMostAsked) continue;
      throw Error(ErrorKind::kChecksum, std::string(error.what()) + " They were asked for " +
                                            std::to_string(asked) + " times.");
    }
  }
}

// The bytes of one request, checked and kept.
Bytes Reader::take(uint64_t id, const Record& record, ByteSource& source,
                   std::vector<uint8_t>& scratch) {
  if (scratch.size() < record.length) scratch.resize(record.length);
  source.read(record.offset, record.length, scratch.data(), true);
  const Bytes bytes{scratch.data(), record.length};
  check(id, record, bytes);
  keep(id, record, bytes);
  keep_in_tier(id, bytes);
  count_miss();
  return bytes;
}

std::optional<Reader::InTier> Reader::find_in_tier(uint64_t id, const Record& record) noexcept {
  if (tier_ == nullptr) return {};
  const std::optional<uint64_t> offset = tier_->find(id, record.length);
  if (!offset) return {};
  return InTier{&tier_->source(), *offset};
}

bool Reader::check_in_tier(uint64_t id, const Record& record, uint64_t offset,
                           Bytes bytes) noexcept {
  if (bytes.size() == record.length && crc32c(bytes) == record.crc32c) {
    tier_->count_hit(record.length);
    return true;
  }
  tier_->reject(id, offset);
  return false;
}

void Reader::keep_in_tier(uint64_t id, Bytes bytes) noexcept {
  if (tier_ == nullptr) return;
  tier_->count_miss(static_cast<uint32_t>(bytes.size()));
  // What has a place in memory needs no second one.
  if (cache_ == nullptr || !cache_->has_room(id)) tier_->store(id, bytes);
}

// The record in the tier; empty: it is not there, or damaged.
Bytes Reader::read_tier(uint64_t id, const Record& record, std::vector<uint8_t>& scratch) {
  const std::optional<InTier> found = find_in_tier(id, record);
  if (!found) return {};
  if (scratch.size() < record.length) scratch.resize(record.length);
  Bytes bytes;
  try {
    bytes = {found->source->read(found->offset, record.length, scratch.data(), true),
             record.length};
  } catch (const Error&) {
    // As if it were not the record.
  }
  if (!check_in_tier(id, record, found->offset, bytes)) return {};
  keep(id, record, bytes);
  return bytes;
}

Bytes Reader::read(uint64_t id, std::vector<uint8_t>& scratch) {
  const Record record = locate(id);
  if (const Bytes bytes = find(id, record); !bytes.empty()) return bytes;
  if (const Bytes bytes = read_tier(id, record, scratch); !bytes.empty()) return bytes;
  const Open& shard = open(record.shard);
  return shard.mapping.empty() ? request(id, record, *shard.source, scratch)
                               : read_mapped(id, record, shard, scratch);
}

bool Reader::is_there(uint64_t id, Bytes bytes, const std::vector<uint8_t>& scratch) {
  if (bytes.data() == scratch.data()) return true;
  if (cache_ != nullptr && cache_->has(bytes)) return cache_->is_there(bytes);
  if (is_tail_there(bytes)) return !is_lost(bytes);
  // It may end with a zero. A file of that size was not cut; one that was replaced may have
  // another.
  const Record record = locate(id);
  if (!open(record.shard).source->is_whole() && crc32c(bytes) != record.crc32c) mark_lost(bytes);
  return !is_lost(bytes);
}

Bytes Reader::read_cold(uint64_t id, std::vector<uint8_t>& scratch) {
  const Record record = locate(id);
  if (const Bytes bytes = find(id, record); !bytes.empty()) return bytes;
  if (const Bytes bytes = read_tier(id, record, scratch); !bytes.empty()) return bytes;
  const Open& shard = open(record.shard);
  return shard.source->can_read() ? request(id, record, *shard.source, scratch)
                                  : read_mapped(id, record, shard, scratch);
}

ByteSource* Reader::source(uint32_t shard) noexcept {
  try {
    ByteSource& source = *open(shard).source;
    return source.can_read() ? &source : nullptr;
  } catch (const std::exception&) {
    return nullptr;  // tried again for the next record
  }
}

bool Reader::is_resident(const Record& record) {
  return open(record.shard).source->is_resident(record.offset, record.length);
}

void Reader::check(uint64_t id, const Record& record, Bytes bytes) {
  std::atomic<uint64_t>& word = checked_[id / 64];
  const uint64_t bit = uint64_t{1} << (id % 64);
  const bool changed = shards_->open[record.shard]->source->is_changed();
  if (!changed && (word.load(std::memory_order_relaxed) & bit) != 0) return;
  const uint32_t found = crc32c(bytes);
  if (found != record.crc32c) {
    throw Error(ErrorKind::kChecksum,
                shards_->files[record.shard].path + ": the " + std::to_string(record.length) +
                    " bytes at offset " + std::to_string(record.offset) + " have CRC-32C " +
                    std::to_string(found) + ", packed was " + std::to_string(record.crc32c) +
                    ". Restore the shard from a copy.");
  }
  word.fetch_or(bit, std::memory_order_relaxed);
}

std::string Reader::shard_path(uint64_t id) const {
  try {
    const uint32_t shard = index_.record(id).shard;
    return shard < shards_->files.size() ? shards_->files[shard].path : "?";
  } catch (const Error&) {
    return "?";
  }
}

}  // namespace fastload
