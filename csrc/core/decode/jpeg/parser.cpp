#include "decode/jpeg/parser.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"

namespace fastload {

namespace {

constexpr int kSof0 = 0xC0, kSof1 = 0xC1, kSof2 = 0xC2, kDht = 0xC4, kSos = 0xDA, kDqt = 0xDB,
              kDri = 0xDD;
constexpr int kApp0 = 0xE0, kApp14 = 0xEE, kApp15 = 0xEF, kCom = 0xFE;

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

[[noreturn]] void damaged(const std::string& what, size_t offset) {
  throw Error(ErrorKind::kDecode,
              "JPEG header: " + what + " at byte " + std::to_string(offset) + ".");
}

// The parameters of one marker segment. Reads past its end throw.
class SegmentReader {
 public:
  SegmentReader(Bytes bytes, size_t offset) : bytes_(bytes), offset_(offset) {}
  [[nodiscard]] size_t left() const { return bytes_.size() - at_; }
  int u8() {
    if (left() < 1) damaged("a marker segment is too short", offset_ + at_);
    return bytes_[at_++];
  }
  int u16() {
    const int high = u8();
    return high << 8 | u8();
  }
  void finish() const {
    if (left() != 0) damaged("a marker segment is longer than its contents", offset_ + at_);
  }
  [[nodiscard]] bool starts_with(const char* text, size_t size) const {
    return bytes_.size() >= size && std::memcmp(bytes_.data(), text, size) == 0;
  }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] int byte(size_t i) const { return bytes_[i]; }
  [[nodiscard]] size_t offset() const { return offset_ + at_; }

 private:
  Bytes bytes_;
  size_t offset_;
  size_t at_ = 0;
};

enum class Next { kContinue, kScan, kNotOurs };

class Parser {
 public:
  // With `any_scan`, frames of more than one scan are taken, progressive ones among them.
  Parser(Bytes bytes, const DecodeLimits& limits, JpegHeader& header, bool any_scan)
      : bytes_(bytes), limits_(limits), header_(header), any_scan_(any_scan) {}

  bool parse() {
    if (bytes_.size() < 4 || bytes_[0] != 0xFF || bytes_[1] != 0xD8) return false;
    at_ = 2;
    for (;;) {
      const int marker = next_marker();
      if (marker < 0 || !has_parameters(marker)) return false;
      SegmentReader segment = read_segment();
      const Next next = handle(marker, segment);
      if (next == Next::kNotOurs) return false;
      if (next == Next::kScan) return true;
    }
  }

 private:
  // The next marker's second byte; -1 where garbage lies between segments, which libjpeg skips.
  int next_marker() {
    if (at_ + 2 > bytes_.size()) damaged("the file ends before its scan", at_);
    if (bytes_[at_] != 0xFF) return -1;
    while (at_ < bytes_.size() && bytes_[at_] == 0xFF) ++at_;  // fill bytes may precede a marker
    if (at_ >= bytes_.size()) damaged("the file ends before its scan", at_);
    return bytes_[at_++];
  }

  [[nodiscard]] bool has_parameters(int marker) const {
    return marker == kSof0 || (any_scan_ && marker == kSof2) || marker == kSof1 || marker == kDht ||
           marker == kSos || marker == kDqt || marker == kDri ||
           (marker >= kApp0 && marker <= kApp15) || marker == kCom;
  }

  SegmentReader read_segment() {
    if (bytes_.size() - at_ < 2) damaged("the file ends inside a marker segment", at_);
    const size_t length = static_cast<size_t>(bytes_[at_]) << 8 | bytes_[at_ + 1];
    if (length < 2) damaged("a marker segment's length is below 2", at_);
    if (bytes_.size() - at_ < length) damaged("the file ends inside a marker segment", at_);
    SegmentReader segment(bytes_.subspan(at_ + 2, length - 2), at_ + 2);
    at_ += length;
    return segment;
  }

  Next handle(int marker, SegmentReader& segment) {
    switch (marker) {
      case kSof0:
      case kSof1:
      case kSof2:
        header_.is_progressive = marker == kSof2;
        return frame(segment);
      case kDht:
        huffman_tables(segment);
        return Next::kContinue;
      case kDqt:
        quant_tables(segment);
        return Next::kContinue;
      case kDri:
        header_.restart_interval = segment.u16();
        segment.finish();
        return Next::kContinue;
      case kSos:
        return scan(segment);
      case kApp0:
        // libjpeg wants the 14 bytes of a whole JFIF header.
        if (segment.size() >= 14 && segment.starts_with("JFIF\0", 5)) jfif_ = true;
        return Next::kContinue;
      case kApp14:
        if (segment.size() >= 12 && segment.starts_with("Adobe", 5)) {
          adobe_ = true;
          adobe_transform_ = segment.byte(11);
        }
        return Next::kContinue;
      default:
        return Next::kContinue;
    }
  }

  void quant_tables(SegmentReader& segment) {
    while (segment.left() > 0) {
      const int head = segment.u8();
      const int number = head & 15;
      if (number > 3 || head >> 4 > 1)
        damaged("illegal quantisation table number", segment.offset());
      QuantTable& table = header_.quant[static_cast<size_t>(number)];
      for (const uint8_t position : kZigzag) {
        table.steps[position] =
            static_cast<uint16_t>(head >> 4 != 0 ? segment.u16() : segment.u8());
      }
      table.present = true;
    }
  }

  void huffman_tables(SegmentReader& segment) {
    while (segment.left() > 0) {
      const int head = segment.u8();
      if ((head & 15) > 3 || head >> 4 > 1)
        damaged("illegal Huffman table number", segment.offset());
      auto& tables = head >> 4 != 0 ? header_.ac : header_.dc;
      HuffmanSpec& spec = tables[static_cast<size_t>(head & 15)];
      spec = HuffmanSpec{};
      int total = 0;
      for (size_t length = 1; length <= 16; ++length) {
        spec.counts[length] = static_cast<uint8_t>(segment.u8());
        total += spec.counts[length];
      }
      if (total > 256) damaged("a Huffman table has more than 256 symbols", segment.offset());
      for (int i = 0; i < total; ++i) {
        spec.symbols[static_cast<size_t>(i)] = static_cast<uint8_t>(segment.u8());
      }
      spec.present = true;
    }
  }

  Next frame(SegmentReader& segment) {
    if (header_.component_count != 0) damaged("a second frame header", segment.offset());
    const int precision = segment.u8();
    header_.height = segment.u16();
    header_.width = segment.u16();
    const int count = segment.u8();
    if (precision != 8 || (count != 1 && count != 3)) return Next::kNotOurs;
    if (header_.height == 0 || header_.width == 0) return Next::kNotOurs;  // DNL, or empty
    header_.component_count = count;
    for (int i = 0; i < count; ++i) {
      JpegComponent& component = header_.components[static_cast<size_t>(i)];
      component.id = static_cast<uint8_t>(segment.u8());
      const int factors = segment.u8();
      component.h = static_cast<uint8_t>(factors >> 4);
      component.v = static_cast<uint8_t>(factors & 15);
      component.quant = static_cast<uint8_t>(segment.u8());
      if (component.h < 1 || component.h > 4 || component.v < 1 || component.v > 4 ||
          component.quant > 3) {
        damaged("illegal sampling factors or table number", segment.offset());
      }
    }
    segment.finish();
    check_limits();
    return set_layout() ? Next::kContinue : Next::kNotOurs;
  }

  void check_limits() const {
    const auto width = static_cast<uint64_t>(header_.width);
    const auto height = static_cast<uint64_t>(header_.height);
    if (width > limits_.max_side || height > limits_.max_side ||
        width * height > limits_.max_pixels) {
      throw Error(ErrorKind::kLimit,
                  "JPEG size must be at most " + std::to_string(limits_.max_side) + " a side and " +
                      std::to_string(limits_.max_pixels) + " pixels. Found: " +
                      std::to_string(width) + "x" + std::to_string(height) + ".");
    }
  }

  // Fills the MCU geometry; false for a sampling that is left to libjpeg-turbo.
  bool set_layout() {
    auto& c = header_.components;
    if (header_.component_count == 1) {
      c[0].h = c[0].v = 1;  // one component is never interleaved: an MCU is one block
    } else {
      if (c[0].h > 2 || c[0].v > 2) return false;
      if (c[1].h != 1 || c[1].v != 1 || c[2].h != 1 || c[2].v != 1) return false;
      if (c[0].id == c[1].id || c[0].id == c[2].id || c[1].id == c[2].id) return false;
    }
    lay_out_mcus(header_);
    return true;
  }

  // Whether libjpeg would take three components for YCbCr (default_decompress_parms in jdapimin.c).
  [[nodiscard]] bool is_ycc() const {
    if (jfif_) return true;
    if (adobe_) return adobe_transform_ == 1;
    const auto& c = header_.components;
    return !(c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B');
  }

  Next scan(SegmentReader& segment) {
    if (header_.component_count == 0) damaged("a scan before the frame header", segment.offset());
    if (any_scan_) return first_scan(segment);
    const int count = segment.u8();
    if (count != header_.component_count) return Next::kNotOurs;
    for (int i = 0; i < count; ++i) {
      JpegComponent& component = header_.components[static_cast<size_t>(i)];
      if (segment.u8() != component.id) return Next::kNotOurs;
      const int tables = segment.u8();
      component.dc = static_cast<uint8_t>(tables >> 4);
      component.ac = static_cast<uint8_t>(tables & 15);
      check_tables(component, segment.offset());
    }
    const int first = segment.u8(), last = segment.u8(), approximation = segment.u8();
    segment.finish();
    if (first != 0 || last != 63 || approximation != 0) return Next::kNotOurs;
    if (header_.component_count == 3 && !is_ycc()) return Next::kNotOurs;
    header_.scan_begin = at_;
    return Next::kScan;
  }

  // Which components it has, and how, is not looked at.
  Next first_scan(const SegmentReader& segment) {
    for (int i = 0; i < header_.component_count; ++i) {
      check_quant(header_.components[static_cast<size_t>(i)], segment.offset());
    }
    if (header_.component_count == 3 && !is_ycc()) return Next::kNotOurs;
    header_.scan_begin = at_;
    return Next::kScan;
  }

  void check_tables(const JpegComponent& component, size_t offset) const {
    if (component.dc > 3 || component.ac > 3) damaged("illegal Huffman table number", offset);
    if (!header_.dc[component.dc].present || !header_.ac[component.ac].present) {
      damaged("a Huffman table is missing", offset);
    }
    check_quant(component, offset);
  }

  void check_quant(const JpegComponent& component, size_t offset) const {
    if (!header_.quant[component.quant].present) damaged("a quantisation table is missing", offset);
  }

  Bytes bytes_;
  const DecodeLimits& limits_;
  JpegHeader& header_;
  const bool any_scan_;
  size_t at_ = 0;
  bool jfif_ = false;
  bool adobe_ = false;
  int adobe_transform_ = 0;
};

}  // namespace

int JpegHeader::plane_width(int component) const {
  return component == 0 ? width : ceil_div(width, components[0].h);
}

int JpegHeader::plane_height(int component) const {
  return component == 0 ? height : ceil_div(height, components[0].v);
}

void lay_out_mcus(JpegHeader& header) {
  const JpegComponent& luma = header.components[0];
  header.mcu_width = 8 * luma.h;
  header.mcu_height = 8 * luma.v;
  header.mcus_per_row = ceil_div(header.width, header.mcu_width);
  header.mcu_rows = ceil_div(header.height, header.mcu_height);
  header.blocks_per_mcu = header.component_count == 1 ? 1 : luma.h * luma.v + 2;
}

bool parse_jpeg(Bytes bytes, const DecodeLimits& limits, JpegHeader& header) {
  header = JpegHeader{};
  return Parser(bytes, limits, header, false).parse();
}

bool parse_jpeg_frame(Bytes bytes, const DecodeLimits& limits, JpegHeader& header) {
  header = JpegHeader{};
  return Parser(bytes, limits, header, true).parse();
}

}  // namespace fastload
