#include "oracle.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jpeglib.h>

#include "decode/jpeg/cmyk.h"
#include "input.h"

namespace fastload::fuzz {
namespace {

// libjpeg leaves by longjmp: members without destructors only.
struct Reader {
  jpeg_decompress_struct cinfo;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
};

Reader& reader_of(j_common_ptr info) { return *static_cast<Reader*>(info->client_data); }

void install(Reader& r) {
  r.cinfo.err = jpeg_std_error(&r.errors);
  r.cinfo.client_data = &r;
  r.errors.error_exit = [](j_common_ptr info) { std::longjmp(reader_of(info).jump, 1); };
  r.errors.output_message = [](j_common_ptr) {};
  r.progress = {};
  r.progress.progress_monitor = [](j_common_ptr info) {
    if (reader_of(info).cinfo.input_scan_number > kMaxScans) std::longjmp(reader_of(info).jump, 1);
  };
}

void open(Reader& r, Bytes bytes) {
  jpeg_create_decompress(&r.cinfo);
  r.cinfo.progress = &r.progress;
  jpeg_mem_src(&r.cinfo, bytes.data(), static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&r.cinfo, TRUE);
}

bool read_all(Reader& r, Bytes bytes, OraclePicture& picture) {
  if (setjmp(r.jump) != 0) return false;
  open(r, bytes);
  jpeg_decompress_struct& cinfo = r.cinfo;
  if (uint64_t{cinfo.image_width} * cinfo.image_height > kMaxPixels) return false;
  cinfo.out_color_space = cinfo.num_components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&cinfo);
  picture.width = static_cast<int>(cinfo.output_width);
  picture.height = static_cast<int>(cinfo.output_height);
  const size_t stride = size_t{cinfo.output_width} * static_cast<size_t>(cinfo.output_components);
  picture.rgb.resize(stride * cinfo.output_height);
  while (cinfo.output_scanline < cinfo.output_height) {
    JSAMPROW row = picture.rgb.data() + stride * cinfo.output_scanline;
    jpeg_read_scanlines(&cinfo, &row, 1);
  }
  jpeg_finish_decompress(&cinfo);
  return r.errors.num_warnings == 0;
}

void cmyk_to_rgb(OraclePicture& picture) {
  const auto width = static_cast<size_t>(picture.width);
  cmyk_rows_to_rgb(picture.rgb.data(), width * 4, width, picture.height);
  for (size_t y = 0; y < static_cast<size_t>(picture.height); ++y) {
    std::memmove(picture.rgb.data() + y * width * 3, picture.rgb.data() + y * width * 4, width * 3);
  }
  picture.rgb.resize(width * 3 * static_cast<size_t>(picture.height));
}

void copy_component(const jpeg_component_info& from, JpegComponent& to) {
  to.id = static_cast<uint8_t>(from.component_id);
  to.h = static_cast<uint8_t>(from.h_samp_factor);
  to.v = static_cast<uint8_t>(from.v_samp_factor);
  to.quant = static_cast<uint8_t>(from.quant_tbl_no);
  to.dc = static_cast<uint8_t>(from.dc_tbl_no);
  to.ac = static_cast<uint8_t>(from.ac_tbl_no);
}

// libjpeg leaves what it does not set as it was; unused symbols do not count.
void copy_table(const JHUFF_TBL* from, HuffmanSpec& to) {
  if (from == nullptr) return;
  size_t total = 0;
  for (size_t i = 1; i <= 16; ++i) total += to.counts[i] = from->bits[i];
  std::copy_n(from->huffval, std::min<size_t>(total, 256), to.symbols.begin());
  to.present = true;
}

void copy_header(const jpeg_decompress_struct& cinfo, JpegHeader& header) {
  header.width = static_cast<int>(cinfo.image_width);
  header.height = static_cast<int>(cinfo.image_height);
  header.component_count = cinfo.num_components;
  header.restart_interval = static_cast<int>(cinfo.restart_interval);
  for (size_t i = 0; i < 3 && i < static_cast<size_t>(cinfo.num_components); ++i) {
    copy_component(cinfo.comp_info[i], header.components[i]);
  }
  for (size_t i = 0; i < 4; ++i) {
    copy_table(cinfo.dc_huff_tbl_ptrs[i], header.dc[i]);
    copy_table(cinfo.ac_huff_tbl_ptrs[i], header.ac[i]);
    const JQUANT_TBL* const quant = cinfo.quant_tbl_ptrs[i];
    header.quant[i].present = quant != nullptr;
    for (size_t k = 0; quant != nullptr && k < 64; ++k) {
      header.quant[i].steps[k] = quant->quantval[k];
    }
  }
}

bool read_header(Reader& r, Bytes bytes, JpegHeader& header) {
  if (setjmp(r.jump) != 0) return false;
  open(r, bytes);
  copy_header(r.cinfo, header);
  return r.errors.num_warnings == 0;
}

}  // namespace

OraclePicture oracle_decode(Bytes bytes) {
  Reader r = {};
  install(r);
  OraclePicture picture;
  picture.clean = read_all(r, bytes, picture);
  if (picture.clean && r.cinfo.num_components == 4) cmyk_to_rgb(picture);
  jpeg_destroy_decompress(&r.cinfo);
  return picture;
}

bool oracle_header(Bytes bytes, JpegHeader& header) {
  Reader r = {};
  install(r);
  header = JpegHeader{};
  const bool clean = read_header(r, bytes, header);
  jpeg_destroy_decompress(&r.cinfo);
  return clean;
}

}  // namespace fastload::fuzz
