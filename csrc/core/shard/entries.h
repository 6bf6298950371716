// entries.fli: the JPEGs' entry points, by sample id (layout: FORMAT.md; of one image's entries:
// decode/jpeg/entry_points.h). Optional: without it decoding gives the same pixels, more slowly.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/loaded_bytes.h"
#include "shard/index.h"
#include "shard/paged_file.h"

namespace fastload {

// What is known of a record that may be read in parts: where its scan begins, the size of an MCU in
// pixels, how many components, and the CRC-32C of each part_bytes of it (the last may be shorter).
struct RecordParts {
  uint32_t scan_begin = 0;
  uint8_t mcu_width = 0, mcu_height = 0, components = 0;
  uint32_t part_bytes = 0;
  Bytes checksums;  // u32 each, little-endian
};

// Safe to use from many threads.
class Entries {
 public:
  // Throws as PagedFile, and Error(kFormat) if the file belongs to another index.
  Entries(const std::string& path, const Index& index);
  // The same entry points, for a user of a cache; see PagedFile. damaged() counts for all of them.
  Entries(const Entries& entries, std::shared_ptr<const KeptTables> cache)
      : file_(entries.file_, std::move(cache), Table::kEntries),
        parts_bytes_(entries.parts_bytes_),
        damaged_(entries.damaged_) {}

  [[nodiscard]] uint64_t size() const { return file_.header().num_records; }
  [[nodiscard]] uint32_t spacing() const { return file_.header().spacing; }
  // The packed entries of sample `id` < size(); empty if it has none. A view that lives as long as
  // this object, or of `scratch`. Throws Error(kFormat, kChecksum).
  Bytes get(uint64_t id, std::vector<uint8_t>& scratch);
  // The same, but empty where the file is damaged, which is counted: the picture decodes without.
  Bytes find(uint64_t id, std::vector<uint8_t>& scratch) noexcept;
  // For what get() or find() gave and somebody has used: whether the file still has it.
  [[nodiscard]] bool is_there(Bytes bytes) noexcept { return file_.is_there(bytes); }
  // Brings the entries of `id` into memory; does nothing where the file is damaged.
  void touch(uint64_t id) noexcept;
  // Bytes of a part; 0: the file knows of no parts.
  [[nodiscard]] uint32_t part_bytes() const {
    return parts_bytes_ == 0 ? 0 : file_.header().part_bytes;
  }
  // What is stored of the parts of sample `id` < size(), as get(); empty: it has none.
  Bytes get_parts(uint64_t id, std::vector<uint8_t>& scratch);
  // The same, understood, of a record of so many bytes; nothing where it has none, or the file is
  // damaged. Its view as get()'s.
  std::optional<RecordParts> find_parts(uint64_t id, uint32_t length,
                                        std::vector<uint8_t>& scratch) noexcept;
  // Whether what was loaded of the record of so many bytes has its parts' checksums.
  [[nodiscard]] bool are_parts(uint64_t id, uint32_t length, const LoadedBytes& loaded,
                               Bytes bytes) noexcept;
  [[nodiscard]] uint64_t damaged() const { return damaged_->load(std::memory_order_relaxed); }
  // Checks every page. Throws Error(kChecksum).
  void verify() { file_.verify(); }

 private:
  void check(uint64_t id) const;
  [[nodiscard]] uint64_t checked_parts() const;

  PagedFile file_;
  const uint64_t parts_bytes_;  // file offset of what the parts' table points into; 0: no parts
  const std::shared_ptr<std::atomic<uint64_t>> damaged_;
};

}  // namespace fastload
