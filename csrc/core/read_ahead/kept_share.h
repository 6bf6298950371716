// Which records of a set larger than the page cache stay there once they were read: always the same
// share of them.
#pragma once

#include <cstdint>

namespace fastload {

// Whether a record belongs to that share of its set, in [0, 1]. Regions of a shard (4 MiB) belong
// to it or not, as a hash says, so whoever asks gets the same answer, and neighbours mostly one.
bool is_kept(uint32_t shard, uint64_t offset, double share) noexcept;

}  // namespace fastload
