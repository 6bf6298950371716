// Where the bytes of a file or an object come from: all that readers, reading ahead, fillers and
// tables know of storage.
//
// DESIGN. Bytes are asked for by ranges, those that are needed together in one call. It returns
// when each of them has its answer: bytes, or an error. So how many requests to storage are in
// flight, which ranges they join or cut, and in which order they end, is the source's affair; and
// so is what it asks for again, and until when: every call ends, and an error is the last word for
// its range, not for its neighbours. A source that waits for storage does so in its caller's
// thread; who wants more in flight asks for more ranges, or from more threads.
//
// Sources of local files have a mapping, too: bytes that are in memory need no call and no copy.
// What those of a mapping are told and asked is nothing to the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"

namespace fastload {

// A range to read, and what became of it.
struct RangeRequest {
  uint64_t offset = 0;
  size_t length = 0;
  uint8_t* memory = nullptr;  // see ByteSource::read()

  const uint8_t* bytes = nullptr;  // where in the memory the range begins; nullptr: it has an error
  std::exception_ptr error;        // an Error
  bool spent = false;              // it was asked for as often and as long as is worth it
};

// Safe to use from many threads.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Its path or address, for messages.
  [[nodiscard]] const std::string& name() const { return name_; }
  // Bytes, when it was opened.
  [[nodiscard]] uint64_t size() const { return size_; }

  // Reads ranges inside the source, and fills in each one's `bytes` or `error`. With `keep` they
  // may come from the system's page cache, and are in it afterwards; memory has `length` bytes.
  // Without, they are read past it where that can be, for who will not need them again soon; memory
  // is aligned to kAlignment and has room(offset, length) bytes.
  virtual void read(std::span<RangeRequest> ranges, bool keep) noexcept = 0;
  // The same for one range. Throws its Error(kIo, kTruncated).
  const uint8_t* read(uint64_t offset, size_t length, uint8_t* memory, bool keep);
  static constexpr size_t kAlignment = 4096;
  static size_t room(uint64_t offset, size_t length);
  // How neighbours are best asked for: the largest gap between two that is read along, the longest
  // range, and how much of such a gap may be records that nobody has asked for.
  struct Joins {
    size_t gap = 32 << 10, longest = 1 << 20, others = 0;
    // Two ranges in place of one are worth it where they save so many bytes; ~0: never.
    size_t split = ~size_t{0};
  };
  [[nodiscard]] virtual Joins joins() const noexcept { return {}; }
  // How many ranges at once it is worth to ask for. May change.
  [[nodiscard]] virtual size_t in_flight() const noexcept { return 48; }
  // Whether all that is asked for shares a line, on which what is needed first waits for the rest.
  [[nodiscard]] virtual bool is_far() const noexcept { return false; }
  // What was read was damaged on its way: `record`, which names it, was right the second time.
  virtual void came_damaged(const std::string& /*record*/) noexcept {}
  // Whether read() has what it needs: false, say, where too many files are open. May change.
  [[nodiscard]] virtual bool can_read() noexcept { return true; }
  // Whether it was opened anew, or has lost bytes: what was checked before may be others by now.
  [[nodiscard]] virtual bool is_changed() const noexcept = 0;
  // What there is by this name now, without a mapping. Throws Error(kIo).
  [[nodiscard]] virtual std::unique_ptr<ByteSource> open_again() const = 0;

  // All bytes, which the system reads when they are touched; is_lost() (io/guarded_range.h) says
  // which are gone. Empty: there is no mapping.
  [[nodiscard]] virtual Bytes mapping() const noexcept { return {}; }
  // Whether touching a range of the mapping waits for no storage. Who asks will read what is
  // missing by read(): the system brings no neighbours of what is touched from now on.
  [[nodiscard]] virtual bool is_resident(uint64_t /*offset*/, size_t /*length*/) { return false; }
  // The mapping will be touched here and there.
  virtual void expect_scattered() noexcept {}
  // A range of the mapping will be touched soon.
  virtual void will_need(uint64_t /*offset*/, size_t /*length*/) noexcept {}
  // Asks storage whether what is mapped has as many bytes as it had.
  [[nodiscard]] virtual bool is_whole() noexcept { return true; }

 protected:
  ByteSource(std::string name, uint64_t size) : name_(std::move(name)), size_(size) {}

 private:
  const std::string name_;
  const uint64_t size_;
};

// Opens a source by its name. Throws Error(kIo).
using OpenSource = std::function<std::unique_ptr<ByteSource>(const std::string& name)>;

// A file: mapped, but for those on network file systems, because a map of a file whose server goes
// away waits without bound, and of one that is cut there ends in SIGBUS. Throws Error(kIo).
std::unique_ptr<ByteSource> open_file(const std::string& path);
// A file without a mapping, wherever it is: for one whose bytes change. Throws Error(kIo).
std::unique_ptr<ByteSource> open_unmapped(const std::string& path);

}  // namespace fastload
