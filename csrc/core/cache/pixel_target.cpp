#include "cache/pixel_target.h"

#include <string>

#include "base/crc32c.h"
#include "base/error.h"
#include "io/guarded_range.h"

namespace fastload {
namespace {

std::string text(Extent size) {
  return std::to_string(size.width) + "x" + std::to_string(size.height);
}

}  // namespace

PixelTarget::PixelTarget(CacheFile& file, uint32_t decoded_side, const DecodeLimits& limits,
                         FallbackDecode fallback, const Shown& shown)
    : file_(file),
      cache_(file, decoded_tier(decoded_side), file.size()),
      side_(decoded_side),
      limits_(limits),
      fallback_(std::move(fallback)),
      shown_(shown) {}

void PixelTarget::put(uint64_t id, const Record& record, Bytes bytes) {
  std::unique_ptr<Tools> tools;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      tools = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (tools == nullptr) tools = std::make_unique<Tools>();
  decode(id, record, bytes, *tools);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(tools));
}

void PixelTarget::decode(uint64_t id, const Record& record, Bytes bytes, Tools& tools) {
  Decoder& decoder = tools.decoder;
  decoder.configure(limits_, fallback_);
  const bool is_raw = static_cast<Codec>(record.codec) == Codec::kRaw;
  const ImageInfo info = is_raw ? decoder.open_raw(bytes, record.width, record.height)
                                : decoder.open(bytes, {}, shown_);
  const Extent size{info.width, info.height};
  const Extent expected{record.width, record.height};
  if (size != expected) {
    throw Error(ErrorKind::kFormat, "sample " + std::to_string(id) + " has " + text(size) +
                                        " pixels, the index says " + text(expected) +
                                        ". Pack again.");
  }
  const Extent target = bounded(size, side_);
  if (cache_.wants(id, target.width, target.height)) {
    BoundedPicture picture(decoder, tools.resampler, tools.pixels);
    uint64_t resize_ns = 0;
    const Bytes pixels = picture.make(size, target, {}, resize_ns);
    if (!is_tail_there(bytes) && crc32c(bytes) != record.crc32c) throw_lost(id);
    if (is_lost(bytes)) throw_lost(id);
    cache_.store(id, pixels);
    picture.trim();
  }
  file_.check_stored(id);
}

}  // namespace fastload
