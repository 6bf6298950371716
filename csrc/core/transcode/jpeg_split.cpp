// A JPEG file to its coefficients and its rest.
#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/per_thread.h"
#include "decode/jpeg/scan.h"
#include "transcode/jpeg_parts.h"
#include "transcode/jpeg_read.h"
#include "transcode/jpeg_walk.h"
#include "transcode/rest.h"
#include "transcode/segment_writer.h"

namespace fastload {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::kDecode, "cannot become a coefficient record: " + why);
}

const CoefPlaces kZigzagPlaces = [] {
  CoefPlaces places;
  for (int k = 1; k <= 64; ++k) places.set(k, k - 1);
  return places;
}();

// The blocks of a file of one scan that has all components, by the engine's own reader: decoded a
// few segments at a time, so that they are listed while they are in the nearest cache.
class OneScan {
 public:
  void read(Bytes file, const JpegHeader& header, BlockLists& lists) {
    scan_.open(file, header, {}, simd_level(), header.mcu_rows);
    coefs_.fill(0);  // a damaged file may have left some
    aimed_ = 0;
    const size_t together = kMaxRunBlocks / lists.shape(0).block_count;
    const size_t all = lists.segments_per_row();
    for (int row = 0; row < header.mcu_rows; ++row) {
      for (size_t first = 0; first < all; first += together) {
        const size_t end = std::min(first + together, all);
        const int mcu = static_cast<int>(first) * lists.segment_mcus();
        const int mcus =
            std::min(static_cast<int>(end) * lists.segment_mcus(), header.mcus_per_row) - mcu;
        if (mcus != aimed_) aim(header, lists, first, end);
        aimed_ = mcus;
        scan_.decode(row * header.mcus_per_row + mcu, mcus, targets_, kZigzagPlaces);
        lists.add(coefs_.data(), static_cast<size_t>(mcus * header.blocks_per_mcu));
      }
    }
  }

 private:
  // Segments [first, end) of a row: the scan has the order of MCUs, the lists that of segments.
  void aim(const JpegHeader& header, const BlockLists& lists, size_t first, size_t end) {
    size_t target = 0;
    int16_t* base = coefs_.data();
    for (size_t segment = first; segment < end; ++segment) {
      const SegmentShape& shape = lists.shape(segment);
      const size_t mcus = shape.blocks[0] / header.components[0].h;
      for (size_t mcu = 0; mcu < mcus; ++mcu) {
        int16_t* row = base;
        for (size_t r = 0; r < shape.rows; ++r) {
          const size_t columns = header.components[shape.component[r]].h;
          for (size_t i = 0; i < columns; ++i) {
            targets_.set(target++, scan_.tables(shape.component[r]),
                         row + (mcu * columns + i) * 64);
          }
          row += size_t{shape.blocks[r]} * 64;
        }
      }
      base += shape.block_count * 64;
    }
    targets_.set(target, scan_.tables(0), coefs_.data());  // closes the list
  }

  JpegScan scan_;
  BlockTargets targets_;
  int aimed_ = 0;  // MCUs; groups of as many segments look alike
  alignas(64) std::array<int16_t, kMaxRunBlocks * 64> coefs_;
};

void check_range(const BlockLists& blocks) {
  const auto [least, most] = std::minmax_element(blocks.dc(), blocks.dc() + blocks.size());
  if (*least < kLeastDc || *most > kMostDc || blocks.largest() > kMostMagnitude) {
    refuse("it has coefficients beyond what records hold");
  }
}

}  // namespace

void split_jpeg(Bytes file, const DecodeLimits& limits, JpegParts& parts) {
  if (!parse_jpeg_frame(file, limits, parts.header)) {
    refuse("its kind is not one of fastload's own JPEG decoder (8-bit Huffman, gray or YCbCr)");
  }
  JpegWalk walk(file, parts.header);
  std::vector<uint8_t> frame;
  size_t begin = 0;
  int scans = 0;
  while (walk.next_scan()) {
    ++scans;
    frame.insert(frame.end(), file.begin() + static_cast<ptrdiff_t>(begin),
                 file.begin() + static_cast<ptrdiff_t>(walk.position()));
    begin = end_of_scan(file, walk.position());
    walk.move_to(begin);
  }
  frame.insert(frame.end(), file.begin() + static_cast<ptrdiff_t>(begin), file.end());
  JpegHeader one;
  parts.is_progressive = parts.header.is_progressive;
  if (scans == 1 && !parts.is_progressive && parse_jpeg(file, limits, one)) {
    parts.header = one;
    // Kept for the thread's next file, which often has the same Huffman tables.
    auto& scan = per_thread<OneScan>();
    parts.blocks.open(parts.header);
    scan.read(file, parts.header, parts.blocks);
  } else {
    parts.blocks.open(parts.header);
    read_coefficients(file, limits, parts);
  }
  parts.blocks.close();
  check_range(parts.blocks);
  parts.rest = pack_rest(frame);
}

}  // namespace fastload
