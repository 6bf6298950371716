// Each decoder without memory. What a lack must never look like is damage: a sample that a loader
// may leave out.
#include <webp/decode.h>

#include "../check.h"
#include "decode/jpeg/entry_points.h"
#include "decode/jpeg/planes.h"
#include "pictures.h"
#include "transcode/coefficients.h"

namespace fastload::test {
namespace {

void fail_decoding(const char* what, const Made& file, const PixelFormat& format = {}) {
  fail_everywhere(what, [&] { return decoded(file, format); });
}

TEST(jpegs_without_memory) {
  fail_decoding("JPEG 4:2:0", jpeg(small_picture()));
  fail_decoding("JPEG 4:4:4", jpeg(small_picture(0x11)));
  fail_decoding("gray JPEG", jpeg(small_picture(0)));
  fail_decoding("JPEG as gray", jpeg(small_picture()), {1, 8, false});
  Picture restarting = small_picture();
  restarting.restart = 2;
  fail_decoding("JPEG with restart markers", jpeg(restarting));
  fail_decoding("progressive JPEG", progressive());
  // libjpeg-turbo decodes what the own decoder gives up in the middle.
  Made damaged = jpeg(small_picture());
  std::fill_n(damaged.end() - 40, 8, uint8_t{0});
  fail_decoding("damaged JPEG", damaged);
}

TEST(jpegs_with_entry_points_without_memory) {
  const Made file = jpeg(small_picture());
  for (const int spacing : {EntryPoints::kRow, 16}) {
    Made packed;
    fail_everywhere("entry points of a JPEG",
                    [&] { return packed = build_entries(file, spacing); });
    CHECK(!packed.empty());
    fail_everywhere("JPEG by entry points", [&] { return decoded(file, {}, {packed, spacing}); });
  }
}

TEST(parts_of_jpegs_without_memory) {
  const Made file = jpeg(small_picture());
  const Made packed = build_entries(file, EntryPoints::kRow);
  const EntryPoints entries{packed, EntryPoints::kRow};
  JpegHeader header;
  CHECK(parse_jpeg(file, {}, header));
  const auto range = bytes_of_rows(header, entries, file.size(), {1, 2});
  CHECK(range.has_value());
  const LoadedBytes loaded{header.scan_begin, range->begin, range->end};
  Made bytes(file.begin(), file.begin() + static_cast<ptrdiff_t>(loaded.head));
  bytes.insert(bytes.end(), file.begin() + static_cast<ptrdiff_t>(loaded.begin),
               file.begin() + static_cast<ptrdiff_t>(loaded.end));
  fail_everywhere("part of a JPEG", [&] {
    Decoder decoder;
    decoder.open_part(bytes, loaded);
    Rows sink(size_t{70} * 3);
    decoder.decode({0, 18, 70, 10}, sink, entries);
    return std::move(sink.all);
  });
}

TEST(coefficients_without_memory) {
  for (const CoefficientForm form : {CoefficientForm::kFast, CoefficientForm::kSmall}) {
    fail_decoding("coefficients", to_coefficients(jpeg(small_picture()), form));
    fail_decoding("coefficients of a progressive JPEG", to_coefficients(progressive(), form));
    fail_decoding("coefficients as gray", to_coefficients(jpeg(small_picture()), form),
                  {1, 8, false});
  }
}

TEST(pngs_without_memory) {
  fail_decoding("PNG", png(PNG_FORMAT_RGB));
  fail_decoding("PNG with alpha", png(PNG_FORMAT_RGBA));
  fail_decoding("PNG with alpha as it is", png(PNG_FORMAT_RGBA), {4, 8, false});
  fail_decoding("gray PNG", png(PNG_FORMAT_GRAY));
  fail_decoding("gray PNG as gray", png(PNG_FORMAT_GRAY), {1, 8, false});
  fail_decoding("gray PNG as ids of 16 bits", png(PNG_FORMAT_GRAY), {1, 16, true});
  fail_decoding("PNG with a palette", png(PNG_FORMAT_RGB_COLORMAP));
  fail_decoding("PNG with a palette as ids", png(PNG_FORMAT_RGB_COLORMAP), {1, 8, true});
  fail_decoding("PNG of 16 bits", png(PNG_FORMAT_LINEAR_RGB), {3, 16, false});
  fail_decoding("PNG of 16 bits to 8", png(PNG_FORMAT_LINEAR_RGB));
}

TEST(webps_without_memory) {
  fail_decoding("WebP", webp(false, false));
  // Before 1.3.2 libwebp itself frees what it never had where lossless data's tables have no room
  // (alpha is such data).
  if (WebPGetDecoderVersion() < 0x010302) return;
  fail_decoding("WebP with alpha", webp(false, true));
  fail_decoding("lossless WebP", webp(true, false));
  fail_decoding("lossless WebP with alpha", webp(true, true));
}

TEST(shown_pictures_without_memory) {
  const auto fail_shown = [](const char* what, const Made& file) {
    fail_everywhere(what, [&] {
      Decoder decoder;
      const ImageInfo info = decoder.open(file, {}, {.turned = true, .on_white = true});
      Rows sink(size_t{info.width} * 3);
      decoder.decode({0, 0, static_cast<int>(info.width), static_cast<int>(info.height)}, sink);
      return std::move(sink.all);
    });
  };
  fail_shown("a turned JPEG", turned_jpeg(jpeg(small_picture()), 6));
  fail_shown("PNG with alpha on white", png(PNG_FORMAT_RGBA));
  if (WebPGetDecoderVersion() < 0x010302) return;  // as above
  fail_shown("WebP with alpha on white", webp(false, true));
}

TEST(raw_pixels_and_other_decoders_without_memory) {
  Random random(8);
  const Made pixels = random.samples(size_t{20} * 10 * 3);
  fail_everywhere("raw pixels", [&] {
    Decoder decoder;
    decoder.open_raw(pixels, 20, 10);
    Rows sink(size_t{20} * 3);
    decoder.decode({0, 0, 20, 10}, sink);
    return std::move(sink.all);
  });
  const Made gif{'G', 'I', 'F', '8', '9', 'a', 4, 0, 3, 0, 0, 0, 0};
  fail_everywhere("a decoder of others", [&] {
    return decoded(gif, {}, {}, [](Bytes, const Shown&) {
      RgbImage image{4, 3, {}};
      image.pixels.assign(size_t{4} * 3 * 3 + RowSink::kSlack, 9);
      return image;
    });
  });
}

TEST(headers_without_memory) {
  Made files[] = {jpeg(small_picture()),
                  png(PNG_FORMAT_RGB),
                  webp(false, false),
                  {'G', 'I', 'F', '8', '9', 'a', 4, 0, 3, 0}};
  for (Made& file : files) {
    // A whole header takes no memory, the words about a damaged one do.
    file.resize(12);
    fail_everywhere("header", [&]() -> Made {
      try {
        const ImageInfo info = probe(file);
        return Made(size_t{16}, static_cast<uint8_t>(info.codec));
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::kMemory) throw;
        const std::string text = error.what();
        return {text.begin(), text.end()};
      }
    });
  }
}

}  // namespace
}  // namespace fastload::test
