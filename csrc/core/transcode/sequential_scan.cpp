#include "transcode/sequential_scan.h"

#include <array>

#include "base/per_thread.h"
#include "transcode/block_coder.h"

namespace fastload {
namespace {

// The codes of a scan's components. Those of its AC values take a while to lay out, so a thread
// keeps them: a folder's files often have the same tables.
class ScanCodes {
 public:
  void open(const JpegWalk& walk) {
    const JpegScanHead& scan = walk.scan();
    for (size_t i = 0; i < static_cast<size_t>(scan.component_count); ++i) {
      dc_[i] = huffman_codes(walk.dc(scan.dc_table[i]));
      size_t same = 0;
      while (same < i && scan.ac_table[same] != scan.ac_table[i]) ++same;
      Ac& ac = ac_[same];
      const HuffmanSpec& spec = walk.ac(scan.ac_table[i]);
      if (same == i && !(spec.present && ac.spec == spec && ac.level == simd_level())) {
        ac.spec = {};  // nothing equals this if huffman_codes() throws
        ac.level = simd_level();
        ac.codes = huffman_codes(spec);
        if (ac.level >= SimdLevel::kAvx512) {
          ac.bytes = code_bytes(ac.codes);
        } else {
          ac.small = small_codes(ac.codes);
        }
        ac.spec = spec;
      }
      codes_[i] = {&dc_[i], &ac.codes, &ac.small, &ac.bytes};
    }
  }
  [[nodiscard]] const std::array<BlockCodes, 3>& codes() const { return codes_; }

 private:
  struct Ac {
    HuffmanSpec spec;
    SimdLevel level = SimdLevel::kScalar;
    HuffmanCodes codes;
    SmallCodes small;
    CodeBytes bytes;
  };
  std::array<HuffmanCodes, 3> dc_;
  std::array<Ac, 3> ac_;
  std::array<BlockCodes, 3> codes_{};
};

class SequentialScan {
 public:
  SequentialScan(const JpegParts& parts, const JpegWalk& walk, bool ones, ScanBits& out,
                 const std::array<BlockCodes, 3>& codes)
      : header_(parts.header),
        blocks_(parts.blocks),
        walk_(walk),
        ones_(ones),
        out_(out),
        codes_(codes) {}

  void run() {
    if (walk_.scan().component_count == 1) {
      one_component(static_cast<size_t>(walk_.scan().component[0]));
    } else {
      interleaved();
    }
    finish_interval();
  }

 private:
  // Only the blocks that hold samples of the component (T.81, A.2.2).
  void one_component(size_t component) {
    const int columns = (header_.plane_width(static_cast<int>(component)) + 7) / 8;
    const int rows = (header_.plane_height(static_cast<int>(component)) + 7) / 8;
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        begin_mcu();
        put(0, blocks_.number_of(header_, component, static_cast<size_t>(row),
                                 static_cast<size_t>(column)));
      }
    }
  }

  void interleaved() {
    for (size_t row = 0; row < static_cast<size_t>(header_.mcu_rows); ++row) {
      for (size_t segment = 0; segment < blocks_.segments_per_row(); ++segment) {
        write_segment(blocks_.begin(row, segment), blocks_.shape(segment));
      }
    }
  }

  // Its blocks lie in rows, the scan has them by MCUs; of components that the scan does not have
  // none.
  void write_segment(size_t begin, const SegmentShape& shape) {
    const JpegScanHead& scan = walk_.scan();
    std::array<size_t, kMaxSegmentRows> at{};  // of each row's next block
    std::array<size_t, kMaxSegmentRows> across{};
    std::array<uint8_t, kMaxSegmentRows> index{};
    size_t rows = 0;
    for (size_t r = 0; r < shape.rows; begin += shape.blocks[r++]) {
      for (size_t i = 0; i < static_cast<size_t>(scan.component_count); ++i) {
        if (scan.component[i] != shape.component[r]) continue;
        at[rows] = begin;
        across[rows] = header_.components[shape.component[r]].h;
        index[rows++] = static_cast<uint8_t>(i);
      }
    }
    const size_t mcus = shape.blocks[0] / header_.components[0].h;
    for (size_t mcu = 0; mcu < mcus; ++mcu) {
      begin_mcu();
      for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 0; i < across[r]; ++i) put(index[r], at[r]++);
      }
    }
  }

  void put(uint8_t component, size_t number) {
    run_.block[run_.count] = blocks_.block(number);
    run_.component[run_.count++] = component;
    if (run_.count == BlockRun::kMost) flush();
  }

  void begin_mcu() {
    const int interval = walk_.restart_interval();
    if (interval > 0 && since_restart_ == interval) {
      finish_interval();
      out_.put_marker(static_cast<uint8_t>(0xD0 + restarts_ % 8));
      ++restarts_;
      since_restart_ = 0;
      state_.before = {};
    }
    ++since_restart_;
  }

  void flush() {
    const uint8_t* const end = code_(run_, codes_, state_, bytes_.data());
    out_.append(bytes_.data(), static_cast<size_t>(end - bytes_.data()));
    run_.count = 0;
  }

  void finish_interval() {
    flush();
    out_.reserve(8);
    if (state_.bits > 0) out_.put(state_.word, static_cast<int>(state_.bits));
    state_.word = state_.bits = 0;
    out_.pad(ones_);
  }

  const JpegHeader& header_;
  const BlockLists& blocks_;
  const JpegWalk& walk_;
  const bool ones_;
  ScanBits& out_;
  const std::array<BlockCodes, 3>& codes_;
  decltype(scalar::code_blocks)& code_ = FASTLOAD_KERNEL_AT(simd_level(), code_blocks);
  int since_restart_ = 0;
  int restarts_ = 0;
  BlockRun run_;
  CoderState state_;
  std::array<uint8_t, BlockRun::kMost * kMostCodedBytes + 16> bytes_;
};

}  // namespace

void write_sequential(const JpegParts& parts, const JpegWalk& walk, bool pads_with_ones,
                      ScanBits& out) {
  auto& codes = per_thread<ScanCodes>();
  codes.open(walk);
  SequentialScan(parts, walk, pads_with_ones, out, codes.codes()).run();
}

}  // namespace fastload
