// The disk tier's table, as it lies in its file (little-endian; layout: FORMAT.md, "The disk
// tier").
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastload {

inline constexpr uint64_t kTierHeaderBytes = 16384;  // TierHeader, the source folder, the classes,
                                                     // CRC-32C
inline constexpr uint64_t kTierClassesOffset = 8192;
inline constexpr uint64_t kTierLiveBytes = 4096;  // TierLive
inline constexpr size_t kMostTierClasses = 255;
inline constexpr uint64_t kTierAlignment = 4096;  // of slots
inline constexpr uint64_t kMostTierRecords = (uint64_t{1} << 31) - 3;

struct TierHeader {
  char magic[8];  // "FLTIER01"
  uint16_t major, minor;
  uint32_t header_bytes;
  uint64_t file_size;      // of the table
  uint64_t data_size;      // of the file with the slots
  uint64_t num_records;    // of the set
  uint64_t num_slots;      // of all classes
  uint64_t places_offset;  // num_records u32: the slot of each record + 1, 0: none
  uint64_t slots_offset;   // num_slots u32: see below
  uint64_t set_bytes;      // of all records
  uint64_t limit;          // bytes that it was allowed when it was made
  uint64_t created;        // seconds since 1970
  uint32_t index_digest;
  uint32_t num_classes;
  char dataset_id[32];
  char tier[32];          // padded with NUL
  uint32_t source_bytes;  // of the source folder's path, UTF-8, behind these 512 bytes
  uint8_t reserved[348];
};
static_assert(sizeof(TierHeader) == 512);

// Slots of one size, one behind the other.
struct TierClass {
  uint64_t slot_bytes;   // a multiple of kTierAlignment; classes ascend by it
  uint64_t first_slot;   // of the table's
  uint64_t num_slots;    // at least 1
  uint64_t data_offset;  // of the first one
};
static_assert(sizeof(TierClass) == 32);

// What a slot's word may say besides the sample id + 1 of the record in it.
inline constexpr uint32_t kSlotNew = 0;               // nothing was ever written there
inline constexpr uint32_t kSlotFree = 0x7FFFFFFF;     // what was written there is of no use
inline constexpr uint32_t kSlotWriting = 0x80000000;  // with the id + 1: is being written

// What changes.
struct TierLive {
  uint32_t full;  // 1: the disk has no room: no slot that is new is written to
  uint32_t padding;
  uint64_t held_records, held_bytes;  // of slots
  uint8_t reserved[1000];
  uint64_t next[kMostTierClasses];  // of each class: slots before this one have been handed out
};
static_assert(sizeof(TierLive) <= kTierLiveBytes);

}  // namespace fastload
