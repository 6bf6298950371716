#include "decode/orientation.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstring>
#include <optional>
#include <string_view>

#include "decode/codecs/header_bytes.h"
#include "decode/rows.h"

namespace fastload {
namespace {

constexpr std::string_view kExif{"Exif\0\0", 6};

// ---- The first directory of a TIFF, as Pillow's ImageFileDirectory_v2 reads it

constexpr uint32_t kTag = 0x0112;  // Orientation

// Bytes of a value of each type; 0: not read.
constexpr uint8_t kUnits[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};

struct Tiff {
  Bytes bytes;
  bool little;

  [[nodiscard]] uint32_t get16(size_t at) const {
    return little ? little16(&bytes[at]) : big16(&bytes[at]);
  }
  [[nodiscard]] uint32_t get32(size_t at) const {
    return little ? little32(&bytes[at]) : big32(&bytes[at]);
  }
  [[nodiscard]] uint64_t get64(size_t at) const {
    const uint64_t first = get32(at), second = get32(at + 4);
    return little ? second << 32 | first : first << 32 | second;
  }
  [[nodiscard]] bool has(uint64_t at, uint64_t size) const {
    return at <= bytes.size() && size <= bytes.size() - at;
  }
};

bool begins_tiff(Bytes bytes) {
  using namespace std::string_view_literals;
  for (std::string_view magic : {"MM\0*"sv, "II*\0"sv, "MM*\0"sv, "II\0*"sv, "MM\0+"sv}) {
    if (starts_with(bytes, magic)) return true;
  }
  return false;
}

// The quotient where it is a whole number, else 0.
int whole(int64_t number, int64_t by) {
  if (by == 0 || number % by != 0) return 0;
  const int64_t quotient = number / by;
  return quotient >= 1 && quotient <= 8 ? static_cast<int>(quotient) : 0;
}

int whole(double number) {
  for (int one = 1; one <= 8; ++one) {
    if (number == one) return one;
  }
  return 0;
}

// The first number of a value; 0: it is none from 1 to 8. Bytes and text are no numbers.
int number_at(const Tiff& tiff, size_t at, uint32_t type) {
  switch (type) {
    case 3:
      return whole(int64_t{tiff.get16(at)}, 1);
    case 4:
    case 13:
      return whole(int64_t{tiff.get32(at)}, 1);
    case 5:
      return whole(int64_t{tiff.get32(at)}, int64_t{tiff.get32(at + 4)});
    case 6:
      return whole(int64_t{static_cast<int8_t>(tiff.bytes[at])}, 1);
    case 8:
      return whole(int64_t{static_cast<int16_t>(tiff.get16(at))}, 1);
    case 9:
      return whole(int64_t{static_cast<int32_t>(tiff.get32(at))}, 1);
    case 10:
      return whole(int64_t{static_cast<int32_t>(tiff.get32(at))},
                   int64_t{static_cast<int32_t>(tiff.get32(at + 4))});
    case 11:
      return whole(double{std::bit_cast<float>(tiff.get32(at))});
    case 12:
      return whole(std::bit_cast<double>(tiff.get64(at)));
    case 16:
      return whole(static_cast<int64_t>(std::min<uint64_t>(tiff.get64(at), 9)), 1);
    default:
      return 0;
  }
}

// What a directory says; nothing: no orientation. Of two entries of a tag the first counts, and
// what ends early counts up to there.
std::optional<Orientation> of_directory(const Tiff& tiff, size_t at) {
  std::bitset<65536> seen;
  std::optional<Orientation> found;
  if (!tiff.has(at, 2)) return found;
  const uint32_t count = tiff.get16(at);
  at += 2;
  uint64_t total = 0;
  for (uint32_t i = 0; i < count && tiff.has(at, 12); ++i, at += 12) {
    const uint32_t tag = tiff.get16(at), type = tiff.get16(at + 2);
    if (seen[tag] || type >= std::size(kUnits) || kUnits[type] == 0) continue;
    const uint64_t size = uint64_t{tiff.get32(at + 4)} * kUnits[type];
    uint64_t value = at + 8;
    if (size == 0) continue;
    if (size > 4) {
      value = tiff.get32(at + 8);
      total += size;
      if (total > tiff.bytes.size()) continue;
      if (!tiff.has(value, size)) break;
    }
    seen[tag] = true;
    if (tag == kTag) found = Orientation(number_at(tiff, static_cast<size_t>(value), type));
  }
  return found;
}

// ---- EXIF and XMP where the codecs keep them

struct Tags {
  bool has_exif = false;
  Bytes exif;                   // of one piece
  std::vector<uint8_t> joined;  // of several, or made
  Bytes xmp;
  std::vector<uint8_t> inflated;

  void set_exif(Bytes bytes) {
    has_exif = true;
    exif = bytes;
    joined.clear();
  }
  void add_exif(Bytes bytes) {
    if (joined.empty()) joined.assign(exif.begin(), exif.end());
    joined.insert(joined.end(), bytes.begin(), bytes.end());
  }
  void set_exif(std::vector<uint8_t> bytes) {
    has_exif = true;
    joined = std::move(bytes);
  }
  [[nodiscard]] Bytes whole_exif() const { return joined.empty() ? exif : Bytes(joined); }
};

// tiff:Orientation="6" or tiff:Orientation>6
Orientation of_xmp(Bytes xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  const std::string_view text(reinterpret_cast<const char*>(xmp.data()), xmp.size());
  for (size_t at = text.find(kName); at != text.npos; at = text.find(kName, at + 1)) {
    std::string_view rest = text.substr(at + kName.size());
    const size_t sign = rest.starts_with("=\"") ? 2 : rest.starts_with(">") ? 1 : 0;
    rest.remove_prefix(sign);
    if (sign == 0 || rest.empty() || rest[0] < '0' || rest[0] > '9') continue;
    return Orientation(rest[0] - '0');
  }
  return {};
}

Orientation of_tags(const Tags& tags) {
  Bytes exif = tags.whole_exif();
  for (int i = 0; i < 2 && starts_with(exif, kExif); ++i) exif = exif.subspan(kExif.size());
  if (tags.has_exif && !exif.empty()) {
    if (exif.size() < 8 || !begins_tiff(exif)) return {};
    const Tiff tiff{exif, exif[0] == 'I'};
    if (const auto found = of_directory(tiff, tiff.get32(4))) return *found;
  }
  return of_xmp(tags.xmp);
}

// The segments before the first scan.
void find_in_jpeg(Bytes file, Tags& tags) {
  constexpr std::string_view kXmp{"http://ns.adobe.com/xap/1.0/\0", 29};
  constexpr uint8_t kTem = 0x01, kRst0 = 0xD0, kSoi = 0xD8, kEoi = 0xD9, kSos = 0xDA, kApp1 = 0xE1;
  size_t at = 2;
  while (true) {
    while (at < file.size() && file[at] != 0xFF) ++at;
    while (at < file.size() && file[at] == 0xFF) ++at;
    if (at >= file.size()) return;
    const uint8_t marker = file[at++];
    if (marker == 0 || marker == kTem || (marker >= kRst0 && marker <= kSoi)) continue;
    if (marker == kSos || marker == kEoi || at + 2 > file.size()) return;
    const size_t length = std::max<size_t>(big16(&file[at]), 2);
    if (length > file.size() - at) return;
    const Bytes segment = file.subspan(at + 2, length - 2);
    at += length;
    if (marker != kApp1) continue;
    if (starts_with(segment, kExif)) {
      tags.has_exif ? tags.add_exif(segment.subspan(kExif.size())) : tags.set_exif(segment);
    } else if (starts_with(segment, kXmp)) {
      tags.xmp = segment.subspan(kXmp.size());
    }
  }
}

// Nothing: damaged, or of more than a text chunk may have.
std::vector<uint8_t> inflated(Bytes from) {
  constexpr size_t kMost = 1 << 20;  // Pillow's MAX_TEXT_CHUNK
  std::vector<uint8_t> to(std::min(kMost, std::max<size_t>(4096, from.size() * 8)));
  while (true) {
    uLongf size = to.size();
    const int result = uncompress(to.data(), &size, from.data(), static_cast<uLong>(from.size()));
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result == Z_OK) {
      to.resize(size);
      return to;
    }
    if (result != Z_BUF_ERROR || to.size() == kMost) return {};
    to.resize(std::min(kMost, to.size() * 8));
  }
}

// What stands before a NUL, which is taken off with it; nothing: there is no NUL.
std::optional<std::string_view> take_word(Bytes& bytes) {
  const auto* const end = static_cast<const uint8_t*>(std::memchr(bytes.data(), 0, bytes.size()));
  if (bytes.empty() || end == nullptr) return std::nullopt;
  const auto size = static_cast<size_t>(end - bytes.data());
  const std::string_view word(reinterpret_cast<const char*>(bytes.data()), size);
  bytes = bytes.subspan(size + 1);
  return word;
}

// ImageMagick's: three lines of name and size, then hexadecimal digits.
std::optional<std::vector<uint8_t>> of_profile(Bytes text) {
  size_t at = 0;
  for (int lines = 0; lines < 3; ++at) {
    if (at >= text.size()) return std::nullopt;
    if (text[at] == '\n') ++lines;
  }
  std::vector<uint8_t> bytes;
  int high = -1;
  for (; at < text.size(); ++at) {
    const uint8_t one = text[at];
    const int digit = one >= '0' && one <= '9'   ? one - '0'
                      : one >= 'a' && one <= 'f' ? one - 'a' + 10
                      : one >= 'A' && one <= 'F' ? one - 'A' + 10
                                                 : -1;
    const bool is_space = one == ' ' || (one >= '\t' && one <= '\r');
    if (digit < 0 && is_space && high < 0) continue;
    if (digit < 0) return std::nullopt;
    if (high >= 0) bytes.push_back(static_cast<uint8_t>(high << 4 | digit));
    high = high < 0 ? digit : -1;
  }
  if (high >= 0) return std::nullopt;
  return bytes;
}

// A text chunk's keyword and text; of a compressed one in `room`.
struct Text {
  std::string_view name;
  Bytes text;
};

std::optional<Text> text_of(std::string_view type, Bytes data, std::vector<uint8_t>& room) {
  const auto name = take_word(data);
  if (!name) return std::nullopt;
  bool packed = type == "zTXt";
  if (packed) {
    if (data.empty() || data[0] != 0) return std::nullopt;
    data = data.subspan(1);
  } else if (type == "iTXt") {
    if (data.size() < 2) return std::nullopt;
    packed = data[0] != 0;
    if (packed && data[1] != 0) return std::nullopt;
    data = data.subspan(2);
    if (!take_word(data) || !take_word(data)) return std::nullopt;
  }
  if (!packed) return Text{*name, data};
  room = inflated(data);
  return Text{*name, room};
}

// All chunks: EXIF may stand behind the pixels.
void find_in_png(Bytes file, Tags& tags) {
  constexpr size_t kSignature = 8, kHead = 8, kCrc = 4;
  std::vector<uint8_t> room;
  std::optional<std::optional<std::vector<uint8_t>>> profile;
  size_t at = kSignature;
  while (file.size() - at >= kHead) {
    const size_t length = big32(&file[at]);
    const std::string_view type(reinterpret_cast<const char*>(&file[at + 4]), 4);
    at += kHead;
    if (type == "IEND" || length > file.size() - at) break;
    const Bytes data = file.subspan(at, length);
    at += length;
    if (file.size() - at < kCrc) break;
    at += kCrc;
    if (type == "eXIf") tags.set_exif(data);
    if (type != "tEXt" && type != "zTXt" && type != "iTXt") continue;
    const auto found = text_of(type, data, room);
    if (!found) continue;
    if (found->name == "exif" && type == "tEXt") tags.set_exif(found->text);
    if (found->name == "Raw profile type exif") profile = of_profile(found->text);
    if (found->name == "XML:com.adobe.xmp") {
      tags.inflated.assign(found->text.begin(), found->text.end());
      tags.xmp = tags.inflated;
    }
  }
  if (tags.has_exif || !profile) return;
  if (!*profile) {
    tags.xmp = {};  // nothing can be read then
    return;
  }
  tags.set_exif(std::move(**profile));
}

void find_in_webp(Bytes file, Tags& tags) {
  constexpr size_t kFirst = 12, kHead = 8, kFlags = 20;
  constexpr uint8_t kHasXmp = 4, kHasExif = 8;
  if (file.size() <= kFlags || !starts_with(file, "VP8X", kFirst)) return;
  for (size_t at = kFirst; at <= file.size() && file.size() - at >= kHead;) {
    const size_t size = little32(&file[at + 4]);
    if (size > file.size() - at - kHead) return;
    const Bytes data = file.subspan(at + kHead, size);
    const bool is_exif = starts_with(file, "EXIF", at) && (file[kFlags] & kHasExif) != 0;
    const bool is_xmp = starts_with(file, "XMP ", at) && (file[kFlags] & kHasXmp) != 0;
    if (is_exif && !tags.has_exif && !data.empty()) tags.set_exif(data);
    if (is_xmp && tags.xmp.empty()) tags.xmp = data;
    at += kHead + size + (size & 1);
  }
}

}  // namespace

Orientation orientation_of(Bytes file) {
  Tags tags;
  switch (sniff(file)) {
    case Codec::kJpeg:
      find_in_jpeg(file, tags);
      break;
    case Codec::kPng:
      find_in_png(file, tags);
      break;
    case Codec::kWebp:
      find_in_webp(file, tags);
      break;
    case Codec::kTiff:
      tags.set_exif(file);
      break;
    default:
      return {};
  }
  return of_tags(tags);
}

// ---- Turning

Rect Orientation::stored(const Rect& part, int width, int height) const {
  Rect to = part;
  if (swaps()) to = {part.y, part.x, part.height, part.width};
  if (from_right()) to.x = width - to.x - to.width;
  if (from_bottom()) to.y = height - to.y - to.height;
  return to;
}

namespace {

// The stored part lies row by row, without gaps. Pieces of few columns, so that the stored rows
// that a turned column comes from stay in cache.
template <size_t kPixel>
void turn(Orientation how, const uint8_t* from, int width, int height, size_t pixel_bytes,
          uint8_t* to) {
  constexpr int kPiece = 32;
  const size_t size = kPixel == 0 ? pixel_bytes : kPixel;
  const auto step = static_cast<ptrdiff_t>(size);
  const auto row = static_cast<ptrdiff_t>(how.swaps() ? height : width) * step;
  const ptrdiff_t across = how.from_right() ? -step : step, down = how.from_bottom() ? -row : row;
  const ptrdiff_t dx = how.swaps() ? down : across, dy = how.swaps() ? across : down;
  const uint8_t* start = from;
  if (how.from_right()) start += row - step;
  if (how.from_bottom()) start += row * ((how.swaps() ? width : height) - 1);
  for (int left = 0; left < width; left += kPiece) {
    const int right = std::min(width, left + kPiece);
    for (int y = 0; y < height; ++y) {
      const uint8_t* one = start + y * dy + left * dx;
      uint8_t* out = to + (static_cast<ptrdiff_t>(y) * width + left) * step;
      for (int x = left; x < right; ++x, one += dx, out += size) std::memcpy(out, one, size);
    }
  }
}

}  // namespace

UprightSink::UprightSink(Orientation orientation, const Rect& part, size_t pixel_bytes,
                   std::vector<uint8_t>& scratch, RowSink& next)
    : orientation_(orientation),
      width_(part.width),
      height_(part.height),
      pixel_bytes_(pixel_bytes),
      row_bytes_(static_cast<size_t>(orientation.swaps() ? part.height : part.width) * pixel_bytes),
      stored_(nullptr),
      next_(next) {
  const size_t bytes = static_cast<size_t>(width_) * static_cast<size_t>(height_) * pixel_bytes;
  stored_ = reserve_scratch(scratch, 2 * bytes + kSlack);
}

void UprightSink::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  for (int i = 0; i < count; ++i) {
    std::memcpy(stored_ + static_cast<size_t>(y + i) * row_bytes_,
                pixels + static_cast<size_t>(i) * stride, row_bytes_);
  }
}

void UprightSink::finish() {
  const size_t row = static_cast<size_t>(width_) * pixel_bytes_;
  uint8_t* const turned = stored_ + row * static_cast<size_t>(height_);
  const auto made = pixel_bytes_ == 3 ? turn<3> : pixel_bytes_ == 1 ? turn<1> : turn<0>;
  made(orientation_, stored_, width_, height_, pixel_bytes_, turned);
  emit_rows(next_, turned, row, height_);
}

}  // namespace fastload
