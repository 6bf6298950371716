#include "shard/entries.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"

namespace fastload {
namespace {

constexpr size_t kFacts = 8;  // bytes before a record's checksums
constexpr uint64_t kAlign = 64;

uint32_t load32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
         uint32_t{bytes[3]} << 24;
}

}  // namespace

Entries::Entries(const std::string& path, const Index& index)
    : file_(path, "FLENTRY1", 0),
      parts_bytes_(checked_parts()),
      damaged_(std::make_shared<std::atomic<uint64_t>>(0)) {
  if (size() == index.size() && file_.header().index_digest == index.digest()) return;
  throw Error(ErrorKind::kFormat, path + " has the entry points of another dataset than " +
                                      index.path() + ". Delete it, or build it again with " +
                                      "'fastload index --entries'.");
}

// Where the bytes of the parts begin; 0: the file has none.
uint64_t Entries::checked_parts() const {
  const PagedHeader& h = file_.header();
  if (h.minor == 0 || h.parts_offset == 0) return 0;
  const uint64_t end = h.data_offset + h.data_size;
  // num_records is bounded by the file's size, as the first table lies inside it.
  const uint64_t table = (h.num_records + 1) * 8;
  if (h.parts_offset % kAlign != 0 || h.parts_offset < h.bytes_offset || h.parts_offset > end ||
      end - h.parts_offset < (table + kAlign - 1) / kAlign * kAlign) {
    file_.damaged("the table of its parts lies outside the data region");
  }
  if (!std::has_single_bit(h.part_bytes) || h.part_bytes < 4096 || h.part_bytes > (1u << 20)) {
    file_.damaged("a part has " + std::to_string(h.part_bytes) + " bytes");
  }
  return h.parts_offset + (table + kAlign - 1) / kAlign * kAlign;
}

void Entries::check(uint64_t id) const {
  if (id < size()) return;
  throw Error(ErrorKind::kValue, "Sample id must be below " + std::to_string(size()) +
                                     ". Found: " + std::to_string(id) + " (" + file_.path() + ").");
}

Bytes Entries::get(uint64_t id, std::vector<uint8_t>& scratch) {
  check(id);
  return file_.variable(id, scratch);
}

Bytes Entries::find(uint64_t id, std::vector<uint8_t>& scratch) noexcept {
  try {
    return get(id, scratch);
  } catch (const std::exception&) {
    damaged_->fetch_add(1, std::memory_order_relaxed);
    return {};
  }
}

Bytes Entries::get_parts(uint64_t id, std::vector<uint8_t>& scratch) {
  check(id);
  if (parts_bytes_ == 0) return {};
  return file_.variable(file_.header().parts_offset, parts_bytes_, id, scratch);
}

std::optional<RecordParts> Entries::find_parts(uint64_t id, uint32_t length,
                                               std::vector<uint8_t>& scratch) noexcept try {
  const Bytes bytes = get_parts(id, scratch);
  const uint32_t part = part_bytes();
  if (bytes.empty() || bytes.size() != kFacts + (uint64_t{length} + part - 1) / part * 4) return {};
  return RecordParts{load32(bytes.data()), bytes[4], bytes[5], bytes[6], part,
                     bytes.subspan(kFacts)};
} catch (const std::exception&) {
  return {};  // read whole, the record has a checksum in the index
}

bool Entries::are_parts(uint64_t id, uint32_t length, const LoadedBytes& loaded,
                        Bytes bytes) noexcept {
  std::vector<uint8_t> scratch;
  const std::optional<RecordParts> parts = find_parts(id, length, scratch);
  if (!parts || bytes.size() != loaded.size() || loaded.end > length) return false;
  const auto same = [&](size_t begin, size_t end, const uint8_t* data) {
    if (begin % parts->part_bytes != 0 || (end % parts->part_bytes != 0 && end != length)) {
      return false;
    }
    for (size_t at = begin; at < end; at += parts->part_bytes, data += parts->part_bytes) {
      const size_t size = std::min<size_t>(parts->part_bytes, end - at);
      const uint32_t wanted = load32(parts->checksums.data() + at / parts->part_bytes * 4);
      if (crc32c({data, size}) != wanted) return false;
    }
    return true;
  };
  return same(0, loaded.head, bytes.data()) &&
         (loaded.begin == loaded.end ||
          same(loaded.begin, loaded.end, bytes.data() + loaded.head)) &&
         is_there(parts->checksums);
}

void Entries::touch(uint64_t id) noexcept {
  constexpr size_t kPage = 4096;
  try {
    std::vector<uint8_t> scratch;
    const Bytes bytes = get(id, scratch);
    for (size_t i = 0; i < bytes.size(); i += kPage) {
      static_cast<void>(*static_cast<const volatile uint8_t*>(bytes.data() + i));
    }
    if (!bytes.empty()) static_cast<void>(*static_cast<const volatile uint8_t*>(&bytes.back()));
  } catch (const std::exception&) {
    return;  // find() will say so
  }
}

}  // namespace fastload
