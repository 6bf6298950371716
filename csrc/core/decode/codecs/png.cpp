// PNG by libpng.
#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "decode/codecs/codec.h"
#include "decode/codecs/header_bytes.h"
#include "decode/rows.h"

namespace fastload {
namespace {

bool begins(Bytes bytes) { return starts_with(bytes, "\x89PNG\r\n\x1A\n"); }

constexpr size_t kSignature = 8, kChunkHead = 8, kHeaderData = 13;
constexpr uint32_t kIhdr = 0x49484452;

ImageInfo probe_png(Bytes bytes) {
  if (bytes.size() < kSignature + kChunkHead + kHeaderData) {
    throw Error(ErrorKind::kDecode, "PNG: the file ends early (no IHDR chunk)");
  }
  const uint8_t* head = &bytes[kSignature];
  if (big32(head) != kHeaderData || big32(head + 4) != kIhdr) {
    throw Error(ErrorKind::kDecode, "PNG: the first chunk is not an IHDR of 13 bytes");
  }
  ImageInfo info;
  info.codec = Codec::kPng;
  info.width = big32(head + 8);
  info.height = big32(head + 12);
  if (info.width == 0 || info.height == 0)
    throw Error(ErrorKind::kDecode, "PNG: width or height is 0");
  const uint8_t depth = head[16], colour = head[17];
  switch (colour) {
    case 0:  // gray
      info.channels = 1;
      break;
    case 2:  // RGB
    case 3:  // palette
      info.channels = 3;
      break;
    case 4:  // gray and alpha
      info.channels = 2;
      break;
    case 6:  // RGB and alpha
      info.channels = 4;
      break;
    default:
      throw Error(ErrorKind::kDecode,
                  "PNG: colour type " + std::to_string(colour) + "; legal are 0, 2, 3, 4 and 6");
  }
  if (depth == 16) info.flags |= ImageInfo::kSixteenBit;
  if (png_has_chunk(bytes, "acTL")) info.flags |= ImageInfo::kAnimated;
  return info;
}

class PngDecoder final : public PictureDecoder {
 public:
  PngDecoder();

  // RGB of 8 bits as Pillow's convert("RGB"): alpha and tRNS are dropped and the colour under them
  // kept, gray is repeated, no gamma. 16-bit samples are scaled to 8 bits by 1/257 and rounded
  // (Pillow clips 16-bit gray at 255 and cuts off the low byte of 16-bit colour). Other formats
  // likewise; ids are the palette's indices or the samples as stored. Rows below the ROI are not
  // read unless the file is interlaced.
  Outcome decode(const OpenPicture& picture, Rect roi, RowSink& sink) override;

 private:
  struct Session;
  struct Opened;
  void decode_rows(Rect roi, RowSink& sink);
  void decode_interlaced(Rect roi, RowSink& sink);
  void emit(const uint8_t* rows, Rect roi, int first, int count, RowSink& sink);

  std::unique_ptr<Session> session_;
  std::vector<uint8_t> scratch_;   // kChunkRows rows, or the whole picture if interlaced
  std::vector<uint8_t> expanded_;  // palette files: kChunkRows rows of the ROI
};

// Everything libpng's callbacks touch. No member has a destructor, so that longjmp may leave it.
struct PngDecoder::Session {
  png_structp png;
  png_infop info;
  const uint8_t* next;
  size_t left;
  bool warned;
  bool indexed;  // palette indices to be made RGB: one byte a pixel
  size_t pixel_bytes;
  uint8_t palette[256][3];
  size_t stride;  // bytes of a decoded row of the whole width
  std::jmp_buf jump;
  char message[128];

  [[noreturn]] static void on_error(png_structp png, png_const_charp what) {
    auto& s = *static_cast<Session*>(png_get_error_ptr(png));
    std::snprintf(s.message, sizeof s.message, "%s", what);
    std::longjmp(s.jump, 1);
  }

  static void on_warning(png_structp png, png_const_charp) {
    static_cast<Session*>(png_get_error_ptr(png))->warned = true;
  }

  static void on_read(png_structp png, png_bytep out, size_t size) {
    auto& s = *static_cast<Session*>(png_get_io_ptr(png));
    if (size > s.left) png_error(png, "the file ends early");
    std::memcpy(out, s.next, size);
    s.next += size;
    s.left -= size;
  }

  // libpng's errors have no numbers: "Out of memory", "insufficient memory", and the like.
  [[nodiscard]] ErrorKind kind() const {
    return std::strstr(message, "memory") != nullptr ? ErrorKind::kMemory : ErrorKind::kDecode;
  }

  // Runs libpng calls; a fatal error in them becomes an Error. `calls` must hold nothing with a
  // destructor: libpng leaves it by longjmp.
  template <class Calls>
  void run(Calls calls) {
    if (setjmp(jump) != 0) throw Error(kind(), std::string("PNG: ") + message);
    calls();
  }

  void configure(const PixelFormat& format);
  void convert(const PixelFormat& format);
  void convert_with_alpha(const PixelFormat& format);
  void read_palette();
};

struct PngDecoder::Opened {
  Opened(Session& s, Bytes bytes) : session(s) {
    s.png = nullptr;
    s.info = nullptr;
    s.warned = false;
    s.next = bytes.data();
    s.left = bytes.size();
    s.run([&s] {
      s.png =
          png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, Session::on_error, Session::on_warning);
      if (s.png != nullptr) s.info = png_create_info_struct(s.png);
    });
    if (s.info == nullptr) {
      png_destroy_read_struct(&s.png, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~Opened() { png_destroy_read_struct(&session.png, &session.info, nullptr); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  Session& session;
};

// Runs inside run(): libpng may leave it.
void PngDecoder::Session::configure(const PixelFormat& format) {
  // Text, profiles and the like are passed over, so that they cost neither memory nor inflation.
  static const png_byte ignored[] =
      "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0"
      "sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0zTXt\0tRNS";
  const bool has_alpha = format.channels == 4;  // which tRNS, the last one, may give
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, ignored,
                              static_cast<int>(sizeof ignored / 5) - (has_alpha ? 1 : 0));
  png_set_user_limits(png, PNG_UINT_31_MAX,
                      PNG_UINT_31_MAX);  // the Decoder has its own, stricter ones
  png_set_read_fn(png, this, on_read);
  png_read_info(png, info);
  indexed =
      png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE && !format.ids && !has_alpha;
  pixel_bytes = indexed ? 1 : format.pixel_bytes();
  convert(format);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  stride = png_get_rowbytes(png, info);
}

// Runs inside run().
void PngDecoder::Session::convert(const PixelFormat& format) {
  if (format.bits == 16 && std::endian::native == std::endian::little) png_set_swap(png);
  if (indexed) read_palette();
  if (indexed || format.ids) return png_set_packing(png);
  if (format.channels == 4) return convert_with_alpha(format);
  png_set_expand_gray_1_2_4_to_8(png);
  if (format.bits == 8) png_set_scale_16(png);
  if (format.channels % 2 == 1) png_set_strip_alpha(png);
  if (format.channels == 3) png_set_gray_to_rgb(png);
}

// Runs inside run(). RGB and alpha of every kind of PNG; who asks for more than is stored composes
// them.
void PngDecoder::Session::convert_with_alpha(const PixelFormat& format) {
  const bool stored = (png_get_color_type(png, info) & PNG_COLOR_MASK_ALPHA) != 0;
  png_set_expand(png);
  if (format.bits == 8) png_set_scale_16(png);
  png_set_gray_to_rgb(png);
  if (!stored && png_get_valid(png, info, PNG_INFO_tRNS) == 0) {  // libpng has not taken it
    png_set_add_alpha(png, 0xFF, PNG_FILLER_AFTER);
  }
}

// Indices above the palette's end mean a damaged file; they are black, as in Pillow.
void PngDecoder::Session::read_palette() {
  png_set_check_for_invalid_index(png, 0);
  png_colorp colours = nullptr;
  int count = 0;
  png_get_PLTE(png, info, &colours, &count);
  for (int i = 0; i < 256; ++i) {
    const png_color c = i < count ? colours[i] : png_color{0, 0, 0};
    palette[i][0] = c.red;
    palette[i][1] = c.green;
    palette[i][2] = c.blue;
  }
}

PngDecoder::PngDecoder() : session_(std::make_unique<Session>()) {}

// `rows` are `count` decoded rows of the whole width, the first one sink row `first`.
void PngDecoder::emit(const uint8_t* rows, Rect roi, int first, int count, RowSink& sink) {
  const Session& s = *session_;
  const auto left = static_cast<size_t>(roi.x);
  if (!s.indexed) return sink.rows(rows + left * s.pixel_bytes, s.stride, first, count);
  const size_t stride = static_cast<size_t>(roi.width) * 3;
  uint8_t* const out = reserve_scratch(expanded_, stride * kChunkRows + RowSink::kSlack);
  for (int y = 0; y < count; ++y) {
    const uint8_t* from = rows + static_cast<size_t>(y) * s.stride + left;
    uint8_t* to = out + static_cast<size_t>(y) * stride;
    for (int x = 0; x < roi.width; ++x) std::memcpy(to + x * 3, s.palette[from[x]], 3);
  }
  sink.rows(out, stride, first, count);
}

void PngDecoder::decode_rows(Rect roi, RowSink& sink) {
  Session& s = *session_;
  uint8_t* const rows = reserve_scratch(scratch_, s.stride * kChunkRows + RowSink::kSlack);
  s.run([&] {
    for (int y = 0; y < roi.y; ++y) png_read_row(s.png, rows, nullptr);
  });
  for (int y = 0; y < roi.height; y += kChunkRows) {
    const int count = std::min(kChunkRows, roi.height - y);
    s.run([&] {
      for (int i = 0; i < count; ++i) {
        png_read_row(s.png, rows + static_cast<size_t>(i) * s.stride, nullptr);
      }
    });
    emit(rows, roi, y, count, sink);
  }
}

void PngDecoder::decode_interlaced(Rect roi, RowSink& sink) {
  Session& s = *session_;
  const int height = static_cast<int>(png_get_image_height(s.png, s.info));
  uint8_t* const rows =
      reserve_scratch(scratch_, s.stride * static_cast<size_t>(height) + RowSink::kSlack);
  s.run([&] {
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
      for (int y = 0; y < height; ++y) {
        png_read_row(s.png, rows + static_cast<size_t>(y) * s.stride, nullptr);
      }
    }
  });
  for (int y = 0; y < roi.height; y += kChunkRows) {
    emit(rows + static_cast<size_t>(roi.y + y) * s.stride, roi, y,
         std::min(kChunkRows, roi.height - y), sink);
  }
}

PictureDecoder::Outcome PngDecoder::decode(const OpenPicture& picture, Rect roi, RowSink& sink) {
  const ImageInfo& info = picture.info;
  Session& s = *session_;
  const Opened opened(s, picture.bytes);
  s.run([&] { s.configure(picture.format); });
  const bool interlaced = png_get_interlace_type(s.png, s.info) != PNG_INTERLACE_NONE;
  if (s.stride != size_t{info.width} * s.pixel_bytes) {
    throw Error(ErrorKind::kDecode, "PNG: the header contradicts itself");
  }
  if (interlaced) {
    decode_interlaced(roi, sink);
  } else {
    decode_rows(roi, sink);
  }
  // Checksums of the last data chunk, and whether the file is whole.
  const bool to_the_end = interlaced || static_cast<uint32_t>(roi.y + roi.height) == info.height;
  if (to_the_end) s.run([&] { png_read_end(s.png, nullptr); });
  trim_scratch(scratch_);
  return {s.warned, false};
}

}  // namespace

constinit const CodecRow kPngCodec{Codec::kPng, "png",  "PNG",     "PNG",
                                   ".png",      begins, probe_png, make_decoder<PngDecoder>};

}  // namespace fastload
