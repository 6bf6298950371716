// Encoded pictures, and their pixels by the core.
#pragma once

#include <png.h>
#include <webp/encode.h>

#include <cstring>
#include <string>
#include <vector>

#include "../picture.h"
#include "../rewritten_jpeg.h"
#include "decode/decode.h"
#include "everywhere.h"

namespace fastload::test {

inline Made jpeg(const Picture& picture) {
  Random random(5);
  return as_jpeg(random, picture);
}

// One of a few rows of MCUs, with noise.
inline Picture small_picture(int sampling = 0x22) {
  Picture picture;
  picture.width = 70;
  picture.height = 50;
  picture.sampling = sampling;
  picture.noise = true;
  return picture;
}

inline Made progressive() {
  Rewriting how;
  how.is_progressive = true;
  return rewritten(jpeg(small_picture()), how);
}

// `format` is one of libpng's PNG_FORMAT_ words; with PNG_FORMAT_FLAG_COLORMAP a palette is made.
inline Made png(uint32_t format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 23;
  image.height = 19;
  image.format = format;
  Random random(6);
  std::vector<uint8_t> pixels = random.samples(PNG_IMAGE_SIZE(image));
  std::vector<uint8_t> colours = random.samples(256 * 4);
  image.colormap_entries = 256;
  png_alloc_size_t size = 1 << 16;
  Made file(size);
  if (png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, colours.data()) ==
      0) {
    throw std::runtime_error(std::string("libpng: ") + image.message);
  }
  file.resize(size);
  return file;
}

inline Made webp(bool lossless, bool alpha) {
  constexpr int kWidth = 33, kHeight = 21;
  Random random(7);
  const std::vector<uint8_t> pixels = random.samples(size_t{kWidth} * kHeight * 4);
  uint8_t* out = nullptr;
  const auto encode = lossless ? (alpha ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB) : nullptr;
  size_t size = 0;
  if (encode != nullptr) {
    size = encode(pixels.data(), kWidth, kHeight, kWidth * (alpha ? 4 : 3), &out);
  } else if (alpha) {
    size = WebPEncodeRGBA(pixels.data(), kWidth, kHeight, kWidth * 4, 80, &out);
  } else {
    size = WebPEncodeRGB(pixels.data(), kWidth, kHeight, kWidth * 3, 80, &out);
  }
  Made file(out, out + size);
  WebPFree(out);
  return file;
}

// A picture's rows, one behind the other.
class Rows final : public RowSink {
 public:
  explicit Rows(size_t row_bytes) : row_(row_bytes) {}
  void rows(const uint8_t* pixels, size_t stride, int, int count) override {
    for (int i = 0; i < count; ++i) {
      const uint8_t* const from = pixels + stride * static_cast<size_t>(i);
      all.insert(all.end(), from, from + row_);
    }
  }
  void restart() override { all.clear(); }
  Made all;

 private:
  size_t row_;
};

inline Made decoded(Bytes file, const PixelFormat& format = {}, const EntryPoints& entries = {},
                    const FallbackDecode& fallback = nullptr) {
  Decoder decoder({}, fallback);
  const ImageInfo info = decoder.open(file, format);
  // Of what has entry points a part, which they are for.
  const int top = entries.packed.empty() ? 0 : static_cast<int>(info.height) / 2;
  const Rect roi{0, top, static_cast<int>(info.width), static_cast<int>(info.height) - top};
  Rows sink(static_cast<size_t>(roi.width) * format.pixel_bytes());
  decoder.decode(roi, sink, entries);
  return std::move(sink.all);
}

}  // namespace fastload::test
