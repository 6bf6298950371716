// decode/: the own JPEG decoder's pixels at every level of this machine, against libjpeg's full
// decode, with entry points and without. Random pictures of every sampling that it takes.
#include <utility>
#include <vector>

#include "check.h"
#include "decode/jpeg/decoder.h"
#include "decode/jpeg/entry_points.h"
#include "decode/jpeg/planes.h"
#include "levels.h"
#include "picture.h"
#include "random.h"

namespace {

using namespace fastload;
using test::as_jpeg;
using test::Picture;
using test::Random;
using Buffer = std::vector<uint8_t>;

Picture random_picture(Random& random, int sampling) {
  constexpr int kQualities[] = {1, 10, 50, 75, 90, 100};
  const auto side = [&] { return random.in(1, random.coin() ? 20 : 150); };
  Picture picture{side(), side(), sampling};
  picture.quality = kQualities[random.in(0, 5)];
  picture.restart = random.in(0, 4) == 0 ? random.in(1, 9) : 0;
  picture.noise = random.coin();
  picture.optimize = random.coin();
  return picture;
}

// libjpeg's default decode of the whole file.
Buffer by_libjpeg(const Buffer& file) {
  jpeg_decompress_struct cinfo;
  jpeg_error_mgr errors;
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&cinfo);
  jpeg_mem_src(&cinfo, file.data(), file.size());
  jpeg_read_header(&cinfo, TRUE);
  cinfo.out_color_space = JCS_RGB;
  jpeg_start_decompress(&cinfo);
  const size_t stride = size_t{3} * cinfo.output_width;
  Buffer pixels(stride * cinfo.output_height);
  while (cinfo.output_scanline < cinfo.output_height) {
    JSAMPROW row = pixels.data() + stride * cinfo.output_scanline;
    jpeg_read_scanlines(&cinfo, &row, 1);
  }
  jpeg_finish_decompress(&cinfo);
  jpeg_destroy_decompress(&cinfo);
  return pixels;
}

struct Collector final : RowSink {
  explicit Collector(Rect roi) : roi(roi) {}
  void restart() override { seen.clear(); }
  void rows(const uint8_t* pixels, size_t stride, int, int count) override {
    for (int i = 0; i < count; ++i) {
      const uint8_t* row = pixels + static_cast<size_t>(i) * stride;
      seen.insert(seen.end(), row, row + static_cast<size_t>(roi.width) * 3);
    }
  }
  Rect roi;
  Buffer seen;
};

Buffer crop(const Buffer& pixels, int width, Rect roi) {
  Buffer out;
  for (int y = roi.y; y < roi.y + roi.height; ++y) {
    const auto row = pixels.begin() + (static_cast<ptrdiff_t>(y) * width + roi.x) * 3;
    out.insert(out.end(), row, row + static_cast<ptrdiff_t>(roi.width) * 3);
  }
  return out;
}

Rect random_roi(Random& random, const Picture& picture) {
  Rect roi;
  roi.x = random.in(0, picture.width - 1);
  roi.y = random.in(0, picture.height - 1);
  roi.width = random.in(1, picture.width - roi.x);
  roi.height = random.in(1, picture.height - roi.y);
  return roi;
}

Buffer decoded(JpegDecoder& decoder, Rect roi, const EntryPoints& entries) {
  Collector sink(roi);
  decoder.decode(roi, sink, entries);
  return sink.seen;
}

// The bytes that decoding `roi` may need, and no other: a decoder that touched more would have no
// memory to touch. One byte less at either end is not enough, or was not needed; never other
// pixels.
void check_parts(const Buffer& file, Rect roi, const EntryPoints& entries, const Buffer& wanted,
                 JpegDecoder& decoder) {
  JpegHeader header;
  CHECK(parse_jpeg(file, {}, header));
  const McuWindow window = needed_mcus(header, roi);
  const auto scan = bytes_of_rows(header, entries, file.size(), {window.row_begin, window.row_end});
  CHECK(scan.has_value());
  if (!scan) return;
  for (const auto& [less_begin, less_end] :
       {std::pair<size_t, size_t>{0, 0}, {1, 0}, {0, 1}, {0, 2}}) {
    LoadedBytes loaded{header.scan_begin, scan->begin + less_begin, scan->end - less_end};
    if (loaded.begin <= loaded.head) loaded.head = loaded.begin = loaded.end;
    if (loaded.begin > loaded.end) continue;
    Buffer bytes(file.begin(), file.begin() + static_cast<ptrdiff_t>(loaded.head));
    bytes.insert(bytes.end(), file.begin() + static_cast<ptrdiff_t>(loaded.begin),
                 file.begin() + static_cast<ptrdiff_t>(loaded.end));
    try {
      CHECK(decoder.open(bytes, {}, &loaded));
      CHECK(decoded(decoder, roi, entries) == wanted);
    } catch (const Error&) {
      CHECK(less_begin + less_end > 0);
    }
  }
}

void check_picture(Random& random, const Picture& picture, std::vector<JpegDecoder>& decoders) {
  const Buffer file = as_jpeg(random, picture);
  const Buffer wanted = by_libjpeg(file);
  const Rect roi = random_roi(random, picture);
  const int spacing = random.coin() ? EntryPoints::kRow : random.in(1, 64);
  const Buffer packed = build_entries(file, spacing);
  // Files with restart markers need none; values of some noise do not fit the entries' layout.
  CHECK(picture.restart == 0 || packed.empty());
  for (JpegDecoder& decoder : decoders) {
    CHECK(decoder.open(file));
    CHECK(decoded(decoder, {0, 0, picture.width, picture.height}, {}) == wanted);
    CHECK(decoded(decoder, roi, {}) == crop(wanted, picture.width, roi));
    if (packed.empty()) continue;
    CHECK(decoded(decoder, roi, {packed, spacing}) == crop(wanted, picture.width, roi));
    check_parts(file, roi, {packed, spacing}, crop(wanted, picture.width, roi), decoder);
  }
}

}  // namespace

TEST(own_decoder_equals_libjpeg_at_every_level) {
  Random random(1);
  std::vector<JpegDecoder> decoders;
  for (const SimdLevel level : test::machine_levels()) decoders.emplace_back(level);
  for (const int sampling : {0, 0x11, 0x21, 0x22, 0x12}) {
    for (int i = 0; i < 60; ++i) check_picture(random, random_picture(random, sampling), decoders);
  }
}
