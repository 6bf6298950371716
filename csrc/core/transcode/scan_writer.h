// Scans of coefficients, Huffman-coded as T.81 says and, where it leaves a choice, as libjpeg does.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transcode/jpeg_parts.h"
#include "transcode/jpeg_walk.h"

namespace fastload {

class ScanWriter {
 public:
  // Keeps the view.
  explicit ScanWriter(const JpegParts& parts) : parts_(parts) {}

  // Appends the entropy-coded data of the scan that `walk` stands behind, restart markers included.
  // Throws Error(kDecode) where a table is missing or lacks a code.
  void write(const JpegWalk& walk, bool pads_with_ones, std::vector<uint8_t>& out);

 private:
  const JpegParts& parts_;
  std::array<std::vector<int16_t>, 3> planes_;  // progressive files' coefficients
};

}  // namespace fastload
