// Coefficients and a rest to a JPEG file.
#include <string>

#include "base/error.h"
#include "transcode/jpeg_parts.h"
#include "transcode/jpeg_walk.h"
#include "transcode/rest.h"
#include "transcode/scan_writer.h"

namespace fastload {

bool is_same_frame(const JpegHeader& a, const JpegHeader& b) {
  if (a.width != b.width || a.height != b.height || a.component_count != b.component_count) {
    return false;
  }
  for (size_t c = 0; c < static_cast<size_t>(a.component_count); ++c) {
    const JpegComponent &one = a.components[c], &other = b.components[c];
    if (one.h != other.h || one.v != other.v ||
        a.quant[one.quant].steps != b.quant[other.quant].steps) {
      return false;
    }
  }
  return true;
}

bool is_same_picture(const JpegParts& a, const JpegParts& b) {
  return is_same_frame(a.header, b.header) && a.blocks == b.blocks;
}

void join_jpeg(const JpegParts& parts, std::vector<uint8_t>& file) {
  const JpegRest rest = unpack_rest(parts.rest);
  DecodeLimits any;
  any.max_pixels = UINT64_MAX;
  JpegHeader header;
  if (!parse_jpeg_frame(rest.frame, any, header) || !is_same_frame(header, parts.header) ||
      header.is_progressive != parts.is_progressive) {
    throw Error(ErrorKind::kDecode,
                "coefficient record: the JPEG's header is of another picture than the record's");
  }
  const Bytes frame = rest.frame;
  JpegWalk walk(frame, header);
  file.clear();
  ScanWriter writer(parts);
  size_t begin = 0;
  while (walk.next_scan()) {
    file.insert(file.end(), frame.begin() + static_cast<ptrdiff_t>(begin),
                frame.begin() + static_cast<ptrdiff_t>(walk.position()));
    begin = walk.position();
    writer.write(walk, rest.pads_with_ones, file);
  }
  file.insert(file.end(), frame.begin() + static_cast<ptrdiff_t>(begin), frame.end());
}

}  // namespace fastload
