// entries.fli: the JPEGs' entry points, by sample id (layout: FORMAT.md; of one image's entries:
// decode/jpeg/entry_points.h). Optional: without it decoding gives the same pixels, more slowly.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shard/index.h"
#include "shard/paged_file.h"

namespace fastload {

// Safe to use from many threads.
class Entries {
 public:
  // Throws as PagedFile, and Error(kFormat) if the file belongs to another index.
  Entries(const std::string& path, const Index& index);
  // The same entry points, for a user of a cache; see PagedFile. damaged() counts for all of them.
  Entries(const Entries& entries, std::shared_ptr<const KeptTables> cache)
      : file_(entries.file_, std::move(cache), Table::kEntries), damaged_(entries.damaged_) {}

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
  [[nodiscard]] uint64_t damaged() const { return damaged_->load(std::memory_order_relaxed); }
  // Checks every page. Throws Error(kChecksum).
  void verify() { file_.verify(); }

 private:
  PagedFile file_;
  const std::shared_ptr<std::atomic<uint64_t>> damaged_;
};

}  // namespace fastload
