// What the fuzz targets of table files share: such a file in memory, its checksums put right, and
// the layout as FORMAT.md states it, read plainly.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "input.h"
#include "shard/paged_file.h"

namespace fastload::fuzz {

using Buffer = std::vector<uint8_t>;

// What a target puts right of a file that it was given.
enum Fix : uint8_t {
  kFixStart = 1,  // magic, version, sizes of header and file
  kFixPages = 2,  // the pages' CRCs
  kFixCrcs = 4,   // the CRCs of page table and header
};

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

inline PagedHeader header_of(const Buffer& file) {
  PagedHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  return header;
}

inline bool has(const Buffer& file, uint64_t begin, uint64_t length) {
  return begin <= file.size() && length <= file.size() - begin;
}

inline void put32(Buffer& file, uint64_t at, uint32_t value) {
  if (has(file, at, 4)) std::memcpy(file.data() + at, &value, 4);
}

inline void fix_pages(Buffer& file, const PagedHeader& h) {
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

inline void fix(Buffer& file, const char* magic, uint8_t fixes) {
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

inline void check_bytes(const uint8_t* found, uint64_t size, const Buffer& file, uint64_t at) {
  FUZZ_CHECK(has(file, at, size));
  FUZZ_CHECK(size == 0 || std::memcmp(found, file.data() + at, size) == 0);
}

// A record's variable bytes, by the layout as FORMAT.md states it.
inline void check_variable(const uint8_t* found, size_t size, const Buffer& file, uint64_t id) {
  const PagedHeader h = header_of(file);
  uint64_t range[2];
  FUZZ_CHECK(has(file, h.table_offset, (id + 2) * 8));
  std::memcpy(range, file.data() + h.table_offset + id * 8, sizeof range);
  FUZZ_CHECK(range[0] <= range[1] && range[1] - range[0] == size);
  FUZZ_CHECK(h.bytes_offset + range[1] <= h.data_offset + h.data_size);
  check_bytes(found, size, file, h.bytes_offset + range[0]);
}

}  // namespace fastload::fuzz
