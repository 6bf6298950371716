#include "transcode/rest.h"

#include <zlib.h>

#include <string>

#include "base/error.h"
#include "base/per_thread.h"
#include "decode/codecs/header_bytes.h"
#include "transcode/rest_dictionary.h"

namespace fastload {
namespace {

constexpr size_t kHead = 5;
constexpr uint8_t kOnesFlag = 1, kDeflatedFlag = 2;
constexpr int kLevel = 6;

[[noreturn]] void damaged(const std::string& what) {
  throw Error(ErrorKind::kDecode, "coefficient record: what is left of its JPEG " + what);
}

void check(int result, int wanted) {
  if (result == Z_MEM_ERROR) throw Error(ErrorKind::kMemory, "zlib: no memory");
  if (result != wanted) damaged("is damaged (zlib says " + std::to_string(result) + ")");
}

uInt length_of(Bytes bytes) { return static_cast<uInt>(bytes.size()); }

class Deflater {
 public:
  Deflater() { check(deflateInit(&stream_, kLevel), Z_OK); }
  ~Deflater() { deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  // False where the result has no fewer bytes than `to`.
  bool pack(Bytes from, std::vector<uint8_t>& to) {
    const Bytes known = rest_dictionary();
    check(deflateReset(&stream_), Z_OK);
    check(deflateSetDictionary(&stream_, known.data(), length_of(known)), Z_OK);
    stream_.next_in = const_cast<Bytef*>(from.data());  // zlib does not write there
    stream_.avail_in = length_of(from);
    stream_.next_out = to.data() + kHead;
    stream_.avail_out = static_cast<uInt>(to.size() - kHead);
    const int result = deflate(&stream_, Z_FINISH);
    if (result == Z_OK || result == Z_BUF_ERROR) return false;
    check(result, Z_STREAM_END);
    to.resize(to.size() - stream_.avail_out);
    return true;
  }

 private:
  z_stream stream_{};
};

class Inflater {
 public:
  Inflater() { check(inflateInit(&stream_), Z_OK); }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  void unpack(Bytes from, std::vector<uint8_t>& to) {
    const Bytes known = rest_dictionary();
    stream_.next_in = const_cast<Bytef*>(from.data());
    stream_.avail_in = length_of(from);
    stream_.next_out = to.data();
    stream_.avail_out = static_cast<uInt>(to.size());
    check(inflate(&stream_, Z_FINISH), Z_NEED_DICT);
    check(inflateSetDictionary(&stream_, known.data(), length_of(known)), Z_OK);
    check(inflate(&stream_, Z_FINISH), Z_STREAM_END);
    if (stream_.avail_in != 0 || stream_.avail_out != 0) damaged("has another length than it says");
  }

 private:
  z_stream stream_{};
};

}  // namespace

std::vector<uint8_t> pack_rest(Bytes frame) {
  if (frame.size() > kMaxFrameBytes) {
    throw Error(ErrorKind::kDecode, "cannot become a coefficient record: its headers have " +
                                        std::to_string(frame.size()) + " bytes; at most " +
                                        std::to_string(kMaxFrameBytes) + " are allowed");
  }
  auto& deflater = per_thread<Deflater>();
  std::vector<uint8_t> rest(kHead + frame.size());
  uint8_t flags = kOnesFlag;
  if (deflater.pack(frame, rest)) {
    flags |= kDeflatedFlag;
  } else {
    std::copy(frame.begin(), frame.end(), rest.begin() + kHead);
  }
  rest[0] = flags;
  for (size_t i = 0; i < 4; ++i) rest[1 + i] = static_cast<uint8_t>(frame.size() >> (8 * i));
  return rest;
}

void set_padding(std::vector<uint8_t>& rest, bool pads_with_ones) {
  rest[0] = static_cast<uint8_t>((rest[0] & ~kOnesFlag) | (pads_with_ones ? kOnesFlag : 0));
}

JpegRest unpack_rest(Bytes rest) {
  if (rest.size() < kHead || rest[0] > (kOnesFlag | kDeflatedFlag)) damaged("has no header");
  const size_t size = little32(&rest[1]);
  const Bytes packed = rest.subspan(kHead);
  if (size > kMaxFrameBytes) damaged("says that it has " + std::to_string(size) + " bytes");
  JpegRest result;
  result.pads_with_ones = (rest[0] & kOnesFlag) != 0;
  if ((rest[0] & kDeflatedFlag) == 0) {
    if (packed.size() != size) damaged("has another length than it says");
    result.frame.assign(packed.begin(), packed.end());
    return result;
  }
  // Deflate makes at most 1032 bytes of one.
  if (size / 1032 > packed.size()) damaged("is too short for what it says");
  result.frame.resize(size);
  Inflater().unpack(packed, result.frame);
  return result;
}

}  // namespace fastload
