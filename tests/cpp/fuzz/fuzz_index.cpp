// index.fli, entries.fli and the shard reader over arbitrary bytes, with checksums put right so
// that something gets past them. Whatever is returned must be the file's bytes where this file's
// own, plain reading of the layout (FORMAT.md) finds them.
//
// Input: 8 control bytes (see Fix; 2 bytes length of the index; 2 bytes a sample id), the index,
// the entries.
#include <algorithm>
#include <string>

#include "base/crc32c.h"
#include "input.h"
#include "paged_input.h"
#include "shard/entries.h"
#include "shard/index.h"
#include "shard/reader.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;

enum FixRecords : uint8_t {
  kFixRecords = 8,  // the records' CRCs of shard bytes
  kFixDigest = 16,  // entries.fli names its index
};

constexpr size_t kControl = 8;
constexpr size_t kShardBytes = 256;

const Buffer& shard_bytes() {
  static const Buffer bytes = [] {
    Buffer made(kShardBytes);
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<uint8_t>(i * 7 + 1);
    return made;
  }();
  return bytes;
}

void fix_records(Buffer& file) {
  if (file.size() < sizeof(PagedHeader)) return;
  const PagedHeader h = header_of(file);
  for (uint64_t at = h.data_offset; has(file, at, sizeof(Record)); at += sizeof(Record)) {
    Record record;
    std::memcpy(&record, file.data() + at, sizeof record);
    if (!has(shard_bytes(), record.offset, record.length)) continue;
    record.crc32c = crc32c(Bytes(shard_bytes()).subspan(record.offset, record.length));
    std::memcpy(file.data() + at, &record, sizeof record);
  }
}

void read_index(Index& index, const Buffer& file, uint64_t id) {
  const uint64_t data = header_of(file).data_offset;
  accepted([&] {
    const Record record = index.record(id);
    check_bytes(reinterpret_cast<const uint8_t*>(&record), sizeof record, file,
                data + id * sizeof record);
  });
  accepted([&] {
    const std::string key = index.key(id);
    check_variable(reinterpret_cast<const uint8_t*>(key.data()), key.size(), file, id);
  });
}

void read_all(Index& index, const Buffer& file) {
  accepted([&] {
    std::vector<Record> own;
    const auto records = index.records(own);
    FUZZ_CHECK(records.size() == index.size());
    check_bytes(reinterpret_cast<const uint8_t*>(records.data()), records.size_bytes(), file,
                header_of(file).data_offset);
  });
  accepted([&] { index.verify(); });
}

void read_shard(Index& index, uint64_t id) {
  static const MemoryFile shard;
  static const bool filled = (shard.set(shard_bytes()), true);
  FUZZ_CHECK(filled);
  Reader reader(index, {{shard.path(), kShardBytes}});
  accepted([&] {
    Buffer scratch;
    const Bytes bytes = reader.read(id, scratch);
    const Record record = index.record(id);
    FUZZ_CHECK(bytes.size() == record.length && !bytes.empty());
    check_bytes(bytes.data(), bytes.size(), shard_bytes(), record.offset);
  });
  FUZZ_CHECK(!reader.shard_path(id).empty());
}

// A record of as many bytes as there are checksums for, or about; what is loaded of it has others.
void read_parts(Entries& entries, const Buffer& file, uint64_t id) {
  const uint32_t part = entries.part_bytes();
  FUZZ_CHECK(part == 0 || (part >= 4096 && part <= 1u << 20));
  Buffer scratch, other;
  size_t stored = 0;
  accepted([&] {
    const Bytes bytes = entries.get_parts(id, scratch);
    stored = bytes.size();
    FUZZ_CHECK(part != 0 || stored == 0);
    if (stored != 0) {
      FUZZ_CHECK(std::search(file.begin(), file.end(), bytes.begin(), bytes.end()) != file.end());
    }
  });
  const uint64_t wanted = stored < 8 ? 0 : (stored - 8) / 4 * part;
  const auto length = static_cast<uint32_t>(std::min<uint64_t>(wanted, 8 << 20));
  const auto parts = entries.find_parts(id, length, other);
  if (!parts || parts->checksums.empty()) return;
  FUZZ_CHECK(parts->checksums.size() == uint64_t{length} / part * 4);
  const Buffer loaded(2 * size_t{part}, 0x5A);
  static_cast<void>(entries.are_parts(id, length, {part, length - part, length}, loaded));
  FUZZ_CHECK(!entries.are_parts(id, length, {part, 0, length + part}, loaded));
}

void read_entries(Index& index, const MemoryFile& place, const Buffer& file, uint64_t id) {
  place.set(file);
  accepted([&] {
    Entries entries(place.path(), index);
    FUZZ_CHECK(entries.size() == index.size());
    bool got = false;
    Buffer scratch;
    accepted([&] {
      const Bytes bytes = entries.get(id, scratch);
      check_variable(bytes.data(), bytes.size(), file, id);
      got = true;
    });
    entries.find(id, scratch);
    FUZZ_CHECK(entries.damaged() == (got ? 0 : 1));
    read_parts(entries, file, id);
    accepted([&] { entries.verify(); });
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kControl) return 0;
  static const MemoryFile index_place, entries_place;
  Input in(Bytes(data, size));
  const uint8_t fixes = in.u8();
  const auto index_size = static_cast<size_t>(in.u16());
  const auto wanted = static_cast<uint64_t>(in.u16());
  in.take(kControl - 5);
  const Bytes first = in.take(index_size), second = in.rest();
  Buffer index_file(first.begin(), first.end()), entries_file(second.begin(), second.end());
  if ((fixes & kFixRecords) != 0) fix_records(index_file);
  fix(index_file, "FLINDEX1", fixes);
  index_place.set(index_file);
  accepted([&] {
    Index index(index_place.path());
    if (index.size() == 0) return;
    const uint64_t id = wanted % index.size();
    read_index(index, index_file, id);
    read_index(index, index_file, index.size() - 1);
    read_shard(index, id);
    if ((fixes & kFixDigest) != 0) {
      put32(entries_file, offsetof(PagedHeader, index_digest), index.digest());
    }
    fix(entries_file, "FLENTRY1", fixes);
    read_entries(index, entries_place, entries_file, id);
    read_all(index, index_file);
  });
  return 0;
}
