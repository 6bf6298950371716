// The node cache's file, as it lies in memory (little-endian; layout: FORMAT.md, "The node cache").
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastload {

inline constexpr uint64_t kCacheHeaderBytes = 8192;  // CacheHeader, the source folder, CRC-32C
inline constexpr uint64_t kCacheLiveBytes = 4096;    // CacheLive
inline constexpr size_t kMaxStripes = 8;
inline constexpr uint64_t kStripeAlignment = 65536;  // of stripes' offsets: the largest page size
inline constexpr char kCoefficientTier[] = "coefficients";  // CacheHeader::tier
inline constexpr uint64_t kNoRoom = ~uint64_t{0};    // CacheEntry::offset: the record has no place

struct CacheHeader {
  char magic[8];  // "FLCACHE1"
  uint16_t major, minor;
  uint32_t header_bytes;
  uint64_t file_size;
  uint64_t num_records;                   // of the set
  uint64_t table_offset;                  // file offset of num_records CacheEntry
  uint64_t index_offset, index_size;      // room for a copy of index.fli; size 0: none
  uint64_t entries_offset, entries_size;  // the same of entries.fli
  uint64_t data_offset, data_size;        // the records: where they begin, their bytes
  uint64_t room_records;                  // records that have a place
  uint64_t set_bytes;                     // of all records
  uint64_t created;                       // seconds since 1970
  uint32_t index_digest;
  uint32_t source_bytes;  // of the source folder's path, UTF-8, behind these 512 bytes
  char dataset_id[32];
  char tier[32];         // padded with NUL
  uint32_t num_stripes;  // files that hold what lies behind data_offset; 0: this one does
  uint32_t padding;
  uint64_t stripe_offset[kMaxStripes];  // where the bytes of each begin in the whole
  uint64_t limit;                       // bytes that the file was allowed when it was made
  uint8_t reserved[248];
};
static_assert(sizeof(CacheHeader) == 512);

// What changes, on two cache lines.
struct CacheLive {
  uint32_t copied[2];   // 1: the copy of index.fli, of entries.fli is complete
  uint8_t padding[56];  // the counts have a cache line of their own
  uint64_t ready_records, ready_bytes;
  uint64_t reserved;  // bytes from the file's begin that have memory
};

// One sample id's place, and whether the record is there.
struct CacheEntry {
  uint64_t offset;  // in the file
  uint32_t length;
  uint16_t width, height;  // decoded tier: pixels
  uint32_t place_crc;      // CRC-32C of the 16 bytes before and the sample id as u64
  uint32_t crc32c;         // of the record's bytes
  uint32_t state;          // 0: not there, 1: ready
  uint32_t stored;         // tier "coefficients": bytes of what is there; else 0
};
static_assert(sizeof(CacheEntry) == 32);

}  // namespace fastload
