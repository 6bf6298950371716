// decode/: what Python cannot see: the slack behind each chunk, sinks that throw, calls out of
// order.
#include <cstdio>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "decode/decode.h"

namespace {

using namespace fastload;

using Buffer = std::vector<uint8_t>;
constexpr int kWidth = 101, kHeight = 67;

Buffer gradient() {
  Buffer pixels(size_t{kWidth} * kHeight * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 7 + i / 303);
  return pixels;
}

// `factors`: 0xHV for each component, or nothing for the library's choice.
Buffer as_jpeg(bool progressive, int components, const std::vector<int>& factors = {}) {
  jpeg_compress_struct cinfo;
  jpeg_error_mgr errors;
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_compress(&cinfo);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&cinfo, &out, &size);
  cinfo.image_width = kWidth;
  cinfo.image_height = kHeight;
  cinfo.input_components = components;
  cinfo.in_color_space = components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&cinfo);
  for (size_t i = 0; i < factors.size(); ++i) {
    cinfo.comp_info[i].h_samp_factor = factors[i] >> 4;
    cinfo.comp_info[i].v_samp_factor = factors[i] & 15;
  }
  if (progressive) jpeg_simple_progression(&cinfo);
  jpeg_start_compress(&cinfo, TRUE);
  Buffer row(size_t{kWidth} * 4);
  for (size_t y = 0; y < kHeight; ++y) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<uint8_t>(i * (1 + y % 3) + y * 5);
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&cinfo, &pointer, 1);
  }
  jpeg_finish_compress(&cinfo);
  jpeg_destroy_compress(&cinfo);
  Buffer file(out, out + size);
  std::free(out);
  return file;
}

Buffer as_png(uint32_t format) {
  png_image image;
  std::memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.width = kWidth;
  image.height = kHeight;
  image.format = format;
  const Buffer pixels = gradient();
  const Buffer colours(256 * 3, 9);
  png_alloc_size_t size = 0;
  image.colormap_entries = 256;
  png_image_write_get_memory_size(image, size, 0, pixels.data(), 0, colours.data());
  Buffer file(size);
  png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, colours.data());
  file.resize(size);
  return file;
}

Buffer as_webp() {
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeRGB(gradient().data(), kWidth, kHeight, kWidth * 3, 80, &out);
  Buffer file(out, out + size);
  WebPFree(out);
  return file;
}

std::vector<Buffer> pictures() {
  return {as_jpeg(false, 3),
          as_jpeg(true, 3),
          as_jpeg(false, 4),
          as_png(PNG_FORMAT_RGB),
          as_png(PNG_FORMAT_RGB_COLORMAP),
          as_webp()};
}

// Reads all that a producer promises to be readable, and checks order and extent of the rows.
struct ReadingSink final : RowSink {
  void restart() override {}
  explicit ReadingSink(Rect roi) : roi(roi) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    CHECK_EQ(y, next);
    CHECK(count > 0 && y + count <= roi.height);
    const size_t width = static_cast<size_t>(roi.width) * 3;
    CHECK(stride >= width);
    const size_t last = static_cast<size_t>(count - 1) * stride + width;
    volatile uint8_t slack = 0;
    for (size_t i = last; i < last + kSlack; ++i) slack = pixels[i];
    (void)slack;
    for (int i = 0; i < count; ++i) {
      const uint8_t* row = pixels + static_cast<size_t>(i) * stride;
      seen.insert(seen.end(), row, row + width);
    }
    next += count;
  }
  Rect roi;
  int next = 0;
  Buffer seen;
};

struct ThrowingSink final : RowSink {
  void restart() override {}
  void rows(const uint8_t*, size_t, int y, int) override {
    if (y >= 16) throw Error(ErrorKind::kState, "enough");
  }
};

Buffer decode(Decoder& decoder, Rect roi) {
  ReadingSink sink(roi);
  decoder.decode(roi, sink);
  CHECK_EQ(sink.next, roi.height);
  return sink.seen;
}

const std::vector<Rect> kRois = {
    {0, 0, kWidth, kHeight}, {0, 0, 1, 1},   {kWidth - 1, kHeight - 1, 1, 1},
    {3, 5, 40, 33},          {50, 0, 51, 9}, {0, 40, kWidth, 27}};

// Each ROI of the file equals the crop of its full decode; one open(), several decodes.
void check_regions(Decoder& decoder, const Buffer& file, const std::vector<Rect>& rois) {
  decoder.open(file);
  const Buffer whole = decode(decoder, {0, 0, kWidth, kHeight});
  for (const Rect& roi : rois) {
    const Buffer part = decode(decoder, roi);
    const size_t width = static_cast<size_t>(roi.width) * 3;
    for (int y = 0; y < roi.height; ++y) {
      const size_t at = (static_cast<size_t>(roi.y + y) * kWidth + static_cast<size_t>(roi.x)) * 3;
      CHECK(std::memcmp(&part[static_cast<size_t>(y) * width], &whole[at], width) == 0);
    }
  }
}

RgbImage fallback_picture(Bytes, const Shown&) {
  RgbImage image;
  image.width = kWidth;
  image.height = kHeight;
  image.pixels = gradient();
  image.pixels.resize(image.pixels.size() + RowSink::kSlack);
  return image;
}

}  // namespace

TEST(slack_is_readable_and_regions_equal_the_whole) {
  Decoder decoder({}, fallback_picture);
  std::vector<Buffer> files = pictures();
  files.push_back({'G', 'I', 'F', '8', '9', 'a', 101, 0, 67, 0});
  for (const Buffer& file : files) check_regions(decoder, file, kRois);
}

// Every sampling that libjpeg encodes, ROIs at all columns and rows around the borders of MCUs.
TEST(regions_of_every_sampling_equal_the_whole) {
  const std::vector<std::vector<int>> samplings = {
      {0x11, 0x11, 0x11}, {0x21, 0x11, 0x11},      {0x12, 0x11, 0x11}, {0x22, 0x11, 0x11},
      {0x41, 0x11, 0x11}, {0x14, 0x11, 0x11},      {0x42, 0x11, 0x11}, {0x24, 0x11, 0x11},
      {0x22, 0x21, 0x21}, {0x22, 0x12, 0x12},      {0x22, 0x21, 0x12}, {0x21, 0x21, 0x21},
      {0x12, 0x12, 0x12}, {0x11, 0x22, 0x11},      {0x22, 0x11, 0x22}, {0x41, 0x21, 0x11},
      {0x41, 0x21, 0x21}, {0x22, 0x11, 0x11, 0x22}};
  std::vector<Rect> rois = kRois;
  for (int at : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    rois.push_back({at, at, 1, 1});
    rois.push_back({at, at - 1, kWidth - at, kHeight - at});
    rois.push_back({0, 0, at, at});
    rois.push_back({at, 0, kWidth - at, 1});
  }
  Decoder decoder;
  for (const std::vector<int>& factors : samplings) {
    for (bool progressive : {false, true}) {
      const auto components = static_cast<int>(factors.size());
      check_regions(decoder, as_jpeg(progressive, components, factors), rois);
    }
  }
  CHECK_EQ(decoder.counts()[fastload::kWarnings], 0u);
}

TEST(slack_of_raw_pixels_at_the_end_of_a_mapping) {
  const Buffer pixels = gradient();  // nothing may be read behind it
  Decoder decoder;
  decoder.open_raw(pixels, kWidth, kHeight);
  CHECK(decode(decoder, kRois[0]) == pixels);
  for (const Rect& roi : kRois) decode(decoder, roi);
  const Buffer one = {1, 2, 3};
  decoder.open_raw(one, 1, 1);
  CHECK(decode(decoder, {0, 0, 1, 1}) == one);
}

TEST(a_throwing_sink_leaves_the_decoder_usable) {
  Decoder decoder;
  for (const Buffer& file : pictures()) {
    decoder.open(file);
    const Buffer before = decode(decoder, kRois[0]);
    for (int i = 0; i < 20; ++i) {
      ThrowingSink sink;
      CHECK_THROWS(kState, "enough", decoder.decode(kRois[0], sink));
    }
    CHECK(decode(decoder, kRois[0]) == before);
  }
}

TEST(damage_leaks_nothing) {  // under the leak sanitizer
  Decoder decoder;
  for (const Buffer& file : pictures()) {
    for (size_t length = 0; length < file.size(); length += 97) {
      ReadingSink sink(kRois[0]);
      const Buffer cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(length));
      bool refused = false;
      try {
        decoder.open(cut);
        decoder.decode(kRois[0], sink);
      } catch (const Error& error) {
        refused = error.kind() == ErrorKind::kDecode;
      }
      CHECK(refused);
    }
  }
}

TEST(decode_needs_an_open_picture) {
  Decoder decoder;
  ThrowingSink sink;
  CHECK_THROWS(kState, "open()", decoder.decode({0, 0, 1, 1}, sink));
  const Buffer file = as_webp();
  decoder.open(file);
  const Buffer junk = {1, 2, 3};
  CHECK_THROWS(kDecode, "3 bytes", decoder.open(junk));
  CHECK_THROWS(kState, "open()", decoder.decode({0, 0, 1, 1}, sink));
  decoder.open(file);
  CHECK_THROWS(kValue, "101x67", decoder.decode({0, 0, kWidth + 1, 1}, sink));
}

TEST(a_fallback_without_a_picture_is_refused) {
  Decoder decoder({}, [](Bytes, const Shown&) { return RgbImage{}; });
  const Buffer gif = {'G', 'I', 'F', '8', '9', 'a', 1, 0, 1, 0};
  CHECK_THROWS(kDecode, "no whole picture", decoder.open(gif));
}
