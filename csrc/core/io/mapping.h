// A read-only memory map of a whole file.
#pragma once

#include <string>

#include "base/bytes.h"
#include "io/guarded_range.h"

namespace fastload {

// Owns the mapping; move-only. Pages are read by the kernel when touched. Bytes that the file loses
// while it is mapped become zeros, and is_lost() (guarded_range.h) says so.
class Mapping {
 public:
  Mapping() = default;
  // Throws Error(kIo) with path and reason. An empty file maps to empty bytes.
  explicit Mapping(const std::string& path);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] Bytes bytes() const { return {data_, size_}; }
  // Tells the kernel that reads will be scattered: no read-around, which may take megabytes.
  void advise_random() const;
  // Tells the kernel that bytes [offset, offset + length) will be read soon: one request, where
  // touching them after advise_random() would be one for each 4 KiB.
  void will_need(size_t offset, size_t length) const;
  // Whether bytes [offset, offset + length) are in memory, as far as the kernel tells: of a file
  // that this user may neither write nor owns it always says yes.
  [[nodiscard]] bool is_resident(size_t offset, size_t length) const;
  // Whether that answer is to be believed.
  [[nodiscard]] bool tells_residency() const { return tells_residency_; }
  // Whether bytes of it were lost.
  [[nodiscard]] bool is_damaged() const noexcept { return guard_.is_damaged(); }

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  GuardedRange guard_;
  bool tells_residency_ = false;
};

}  // namespace fastload
