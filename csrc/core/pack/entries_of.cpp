#include "pack/entries_of.h"

#include <algorithm>

#include "base/crc32c.h"
#include "decode/decode.h"
#include "decode/jpeg/entry_points.h"
#include "decode/orientation.h"

namespace fastload {
namespace {

void append32(uint32_t value, std::vector<uint8_t>& to) {
  for (int i = 0; i < 4; ++i) to.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

// Of a file that has entry points, so its header can be read.
std::vector<uint8_t> parts_of(Bytes file) {
  std::vector<uint8_t> parts;
  JpegHeader header;
  if (file.size() < kLeastForParts || !parse_jpeg(file, {}, header)) return parts;
  append32(static_cast<uint32_t>(header.scan_begin), parts);
  parts.push_back(static_cast<uint8_t>(header.mcu_width));
  parts.push_back(static_cast<uint8_t>(header.mcu_height));
  parts.push_back(static_cast<uint8_t>(header.component_count));
  parts.push_back(0);
  for (size_t at = 0; at < file.size(); at += kPartBytes) {
    append32(crc32c(file.subspan(at, std::min<size_t>(kPartBytes, file.size() - at))), parts);
  }
  return parts;
}

}  // namespace

PackedEntries entries_of(Reader& reader, std::span<const uint64_t> ids, int spacing) {
  PackedEntries all;
  std::vector<uint8_t> scratch;
  for (const uint64_t id : ids) {
    std::vector<uint8_t> one, parts;
    if (static_cast<Codec>(reader.index().record(id).codec) == Codec::kJpeg) {
      const Bytes file = reader.read(id, scratch);
      one = build_entries(file, spacing);
      // Parts are planned by rows as they are stored; what is turned is read whole.
      const bool turned = reader.shown().turned && orientation_of(file).turns();
      if (!one.empty() && !turned) parts = parts_of(file);
    }
    for (const std::vector<uint8_t>& bytes : {one, parts}) {
      all.packed.insert(all.packed.end(), bytes.begin(), bytes.end());
      all.sizes.push_back(static_cast<uint32_t>(bytes.size()));
    }
  }
  return all;
}

}  // namespace fastload
