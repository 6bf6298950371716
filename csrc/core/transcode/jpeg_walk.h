// Walks the marker segments of a JPEG from scan to scan (ITU-T T.81, Annex B), and keeps what the
// entropy coding of each needs.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "decode/jpeg/parser.h"

namespace fastload {

// What the segments up to a scan say about it.
struct JpegScanHead {
  int component_count = 0;
  std::array<int, 3> component{};  // index in the frame
  std::array<int, 3> dc_table{};
  std::array<int, 3> ac_table{};
  int first = 0;  // coefficients first..last
  int last = 63;
  int high = 0;  // successive approximation: bit positions
  int low = 0;
};

class JpegWalk {
 public:
  // Of a file whose frame `header` is (parse_jpeg_frame()). Both are borrowed.
  JpegWalk(Bytes bytes, const JpegHeader& header) : bytes_(bytes), header_(header) {}

  // Moves behind the next SOS segment; false: behind the end marker instead. Throws Error(kDecode)
  // for anything unusual on the way: garbage between segments, a frame header behind the first
  // scan, quantisation tables there, a scan that the frame's kind cannot have.
  bool next_scan();
  // The place in the bytes.
  [[nodiscard]] size_t position() const { return at_; }
  void move_to(size_t position) { at_ = position; }

  [[nodiscard]] const JpegScanHead& scan() const { return scan_; }
  [[nodiscard]] const HuffmanSpec& dc(int table) const { return dc_[static_cast<size_t>(table)]; }
  [[nodiscard]] const HuffmanSpec& ac(int table) const { return ac_[static_cast<size_t>(table)]; }
  [[nodiscard]] int restart_interval() const { return restart_interval_; }

 private:
  Bytes segment();
  void read_huffman(Bytes body);
  void read_scan(Bytes body);

  Bytes bytes_;
  const JpegHeader& header_;
  size_t at_ = 2;  // behind SOI
  int scans_ = 0;
  JpegScanHead scan_;
  std::array<HuffmanSpec, 4> dc_{}, ac_{};
  int restart_interval_ = 0;
};

// Where the entropy-coded data that begins at `begin` ends: at the first marker that is no restart
// marker, or at the end of the bytes.
size_t end_of_scan(Bytes bytes, size_t begin);

}  // namespace fastload
