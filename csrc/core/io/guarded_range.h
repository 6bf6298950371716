// Mapped files that somebody cuts, or whose disk fails, while they are in use: no SIGBUS.
//
// DESIGN. A read of a page that the file no longer has is a SIGBUS, which ends the process. A
// handler, installed with the first range, looks whether the address lies in a registered range. If
// so, it notes from where on the range is lost, counts the loss, and maps zeros over the rest of
// the range; the read goes on and gets zeros. Who uses mapped bytes asks afterwards whether they
// are lost: while nothing ever was, that is one load of a word that nobody writes. So readers need
// neither locks nor jumps out of the middle of a decoder. Any other SIGBUS is left to the handler
// that was there before, or to the system.
//
// The order in the handler (note, count, map) is what users rely on: who read zeros sees the count
// changed, and who begins after the count changed sees the note.
//
// A handler that the program installs later takes this one's place: Python's faulthandler calls it
// after its report (by raise(), see comes_again()); one of signal.signal() does not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace fastload {

namespace guarded {
extern std::atomic<uint64_t> losses;  // see loss_count()
bool is_lost_slow(const void* begin, size_t size) noexcept;
}  // namespace guarded

// How often memory of any range has been lost in this process. Unchanged from before bytes were
// looked for until after they were used: they were the file's.
inline uint64_t loss_count() noexcept { return guarded::losses.load(std::memory_order_acquire); }

// Whether some of the bytes are zeros in place of what a file has lost.
inline bool is_lost(Bytes bytes) noexcept {
  return loss_count() != 0 && guarded::is_lost_slow(bytes.data(), bytes.size());
}

// Somebody has found that the bytes are not the file's any more: they are lost, and what lies
// behind them in their range. A cut file's last page has zeros behind its end, which no fault tells
// of: see is_tail_there().
void mark_lost(Bytes bytes) noexcept;

// For mapped bytes that have been used. False: their file may have ended within their last page,
// and what is behind that reads as zeros. A cut before that page is a fault here at the latest.
inline bool is_tail_there(Bytes bytes) noexcept {
  return bytes.empty() || *static_cast<const volatile uint8_t*>(&bytes.back()) != 0;
}

// The paths of files of which something was lost, and that are still mapped.
std::vector<std::string> lost_files();

// Guards mapped memory as long as it lives. Move-only. Takes no lock, so a fork may come at any
// time.
class GuardedRange {
 public:
  GuardedRange() = default;
  // `writable`: what is mapped in place of lost pages can be written to, without effect on the
  // file. Throws std::bad_alloc.
  GuardedRange(const void* begin, size_t size, const std::string& path, bool writable = false);
  ~GuardedRange();
  GuardedRange(GuardedRange&& other) noexcept;
  GuardedRange& operator=(GuardedRange&& other) noexcept;
  GuardedRange(const GuardedRange&) = delete;
  GuardedRange& operator=(const GuardedRange&) = delete;

  // Whether anything of it was lost.
  [[nodiscard]] bool is_damaged() const noexcept;

  struct Slot;

 private:
  Slot* slot_ = nullptr;
};

}  // namespace fastload
