// Entry points for the records of a dataset.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shard/reader.h"

namespace fastload {

// Records of at least so many bytes can be read in parts of so many.
constexpr uint32_t kLeastForParts = 512 << 10;
constexpr uint32_t kPartBytes = 16 << 10;

struct PackedEntries {
  std::vector<uint8_t> packed;  // of all records, back to back: entry points, then parts
  std::vector<uint32_t> sizes;  // bytes of each record's, two a record; 0 where it can have none
};

// One entropy decode for each of the samples `ids`, and of large ones what their parts need
// (FORMAT.md). Records that cannot be read throw what Reader::read throws; records that are not
// intact JPEGs of the right kind have no entries.
PackedEntries entries_of(Reader& reader, std::span<const uint64_t> ids, int spacing);

}  // namespace fastload
