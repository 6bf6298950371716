// A JPEG file to its coefficients and its rest.
#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
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

void make_room(JpegParts& parts) {
  for (size_t c = 0; c < 3; ++c) {
    const JpegComponent& component = parts.header.components[c];
    const bool is_there = c < static_cast<size_t>(parts.header.component_count);
    const auto blocks = static_cast<size_t>(parts.header.mcus_per_row) * component.h *
                        static_cast<size_t>(parts.header.mcu_rows) * component.v;
    parts.blocks[c].assign(is_there ? blocks * 64 : 0, 0);
  }
}

// The blocks of a file of one scan that has all components, by the engine's own reader.
class OneScan {
 public:
  explicit OneScan(JpegParts& parts) : parts_(parts) {}

  void read(Bytes file) {
    const JpegHeader& header = parts_.header;
    scan_->open(file, header, {}, simd_level(), header.mcu_rows);
    const int together =
        static_cast<int>(BlockTargets::kMax) / header.blocks_per_mcu;  // MCUs at a time
    for (int row = 0; row < header.mcu_rows; ++row) {
      for (int mcu = 0; mcu < header.mcus_per_row; mcu += together) {
        const int count = std::min(together, header.mcus_per_row - mcu);
        aim(row, mcu, count);
        scan_->decode(row * header.mcus_per_row + mcu, count, *targets_, kZigzagPlaces);
      }
    }
  }

 private:
  void aim(int row, int first, int count) {
    const JpegHeader& header = parts_.header;
    size_t block = 0;
    for (int mcu = first; mcu < first + count; ++mcu) {
      for (int c = 0; c < header.component_count; ++c) {
        const JpegComponent& component = header.components[static_cast<size_t>(c)];
        for (int v = 0; v < component.v; ++v) {
          const auto line = static_cast<size_t>(row * component.v + v) *
                            static_cast<size_t>(header.mcus_per_row * component.h);
          int16_t* at = parts_.blocks[static_cast<size_t>(c)].data() +
                        (line + static_cast<size_t>(mcu * component.h)) * 64;
          for (int h = 0; h < component.h; ++h, at += 64) {
            targets_->set(block++, scan_->tables(c), at);
          }
        }
      }
    }
    targets_->set(block, scan_->tables(0), parts_.blocks[0].data());  // closes the list
  }

  JpegParts& parts_;
  std::unique_ptr<JpegScan> scan_ = std::make_unique<JpegScan>();
  std::unique_ptr<BlockTargets> targets_ = std::make_unique<BlockTargets>();
};

void check_range(const JpegParts& parts) {
  for (const std::vector<int16_t>& blocks : parts.blocks) {
    for (size_t at = 0; at < blocks.size(); at += 64) {
      const int16_t* const block = &blocks[at];
      int16_t least = 0, most = 0;
      for (size_t k = 1; k < 64; ++k) {
        least = std::min(least, block[k]);
        most = std::max(most, block[k]);
      }
      if (block[0] < kLeastDc || block[0] > kMostDc || least < -kMostMagnitude ||
          most > kMostMagnitude) {
        refuse("it has coefficients beyond what records hold");
      }
    }
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
  make_room(parts);
  JpegHeader one;
  parts.is_progressive = parts.header.is_progressive;
  if (scans == 1 && !parts.is_progressive && parse_jpeg(file, limits, one)) {
    parts.header = one;
    OneScan(parts).read(file);
  } else {
    read_coefficients(file, limits, parts);
  }
  check_range(parts);
  parts.rest = pack_rest(frame);
}

}  // namespace fastload
