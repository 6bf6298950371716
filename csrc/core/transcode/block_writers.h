// The four ways in which a progressive scan codes a block, each as a class with write(), restart()
// and finish() (what is due at the end of a scan or restart interval).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>

#include "transcode/huffman_codes.h"
#include "transcode/jpeg_walk.h"
#include "transcode/masks.h"
#include "transcode/scan_bits.h"

namespace fastload {

using ComponentCodes = std::array<HuffmanCodes, 3>;

constexpr int kZeroRun = 0xF0;  // the symbol of 16 zeros
constexpr int kBlockEnd = 0;

// T.81, G.1.2: the first scan of DC coefficients,
class FirstDc {
 public:
  FirstDc(const ComponentCodes& dc, int low) : dc_(dc), low_(low) {}

  void write(ScanBits& out, int component, const int16_t* block) {
    const auto c = static_cast<size_t>(component);
    const int value = block[0] >> low_;
    const Category dc = category(value - before_[c]);
    before_[c] = value;
    put_symbol(out, dc_[c], dc.size, dc.bits, dc.size);
  }
  void restart() { before_ = {}; }
  void finish(ScanBits&) {}

 private:
  const ComponentCodes& dc_;
  const int low_;
  std::array<int, 3> before_{};
};

// their next bits,
class NextDc {
 public:
  explicit NextDc(int low) : low_(low) {}
  void write(ScanBits& out, int, const int16_t* block) {
    out.put(static_cast<uint32_t>(block[0] >> low_) & 1, 1);
  }
  void restart() {}
  void finish(ScanBits&) {}

 private:
  const int low_;
};

// Runs of blocks that have nothing more, and the correction bits that lie in them (jcphuff.c).
class BlockRuns {
 public:
  explicit BlockRuns(const HuffmanCodes& codes) : codes_(codes) {}

  void flush(ScanBits& out) {
    if (run_ > 0) {
      const int size = std::bit_width(run_) - 1;
      put_symbol(out, codes_, size << 4, run_ & ((1u << size) - 1), size);
      run_ = 0;
    }
    for (size_t i = 0; i < corrections_; ++i) out.put(bits_[i], 1);
    corrections_ = 0;
  }
  // One block more, whose correction bits are in place.
  void add(ScanBits& out, size_t corrections) {
    ++run_;
    corrections_ += corrections;
    if (run_ == kMostRun || corrections_ > kMostCorrections - 63) flush(out);
  }
  // Where the next block's correction bits go: 64 fit.
  uint8_t* next_corrections() { return bits_.data() + corrections_; }

 private:
  static constexpr uint32_t kMostRun = 0x7FFF;
  static constexpr size_t kMostCorrections = 1000;  // libjpeg's MAX_CORR_BITS

  const HuffmanCodes& codes_;
  uint32_t run_ = 0;
  size_t corrections_ = 0;
  std::array<uint8_t, kMostCorrections + 64> bits_;
};

// The coefficients of a scan in a block's mask.
inline uint64_t scan_mask(const JpegScanHead& scan, const int16_t* block) {
  const uint64_t upto = ~uint64_t{0} >> (63 - scan.last);
  return mask_of(block) << 1 & upto & ~uint64_t{0} << scan.first;
}

// the first scan of AC coefficients,
class FirstAc {
 public:
  FirstAc(const HuffmanCodes& codes, const JpegScanHead& scan)
      : codes_(codes), scan_(scan), runs_(codes) {}

  void write(ScanBits& out, int, const int16_t* block) {
    int last = scan_.first - 1;
    for (uint64_t left = scan_mask(scan_, block); left != 0; left &= left - 1) {
      const int k = std::countr_zero(left);
      const int magnitude = std::abs(int{block[k]}) >> scan_.low;
      if (magnitude == 0) continue;
      runs_.flush(out);
      int run = k - last - 1;
      for (; run > 15; run -= 16) put_symbol(out, codes_, kZeroRun, 0, 0);
      const Category ac = category(block[k] < 0 ? -magnitude : magnitude);
      put_symbol(out, codes_, run << 4 | ac.size, ac.bits, ac.size);
      last = k;
    }
    if (last < scan_.last) runs_.add(out, 0);
  }
  void restart() {}
  void finish(ScanBits& out) { runs_.flush(out); }

 private:
  const HuffmanCodes& codes_;
  const JpegScanHead& scan_;
  BlockRuns runs_;
};

// and their next bits.
class NextAc {
 public:
  NextAc(const HuffmanCodes& codes, const JpegScanHead& scan)
      : codes_(codes), scan_(scan), runs_(codes) {}

  void write(ScanBits& out, int, const int16_t* block) {
    const uint64_t mask = scan_mask(scan_, block);
    int last_new = 0;  // the last coefficient that becomes nonzero in this scan
    for (uint64_t left = mask; left != 0; left &= left - 1) {
      const int k = std::countr_zero(left);
      if (magnitude(block[k]) == 1) last_new = k;
    }
    uint8_t* const waiting = runs_.next_corrections();
    uint8_t* corrections = waiting;
    size_t count = 0;
    int run = 0, next = scan_.first;
    for (uint64_t left = mask; left != 0; left &= left - 1) {
      const int k = std::countr_zero(left);
      const int value = magnitude(block[k]);
      if (value == 0) continue;
      run += k - next;
      next = k + 1;
      while (run > 15 && k <= last_new) {
        runs_.flush(out);
        put_symbol(out, codes_, kZeroRun, 0, 0);
        run -= 16;
        count = put_corrections(out, corrections, count);
        corrections = runs_.next_corrections();
      }
      if (value > 1) {
        corrections[count++] = static_cast<uint8_t>(value & 1);
        continue;
      }
      runs_.flush(out);
      put_symbol(out, codes_, run << 4 | 1, block[k] < 0 ? 0 : 1, 1);
      count = put_corrections(out, corrections, count);
      corrections = runs_.next_corrections();
      run = 0;
    }
    run += scan_.last + 1 - next;
    if (run > 0 || count > 0) runs_.add(out, count);
  }
  void restart() {}
  void finish(ScanBits& out) { runs_.flush(out); }

 private:
  [[nodiscard]] int magnitude(int value) const { return std::abs(value) >> scan_.low; }
  static size_t put_corrections(ScanBits& out, const uint8_t* bits, size_t count) {
    for (size_t i = 0; i < count; ++i) out.put(bits[i], 1);
    return 0;
  }

  const HuffmanCodes& codes_;
  const JpegScanHead& scan_;
  BlockRuns runs_;
};

}  // namespace fastload
