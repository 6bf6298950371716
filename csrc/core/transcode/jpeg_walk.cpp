#include "transcode/jpeg_walk.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "decode/codecs/header_bytes.h"

namespace fastload {
namespace {

constexpr uint8_t kSof0 = 0xC0, kSof2 = 0xC2, kDht = 0xC4, kRst0 = 0xD0, kRst7 = 0xD7, kEoi = 0xD9,
                  kSos = 0xDA, kDqt = 0xDB, kDri = 0xDD, kApp0 = 0xE0, kApp15 = 0xEF, kCom = 0xFE;
constexpr int kMaxScans = 100;  // libjpeg's users' limit for progressive files

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::kDecode, "cannot become a coefficient record: " + why);
}

}  // namespace

Bytes JpegWalk::segment() {
  if (bytes_.size() - at_ < 2) refuse("it ends inside a marker segment");
  const size_t length = big16(&bytes_[at_]);
  if (length < 2 || length > bytes_.size() - at_) refuse("it ends inside a marker segment");
  const Bytes body = bytes_.subspan(at_ + 2, length - 2);
  at_ += length;
  return body;
}

void JpegWalk::read_huffman(Bytes body) {
  size_t at = 0;
  while (at < body.size()) {
    const uint8_t head = body[at++];
    if ((head & 15) > 3 || head >> 4 > 1) refuse("a Huffman table of an illegal number");
    HuffmanSpec& spec = (head >> 4 != 0 ? ac_ : dc_)[head & 15];
    spec = HuffmanSpec{};
    if (body.size() - at < 16) refuse("a Huffman table is too short");
    size_t total = 0;
    for (size_t length = 1; length <= 16; ++length) total += spec.counts[length] = body[at++];
    if (total > 256 || body.size() - at < total) refuse("a Huffman table is too short");
    std::copy_n(body.data() + at, total, spec.symbols.begin());  // there may be none
    spec.present = true;
    at += total;
  }
}

void JpegWalk::read_scan(Bytes body) {
  if (++scans_ > kMaxScans) refuse("it has more than " + std::to_string(kMaxScans) + " scans");
  scan_ = {};
  const size_t count = body.empty() ? 0 : body[0];
  if (count < 1 || count > static_cast<size_t>(header_.component_count) ||
      body.size() != 4 + 2 * count) {
    refuse("a scan header is damaged");
  }
  scan_.component_count = static_cast<int>(count);
  int before = -1;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t id = body[1 + 2 * i], tables = body[2 + 2 * i];
    int index = before + 1;
    while (index < header_.component_count &&
           header_.components[static_cast<size_t>(index)].id != id) {
      ++index;
    }
    if (index == header_.component_count) refuse("a scan of components in an unusual order");
    before = scan_.component[i] = index;
    if (tables >> 4 > 3 || (tables & 15) > 3) refuse("a Huffman table of an illegal number");
    scan_.dc_table[i] = tables >> 4;
    scan_.ac_table[i] = tables & 15;
  }
  const uint8_t* const tail = &body[1 + 2 * count];
  scan_.first = tail[0];
  scan_.last = tail[1];
  scan_.high = tail[2] >> 4;
  scan_.low = tail[2] & 15;
  const bool is_whole = scan_.first == 0 && scan_.last == 63 && scan_.high == 0 && scan_.low == 0;
  const bool is_dc = scan_.first == 0 && scan_.last == 0;
  const bool is_ac =
      scan_.first >= 1 && scan_.last >= scan_.first && scan_.last <= 63 && count == 1;
  const bool is_step = scan_.low <= 13 && (scan_.high == 0 || scan_.high == scan_.low + 1);
  if (header_.is_progressive ? !((is_dc || is_ac) && is_step) : !is_whole) {
    refuse("a scan of unusual parameters");
  }
}

bool JpegWalk::next_scan() {
  while (true) {
    if (bytes_.size() - at_ < 2) refuse("it has no end marker");
    if (bytes_[at_] != 0xFF) refuse("there is garbage between its segments");
    while (at_ < bytes_.size() && bytes_[at_] == 0xFF) ++at_;
    if (at_ >= bytes_.size()) refuse("it has no end marker");
    const uint8_t marker = bytes_[at_++];
    if (marker == kEoi) {
      if (scans_ == 0) refuse("it has no scan");
      return false;
    }
    const bool is_known = marker == kDht || marker == kDri || marker == kSos || marker == kCom ||
                          (marker >= kApp0 && marker <= kApp15) ||
                          (scans_ == 0 && (marker == kDqt || (marker >= kSof0 && marker <= kSof2)));
    if (!is_known) refuse("there is an unusual segment (marker " + std::to_string(marker) + ")");
    const Bytes body = segment();
    if (marker == kDht) read_huffman(body);
    if (marker == kDri) {
      if (body.size() != 2) refuse("a restart interval is damaged");
      restart_interval_ = static_cast<int>(big16(body.data()));
    }
    if (marker == kSos) {
      read_scan(body);
      return true;
    }
  }
}

size_t end_of_scan(Bytes bytes, size_t begin) {
  size_t at = begin;
  while (at < bytes.size()) {
    const void* const found = std::memchr(&bytes[at], 0xFF, bytes.size() - at);
    if (found == nullptr) return bytes.size();
    at = static_cast<size_t>(static_cast<const uint8_t*>(found) - bytes.data());
    if (at + 1 >= bytes.size()) return at;
    const uint8_t next = bytes[at + 1];
    if (next != 0 && (next < kRst0 || next > kRst7)) return at;
    at += 2;
  }
  return bytes.size();
}

}  // namespace fastload
