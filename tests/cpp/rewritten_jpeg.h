// JPEG files by libjpeg: their coefficients, and the same coefficients written in other scans.
#pragma once

#include <cstdio>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jpeglib.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "decode/jpeg/parser.h"
#include "random.h"

namespace fastload::test {

using JpegBytes = std::vector<uint8_t>;

struct Rewriting {
  bool is_progressive = false;
  bool optimize = true;                    // progressive files always are
  int restart = 0;                         // MCUs
  int restart_rows = 0;                    // rows of MCUs
  std::vector<jpeg_scan_info> scans = {};  // empty: libjpeg's own
  bool mixes_tables = false;               // Cb has luma's DC table, Cr luma's AC table
};

// libjpeg's reading of a file. For files that it reads; its errors end the process.
class OpenedJpeg {
 public:
  explicit OpenedJpeg(const JpegBytes& file) {
    info_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, file.data(), static_cast<unsigned long>(file.size()));
    jpeg_read_header(&info_, TRUE);
    coefficients_ = jpeg_read_coefficients(&info_);
  }
  ~OpenedJpeg() { jpeg_destroy_decompress(&info_); }
  OpenedJpeg(const OpenedJpeg&) = delete;
  OpenedJpeg& operator=(const OpenedJpeg&) = delete;

  jpeg_decompress_struct& info() { return info_; }
  jvirt_barray_ptr* coefficients() { return coefficients_; }

 private:
  jpeg_error_mgr errors_;
  jpeg_decompress_struct info_;
  jvirt_barray_ptr* coefficients_;
};

// Those of each component: rows of blocks of whole MCUs, 64 a block in zig-zag order.
inline std::array<std::vector<int16_t>, 3> coefficients_of(const JpegBytes& file) {
  OpenedJpeg opened(file);
  jpeg_decompress_struct& info = opened.info();
  std::array<std::vector<int16_t>, 3> all;
  // A file of one component has MCUs of one block, whatever factors it says.
  const bool is_gray = info.num_components == 1;
  const auto whole = [](JDIMENSION size, int mcu) {
    const auto side = static_cast<JDIMENSION>(8 * mcu);
    return (size + side - 1) / side;
  };
  for (int c = 0; c < info.num_components; ++c) {
    const jpeg_component_info& component = info.comp_info[c];
    const int h = is_gray ? 1 : component.h_samp_factor, v = is_gray ? 1 : component.v_samp_factor;
    const JDIMENSION columns =
        static_cast<JDIMENSION>(h) * whole(info.image_width, is_gray ? 1 : info.max_h_samp_factor);
    const JDIMENSION rows =
        static_cast<JDIMENSION>(v) * whole(info.image_height, is_gray ? 1 : info.max_v_samp_factor);
    auto& blocks = all[static_cast<size_t>(c)];
    for (JDIMENSION row = 0; row < rows; ++row) {
      const JBLOCKARRAY line = (*info.mem->access_virt_barray)(
          reinterpret_cast<j_common_ptr>(&info), opened.coefficients()[c], row, 1, FALSE);
      for (JDIMENSION column = 0; column < columns; ++column) {
        for (const uint8_t place : kZigzag) blocks.push_back(line[0][column][place]);
      }
    }
  }
  return all;
}

// The same coefficients, and no APPn or COM segment but JFIF's and Adobe's.
inline JpegBytes rewritten(const JpegBytes& file, const Rewriting& how) {
  OpenedJpeg opened(file);
  jpeg_compress_struct out;
  jpeg_error_mgr errors;
  out.err = jpeg_std_error(&errors);
  jpeg_create_compress(&out);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&out, &bytes, &size);
  jpeg_copy_critical_parameters(&opened.info(), &out);
  if (!how.scans.empty()) {
    out.scan_info = how.scans.data();
    out.num_scans = static_cast<int>(how.scans.size());
  } else if (how.is_progressive) {
    jpeg_simple_progression(&out);
  }
  out.optimize_coding = how.optimize ? TRUE : FALSE;
  if (how.mixes_tables) out.comp_info[1].dc_tbl_no = out.comp_info[2].ac_tbl_no = 0;
  out.restart_interval = static_cast<unsigned>(how.restart);
  out.restart_in_rows = how.restart_rows;
  jpeg_write_coefficients(&out, opened.coefficients());
  jpeg_finish_compress(&out);
  jpeg_destroy_compress(&out);
  JpegBytes result(bytes, bytes + size);
  std::free(bytes);
  return result;
}

// Scans as a script for cjpeg may have them: components together or apart, any bands, up to three
// bits left for later scans.
inline std::vector<jpeg_scan_info> drawn_scans(Random& random, bool is_progressive,
                                               const JpegBytes& file) {
  const int components = OpenedJpeg(file).info().num_components;
  std::vector<jpeg_scan_info> scans;
  const auto add = [&](int first, int count, int from, int to, int high, int low) {
    jpeg_scan_info scan{};
    scan.comps_in_scan = count;
    for (int i = 0; i < count; ++i) scan.component_index[i] = first + i;
    scan.Ss = from;
    scan.Se = to;
    scan.Ah = high;
    scan.Al = low;
    scans.push_back(scan);
  };
  const auto for_components = [&](auto visit) {
    for (int first = 0; first < components;) {
      const int count = random.in(1, components - first);
      visit(first, count);
      first += count;
    }
  };
  if (!is_progressive) {
    for_components([&](int first, int count) { add(first, count, 0, 63, 0, 0); });
    return scans;
  }
  const int low = random.in(0, 3);
  for_components([&](int first, int count) { add(first, count, 0, 0, 0, low); });
  for (int bit = low; bit > 0; --bit) {
    for_components([&](int first, int count) { add(first, count, 0, 0, bit, bit - 1); });
  }
  for (int c = 0; c < components; ++c) {
    for (int from = 1; from < 64;) {
      const int to = random.in(from, 63), bits = random.in(0, 3);
      add(c, 1, from, to, 0, bits);
      for (int bit = bits; bit > 0; --bit) add(c, 1, from, to, bit, bit - 1);
      from = to + 1;
    }
  }
  return scans;
}

}  // namespace fastload::test
