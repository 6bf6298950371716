// Coefficient records in the node cache, in place of the JPEGs that they were made of.
//
// DESIGN. A file of its own (tier "coefficients"), so that records of both forms never mix in one
// that a loader takes for the other's. A record there is what its first bytes say: a coefficient
// record, or the set's own record as it is, where that is no JPEG, is to be turned, cannot be kept
// as coefficients, or would not fit. Places are laid out before anybody knows how long the coefficients will be, so
// they are an eighth longer than the JPEG (fastload/cache/tiers.py), and the entry says how
// much is used. The index does not say what the coefficients are, so the entry's own CRC-32C counts,
// of bytes and of the record's CRC-32C, by which another record's bytes are not taken for it. The
// fast form: a cache's bytes are there for one job's speed, and it is 8% longer than the small one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "cache/cache_file.h"
#include "decode/decode.h"
#include "shard/record.h"

namespace fastload {

// Safe to use from many threads.
class CoefficientCache {
 public:
  // `file` must outlive it. Throws Error(kValue) where it is of another tier or another index than
  // this, of so many records and with that digest.
  CoefficientCache(CacheFile& file, uint64_t records, uint32_t index_digest,
                   const Shown& shown = {});

  // What is kept of the record, a view of the mapping; empty if it is not there. On this object's
  // first look its CRC-32C is checked; what is not what was stored is rejected, and so not there.
  Bytes find(uint64_t id, const Record& record) noexcept;
  // Whether bytes are a view of the mapping.
  [[nodiscard]] bool has(Bytes bytes) const noexcept { return file_.has(bytes); }
  // For bytes that find() gave and somebody has used: whether they were what was stored.
  [[nodiscard]] bool is_there(Bytes bytes) noexcept { return file_.is_there(bytes); }
  [[nodiscard]] bool is_ready(uint64_t id) const noexcept { return file_.is_ready(id); }
  [[nodiscard]] bool wants(uint64_t id) const noexcept { return file_.wants(id); }

  // Takes a record in hand, to be put: false if it has been, by this object. Until put() or drop().
  bool take(uint64_t id) noexcept;
  void drop(uint64_t id) noexcept;
  // Makes coefficients of the set's record, whose bytes have been checked, and puts them into its
  // place; or the record itself, see above. Nothing where it is there, or another process has
  // claimed it. Throws std::bad_alloc.
  void put(uint64_t id, const Record& record, Bytes bytes, const DecodeLimits& limits);
  // The same for who has claimed the record by other means.
  void put_claimed(uint64_t id, const Record& record, Bytes bytes, const DecodeLimits& limits);

 private:
  CacheFile& file_;
  const Shown shown_;
  std::unique_ptr<std::atomic<uint64_t>[]> checked_, taken_;  // one bit a record
};

}  // namespace fastload
