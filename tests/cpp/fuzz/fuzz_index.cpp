// index.fli, entries.fli and the shard reader over arbitrary bytes, with checksums put right so
// that something gets past them. Whatever is returned must be the file's bytes where this file's
// own, plain reading of the layout (FORMAT.md) finds them.
//
// Input: 8 control bytes (see Fix; 2 bytes length of the index; 2 bytes a sample id), the index,
// the entries.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/crc32c.h"
#include "input.h"
#include "shard/entries.h"
#include "shard/index.h"
#include "shard/reader.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Buffer = std::vector<uint8_t>;

enum Fix : uint8_t {
  kFixStart = 1,    // magic, version, sizes of header and file
  kFixPages = 2,    // the pages' CRCs
  kFixCrcs = 4,     // the CRCs of page table and header
  kFixRecords = 8,  // the records' CRCs of shard bytes
  kFixDigest = 16,  // entries.fli names its index
};

constexpr size_t kControl = 8;
constexpr size_t kShardBytes = 256;

// A file without a disk. Its mapping's page goes on in zeros, which AddressSanitizer does not
// guard: hence the comparison with a plain reading.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) { FUZZ_CHECK(descriptor_ >= 0); }
  void set(Bytes bytes) const {
    FUZZ_CHECK(ftruncate(descriptor_, 0) == 0);
    FUZZ_CHECK(pwrite(descriptor_, bytes.data(), bytes.size(), 0) ==
               static_cast<ssize_t>(bytes.size()));
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

PagedHeader header_of(const Buffer& file) {
  PagedHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  return header;
}

bool has(const Buffer& file, uint64_t begin, uint64_t length) {
  return begin <= file.size() && length <= file.size() - begin;
}

void put32(Buffer& file, uint64_t at, uint32_t value) {
  if (has(file, at, 4)) std::memcpy(file.data() + at, &value, 4);
}

void fix_pages(Buffer& file, const PagedHeader& h) {
  if (h.page_bytes == 0 || !has(file, h.data_offset, h.data_size)) return;
  const uint64_t pages = h.data_size / h.page_bytes + (h.data_size % h.page_bytes != 0);
  for (uint64_t page = 0; page < pages; ++page) {
    const uint64_t begin = page * h.page_bytes;
    const uint64_t length = std::min(h.page_bytes, h.data_size - begin);
    if (!has(file, h.pages_offset, page * 4 + 4)) return;
    put32(file, h.pages_offset + page * 4,
          crc32c(Bytes(file).subspan(h.data_offset + begin, length)));
  }
}

void fix(Buffer& file, const char* magic, uint8_t fixes) {
  if (file.size() < sizeof(PagedHeader)) return;
  PagedHeader h = header_of(file);
  if ((fixes & kFixStart) != 0) {
    std::memcpy(h.magic, magic, sizeof h.magic);
    h.major = 1;
    h.header_bytes = sizeof h;
    h.file_size = file.size();
    std::memcpy(file.data(), &h, sizeof h);
  }
  if ((fixes & kFixPages) != 0) fix_pages(file, h);
  if ((fixes & kFixCrcs) == 0) return;
  if (h.pages_offset <= file.size()) {
    put32(file, offsetof(PagedHeader, pages_crc), crc32c(Bytes(file).subspan(h.pages_offset)));
  }
  put32(file, offsetof(PagedHeader, header_crc),
        crc32c(Bytes(file).first(offsetof(PagedHeader, header_crc))));
}

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

// False: refused, in a way that a damaged file may be.
template <class Call>
bool accepted(Call call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    FUZZ_CHECK(kind == ErrorKind::kFormat || kind == ErrorKind::kTruncated ||
               kind == ErrorKind::kChecksum);
    return false;
  }
}

void check_bytes(const uint8_t* found, uint64_t size, const Buffer& file, uint64_t at) {
  FUZZ_CHECK(has(file, at, size));
  FUZZ_CHECK(size == 0 || std::memcmp(found, file.data() + at, size) == 0);
}

// A record's variable bytes, by the layout as FORMAT.md states it.
void check_variable(const uint8_t* found, size_t size, const Buffer& file, uint64_t id) {
  const PagedHeader h = header_of(file);
  uint64_t range[2];
  FUZZ_CHECK(has(file, h.table_offset, (id + 2) * 8));
  std::memcpy(range, file.data() + h.table_offset + id * 8, sizeof range);
  FUZZ_CHECK(range[0] <= range[1] && range[1] - range[0] == size);
  FUZZ_CHECK(h.bytes_offset + range[1] <= h.data_offset + h.data_size);
  check_bytes(found, size, file, h.bytes_offset + range[0]);
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
