#include "shard/reader.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/error.h"

namespace fastload {

Reader::Reader(Index& index, std::vector<ShardFile> shards)
    : index_(index), shards_(std::move(shards)) {
  open_.reserve(shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) open_.push_back(std::make_unique<Open>());
  checked_ = std::make_unique<std::atomic<uint64_t>[]>(index_.size() / 64 + 1);
}

void Reader::open_file(uint32_t shard) {
  const ShardFile& expected = shards_[shard];
  Open& open = *open_[shard];
  File file(expected.path);
  const uint64_t size = file.size();
  if (size != expected.size) {
    throw Error(ErrorKind::kTruncated,
                expected.path + " has " + std::to_string(size) + " bytes, the manifest says " +
                    std::to_string(expected.size) + ". Restore the shard, or pack again.");
  }
  if (file.is_remote()) {
    open.file = std::move(file);
  } else {
    open.mapping = Mapping(expected.path);
    open.mapped = true;
    if (open.mapping.bytes().size() != expected.size) {
      throw Error(ErrorKind::kTruncated, expected.path + " changed its size while it was opened.");
    }
  }
}

Reader::Open& Reader::open(uint32_t shard) {
  Open& open = *open_[shard];
  std::call_once(open.once, [&] { open_file(shard); });
  return open;
}

Bytes Reader::read(uint64_t id, std::vector<uint8_t>& scratch) {
  const Record& record = index_.record(id);
  if (record.shard >= shards_.size()) {
    throw Error(ErrorKind::kFormat, index_.path() + ": sample " + std::to_string(id) +
                                        " names shard " + std::to_string(record.shard) + " of " +
                                        std::to_string(shards_.size()) + ". Pack again.");
  }
  const uint64_t size = shards_[record.shard].size;
  if (record.length == 0 || record.offset > size || record.length > size - record.offset) {
    throw Error(ErrorKind::kFormat, index_.path() + ": sample " + std::to_string(id) + " claims " +
                                        std::to_string(record.length) + " bytes at offset " +
                                        std::to_string(record.offset) + " of " +
                                        shards_[record.shard].path + " (" + std::to_string(size) +
                                        " bytes). Pack again.");
  }
  const Open& source = open(record.shard);
  Bytes bytes;
  if (source.mapped) {
    bytes = source.mapping.bytes().subspan(record.offset, record.length);
  } else {
    if (scratch.size() < record.length) scratch.resize(record.length);
    source.file.read(record.offset, scratch.data(), record.length);
    bytes = {scratch.data(), record.length};
  }
  check(id, record, bytes);
  return bytes;
}

void Reader::check(uint64_t id, const Record& record, Bytes bytes) {
  std::atomic<uint64_t>& word = checked_[id / 64];
  const uint64_t bit = uint64_t{1} << (id % 64);
  if ((word.load(std::memory_order_relaxed) & bit) != 0) return;
  const uint32_t found = crc32c(bytes);
  if (found != record.crc32c) {
    throw Error(ErrorKind::kChecksum,
                shards_[record.shard].path + ": the " + std::to_string(record.length) +
                    " bytes at offset " + std::to_string(record.offset) + " have CRC-32C " +
                    std::to_string(found) + ", packed was " + std::to_string(record.crc32c) + ".");
  }
  word.fetch_or(bit, std::memory_order_relaxed);
}

std::string Reader::shard_path(uint64_t id) const {
  try {
    const uint32_t shard = index_.record(id).shard;
    return shard < shards_.size() ? shards_[shard].path : "?";
  } catch (const Error&) {
    return "?";
  }
}

}  // namespace fastload
