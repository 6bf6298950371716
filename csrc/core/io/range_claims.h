// Numbers that processes divide among themselves: who has claimed a range has it alone, until it
// gives it back or dies.
#pragma once

#include <cstdint>
#include <string>

namespace fastload {

// Locks bytes [begin, end) of an open file against all other open file descriptions, or unlocks
// them. Never waits; false if somebody else has a part of them. Where the file system knows no such
// locks, everybody gets everything.
bool lock_range(int descriptor, uint64_t begin, uint64_t end) noexcept;
void unlock_range(int descriptor, uint64_t begin, uint64_t end) noexcept;

// Write locks on byte ranges of a file, which need not have those bytes: open file description
// locks, which belong to this object, not to the process (fcntl(2), F_OFD_SETLK), and which the
// kernel drops with the last descriptor, so a killed owner leaves nothing behind. Claims of one
// object do not exclude each other. Where the file system knows no such locks, everybody gets
// everything.
class RangeClaims {
 public:
  // The file must be there; with an empty path everybody gets everything. Throws Error(kIo).
  explicit RangeClaims(const std::string& path);
  ~RangeClaims();
  RangeClaims(const RangeClaims&) = delete;
  RangeClaims& operator=(const RangeClaims&) = delete;

  // [begin, end), begin < end. False: another object has claimed a part of it.
  bool claim(uint64_t begin, uint64_t end) noexcept;
  void release(uint64_t begin, uint64_t end) noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace fastload
