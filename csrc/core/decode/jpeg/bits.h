// The entropy-coded bytes of a scan without their byte stuffing (T.81, B.1.1.5: FF 00 stands for
// FF).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/kernels.h"

namespace fastload {

struct UnstuffResult {
  const uint8_t* source;  // the first byte not taken
  uint8_t* target;        // behind the last byte written
};

// Copies [source, end) to `target` with FF 00 as FF, up to the first FF that is not followed by 00
// (a marker, or the data's end). Writes at most end - source + 64 bytes (the last 64 are rubbish).
using Unstuff = UnstuffResult (*)(const uint8_t* source, const uint8_t* end, uint8_t* target);
FASTLOAD_KERNEL(UnstuffResult unstuff(const uint8_t* source, const uint8_t* end, uint8_t* target));

// The unstuffed bytes of one segment (up to the next marker), produced as they are needed.
class ScanBytes {
 public:
  // Readable bytes behind size(), whatever they hold: see DecodeRun's bounds.
  static constexpr size_t kSlack = 32 * 1024;

  // A buffer above this size is given back before the next segment.
  static constexpr size_t kKeep = size_t{8} << 20;

  // Begins at file[begin]; `begin` <= file.size(). Keeps the view, not a copy.
  void open(Bytes file, size_t begin, SimdLevel level);
  // Makes size() at least `wanted`, or less where the segment ends before (then ended() is true).
  void require(size_t wanted);
  // Takes exactly the bytes before file[offset] (or the file's end), unless the segment ends
  // before. `offset` must not lie between FF and its 00.
  void take_until(size_t offset);

  [[nodiscard]] const uint8_t* data() const { return buffer_.data(); }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool ended() const { return ended_; }
  // Offset in the file of the first byte not taken: the marker's FF once ended.
  [[nodiscard]] size_t offset() const { return next_; }

 private:
  Bytes file_;
  size_t next_ = 0;
  size_t size_ = 0;
  bool ended_ = true;
  Unstuff unstuff_ = nullptr;
  std::vector<uint8_t> buffer_;
};

}  // namespace fastload
