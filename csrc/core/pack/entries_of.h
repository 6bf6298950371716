// Entry points for the records of a dataset.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shard/reader.h"

namespace fastload {

struct PackedEntries {
  std::vector<uint8_t> packed;  // of all records, back to back
  std::vector<uint64_t> sizes;  // bytes of each record's; 0 where it can have none
};

// One entropy decode for each of the samples `ids`. Records that cannot be read throw what
// Reader::read throws; records that are not intact JPEGs of the right kind have no entries.
PackedEntries entries_of(Reader& reader, std::span<const uint64_t> ids, int spacing);

}  // namespace fastload
