#include "transcode/scan_writer.h"

#include <array>
#include <string>

#include "base/error.h"
#include "transcode/block_writers.h"
#include "transcode/scan_bits.h"

namespace fastload {
namespace {

[[noreturn]] void damaged(const char* what) {
  throw Error(ErrorKind::kDecode, std::string("coefficient record: the JPEG's ") + what);
}

// The most bytes that a block can become: 64 symbols of 16 bits with 15 more, and the correction
// bits of a run that ends with it.
constexpr size_t kMostBlockBytes = 64 * 4 + 1024 / 8 + 64;

// Hands the blocks of a scan to `writer` in their order, with restarts.
template <class Writer>
class ScanOrder {
 public:
  ScanOrder(const JpegParts& parts, const JpegWalk& walk, bool ones, ScanBits& out, Writer& writer)
      : parts_(parts), walk_(walk), ones_(ones), out_(out), writer_(writer) {}

  void run() {
    const JpegScanHead& scan = walk_.scan();
    if (scan.component_count == 1) {
      one_component(scan.component[0]);
    } else {
      interleaved();
    }
    writer_.finish(out_);
    out_.pad(ones_);
  }

 private:
  const int16_t* block(int component, int row, int column) const {
    const auto c = static_cast<size_t>(component);
    const auto columns =
        static_cast<size_t>(parts_.header.mcus_per_row) * parts_.header.components[c].h;
    return parts_.blocks[c].data() +
           (static_cast<size_t>(row) * columns + static_cast<size_t>(column)) * 64;
  }

  // Only the blocks that hold samples of the component (T.81, A.2.2).
  void one_component(int component) {
    const int columns = (parts_.header.plane_width(component) + 7) / 8;
    const int rows = (parts_.header.plane_height(component) + 7) / 8;
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        begin_mcu(1);
        writer_.write(out_, 0, block(component, row, column));
      }
    }
  }

  void interleaved() {
    const JpegHeader& header = parts_.header;
    for (int row = 0; row < header.mcu_rows; ++row) {
      for (int column = 0; column < header.mcus_per_row; ++column) {
        begin_mcu(static_cast<size_t>(header.blocks_per_mcu));
        write_mcu(row, column);
      }
    }
  }

  void write_mcu(int row, int column) {
    const JpegScanHead& scan = walk_.scan();
    for (int i = 0; i < scan.component_count; ++i) {
      const int c = scan.component[static_cast<size_t>(i)];
      const JpegComponent& component = parts_.header.components[static_cast<size_t>(c)];
      for (int v = 0; v < component.v; ++v) {
        for (int h = 0; h < component.h; ++h) {
          writer_.write(out_, i, block(c, row * component.v + v, column * component.h + h));
        }
      }
    }
  }

  void begin_mcu(size_t blocks) {
    const int interval = walk_.restart_interval();
    if (interval > 0 && since_restart_ == interval) {
      out_.reserve(kMostBlockBytes);
      writer_.finish(out_);
      out_.pad(ones_);
      out_.put_marker(static_cast<uint8_t>(0xD0 + restarts_ % 8));
      ++restarts_;
      since_restart_ = 0;
      writer_.restart();
    }
    ++since_restart_;
    out_.reserve(blocks * kMostBlockBytes);
  }

  const JpegParts& parts_;
  const JpegWalk& walk_;
  const bool ones_;
  ScanBits& out_;
  Writer& writer_;
  int since_restart_ = 0;
  int restarts_ = 0;
};

template <class Writer>
void write_with(Writer&& writer, const JpegParts& parts, const JpegWalk& walk, bool ones,
                ScanBits& out) {
  ScanOrder(parts, walk, ones, out, writer).run();
}

}  // namespace

void write_scan(const JpegParts& parts, const JpegWalk& walk, bool pads_with_ones,
                std::vector<uint8_t>& out) {
  const JpegScanHead& scan = walk.scan();
  ScanBits bits(out);
  bits.reserve(kMostBlockBytes);
  std::array<HuffmanCodes, 3> dc, ac;
  const bool needs_dc = scan.first == 0 && scan.high == 0;
  const bool needs_ac = scan.last > 0;
  for (size_t i = 0; i < static_cast<size_t>(scan.component_count); ++i) {
    if (needs_dc) dc[i] = huffman_codes(walk.dc(scan.dc_table[i]));
    if (needs_ac) ac[i] = huffman_codes(walk.ac(scan.ac_table[i]));
  }
  if (!parts.is_progressive) {
    write_with(SequentialBlocks(dc, ac, static_cast<size_t>(scan.component_count)), parts, walk,
               pads_with_ones, bits);
  } else if (scan.first == 0 && scan.high == 0) {
    write_with(FirstDc(dc, scan.low), parts, walk, pads_with_ones, bits);
  } else if (scan.first == 0) {
    write_with(NextDc(scan.low), parts, walk, pads_with_ones, bits);
  } else if (scan.high == 0) {
    write_with(FirstAc(ac[0], scan), parts, walk, pads_with_ones, bits);
  } else {
    write_with(NextAc(ac[0], scan), parts, walk, pads_with_ones, bits);
  }
  bits.finish();
}

HuffmanCodes huffman_codes(const HuffmanSpec& spec) {
  if (!spec.present) damaged("Huffman table is missing");
  HuffmanCodes codes{};
  uint32_t code = 0;
  size_t at = 0;
  for (size_t length = 1; length <= 16; ++length, code <<= 1) {
    for (int i = 0; i < spec.counts[length]; ++i, ++code, ++at) {
      if (code >> length != 0) damaged("Huffman table is no prefix code");
      const uint8_t symbol = spec.symbols[at];
      // Decoders read either code; encoders use the first.
      if (codes.of[symbol].length != 0) continue;
      codes.of[symbol] = {static_cast<uint16_t>(code), static_cast<uint16_t>(length)};
    }
  }
  return codes;
}

void throw_no_code() { damaged("Huffman table has no code for a value"); }

}  // namespace fastload
