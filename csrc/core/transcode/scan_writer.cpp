#include "transcode/scan_writer.h"

#include <array>
#include <string>

#include "base/error.h"
#include "transcode/block_writers.h"
#include "transcode/scan_bits.h"
#include "transcode/sequential_scan.h"

namespace fastload {
namespace {

[[noreturn]] void damaged(const char* what) {
  throw Error(ErrorKind::kDecode, std::string("coefficient record: the JPEG's ") + what);
}

// The most bytes that a block can become: 64 symbols of 16 bits with 15 more, and the correction
// bits of a run that ends with it.
constexpr size_t kMostBlockBytes = 64 * 4 + 1024 / 8 + 64;

using Planes = std::array<std::vector<int16_t>, 3>;

// Hands the blocks of a progressive scan to `writer` in their order, with restarts.
template <class Writer>
class ScanOrder {
 public:
  ScanOrder(const JpegHeader& header, const Planes& planes, const JpegWalk& walk, bool ones,
            ScanBits& out, Writer& writer)
      : header_(header), planes_(planes), walk_(walk), ones_(ones), out_(out), writer_(writer) {}

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
    const auto columns = static_cast<size_t>(header_.mcus_per_row) * header_.components[c].h;
    return planes_[c].data() +
           (static_cast<size_t>(row) * columns + static_cast<size_t>(column)) * 64;
  }

  // Only the blocks that hold samples of the component (T.81, A.2.2).
  void one_component(int component) {
    const int columns = (header_.plane_width(component) + 7) / 8;
    const int rows = (header_.plane_height(component) + 7) / 8;
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        begin_mcu(1);
        writer_.write(out_, 0, block(component, row, column));
      }
    }
  }

  void interleaved() {
    for (int row = 0; row < header_.mcu_rows; ++row) {
      for (int column = 0; column < header_.mcus_per_row; ++column) {
        begin_mcu(static_cast<size_t>(header_.blocks_per_mcu));
        write_mcu(row, column);
      }
    }
  }

  void write_mcu(int row, int column) {
    const JpegScanHead& scan = walk_.scan();
    for (int i = 0; i < scan.component_count; ++i) {
      const int c = scan.component[static_cast<size_t>(i)];
      const JpegComponent& component = header_.components[static_cast<size_t>(c)];
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

  const JpegHeader& header_;
  const Planes& planes_;
  const JpegWalk& walk_;
  const bool ones_;
  ScanBits& out_;
  Writer& writer_;
  int since_restart_ = 0;
  int restarts_ = 0;
};

}  // namespace

void ScanWriter::write(const JpegWalk& walk, bool pads_with_ones, std::vector<uint8_t>& out) {
  const JpegScanHead& scan = walk.scan();
  ScanBits bits(out);
  bits.reserve(kMostBlockBytes);
  if (!parts_.is_progressive) {
    write_sequential(parts_, walk, pads_with_ones, bits);
    bits.finish();
    return;
  }
  if (planes_[0].empty()) planes_ = parts_.blocks.planes(parts_.header);
  ComponentCodes dc;
  HuffmanCodes ac;
  if (scan.first == 0 && scan.high == 0) {
    for (size_t i = 0; i < static_cast<size_t>(scan.component_count); ++i) {
      dc[i] = huffman_codes(walk.dc(scan.dc_table[i]));
    }
  }
  if (scan.last > 0) ac = huffman_codes(walk.ac(scan.ac_table[0]));
  const auto write_with = [&](auto&& writer) {
    ScanOrder(parts_.header, planes_, walk, pads_with_ones, bits, writer).run();
  };
  if (scan.first == 0 && scan.high == 0) {
    write_with(FirstDc(dc, scan.low));
  } else if (scan.first == 0) {
    write_with(NextDc(scan.low));
  } else if (scan.high == 0) {
    write_with(FirstAc(ac, scan));
  } else {
    write_with(NextAc(ac, scan));
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
