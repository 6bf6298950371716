// JPEG files of random pictures, made by libjpeg.
#pragma once

#include <cstdio>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jpeglib.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "random.h"

namespace fastload::test {

struct Picture {
  int width = 1, height = 1;
  int sampling = 0x22;    // 0xHV of the luma component; 0: gray
  int quality = 75;       // 1..100
  int restart = 0;        // MCUs; 0: none
  bool noise = false;     // else smooth, with edges
  bool optimize = false;  // Huffman tables made for the picture
};

inline void fill_row(Random& random, const Picture& picture, int y, std::vector<uint8_t>& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const auto x = static_cast<int>(i);
    row[i] = picture.noise ? random.sample() : static_cast<uint8_t>(x * (1 + y / 8 % 3) + y * 5);
  }
}

inline void set_parameters(const Picture& picture, jpeg_compress_struct& cinfo) {
  cinfo.image_width = static_cast<JDIMENSION>(picture.width);
  cinfo.image_height = static_cast<JDIMENSION>(picture.height);
  cinfo.input_components = picture.sampling == 0 ? 1 : 3;
  cinfo.in_color_space = picture.sampling == 0 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&cinfo);
  jpeg_set_quality(&cinfo, picture.quality, TRUE);
  if (picture.sampling != 0) {
    cinfo.comp_info[0].h_samp_factor = picture.sampling >> 4;
    cinfo.comp_info[0].v_samp_factor = picture.sampling & 15;
  }
  cinfo.restart_interval = static_cast<unsigned>(picture.restart);
  cinfo.optimize_coding = picture.optimize ? TRUE : FALSE;
}

inline std::vector<uint8_t> as_jpeg(Random& random, const Picture& picture) {
  jpeg_compress_struct cinfo;
  jpeg_error_mgr errors;
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_compress(&cinfo);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&cinfo, &out, &size);
  set_parameters(picture, cinfo);
  jpeg_start_compress(&cinfo, TRUE);
  std::vector<uint8_t> row(static_cast<size_t>(picture.width) *
                           static_cast<size_t>(cinfo.input_components));
  for (int y = 0; y < picture.height; ++y) {
    fill_row(random, picture, y, row);
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&cinfo, &pointer, 1);
  }
  jpeg_finish_compress(&cinfo);
  jpeg_destroy_compress(&cinfo);
  std::vector<uint8_t> file(out, out + size);
  std::free(out);
  return file;
}

// The JPEG with EXIF that turns it so.
inline std::vector<uint8_t> turned_jpeg(const std::vector<uint8_t>& jpeg, uint8_t orientation) {
  const std::vector<uint8_t> exif{0xFF, 0xE1, 0, 30, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0,    '*',
                                  0,    0,    0, 8,  0,   1,   1,   0x12, 0, 3, 0,   0,   0,    1,
                                  0,    orientation, 0, 0};
  std::vector<uint8_t> file(jpeg.begin(), jpeg.begin() + 2);
  file.insert(file.end(), exif.begin(), exif.end());
  file.insert(file.end(), jpeg.begin() + 2, jpeg.end());
  return file;
}

}  // namespace fastload::test
