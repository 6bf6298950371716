// Entry points: where in a JPEG's entropy-coded data decoding may begin without what lies before.
//
// Huffman codes can only be read one after the other, and DC coefficients are coded as differences,
// so a decoder that wants the last row of blocks has to decode all others first. An entry point
// records what it would know by then: the byte, the bit, and the DC predictor of each component.
// The file itself stays as it is.
//
// Layout. An image has one entry for each segment of MCUs, in raster order. A segment is one row of
// MCUs (spacing 0), or ceil(spacing / MCU width) MCUs of a row, where a row's last segment may be
// shorter: each row starts a segment. Entries are little-endian integers without gaps:
//
//   3 components, 7 bytes: bits 0..2   bits of the byte already consumed
//                          bits 3..22  byte offset, relative to the entry before; for the first
//                          entry
//                                      to the first entropy-coded byte behind the SOS segment
//                          bits 23..33, 34..44, 45..55  DC predictors of Y, Cb, Cr before
//                                      dequantisation, two's complement
//   1 component, 5 bytes:  bits 0..2   bits of the byte already consumed
//                          bits 3..28  byte offset, relative likewise
//                          bits 29..39 DC predictor
//
// The offset counts the file's bytes, stuffing included, and never names the 00 of FF 00. The first
// entry is all zeros. Files with restart markers have no entries: the markers serve as such.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "decode/decode.h"
#include "decode/jpeg/parser.h"

namespace fastload {

struct EntryPoint {
  size_t offset = 0;  // in the file
  int bit = 0;
  std::array<int, 3> predictors{};
};

size_t entry_size(const JpegHeader& header);              // bytes
int segment_mcus(const JpegHeader& header, int spacing);  // MCUs in a segment, 1..mcus_per_row
int segments_per_row(const JpegHeader& header, int spacing);
size_t entry_count(const JpegHeader& header, int spacing);

// Unpacks the entries of the rows of MCUs before `rows`, and the one that follows if there is one.
// Throws Error(kFormat) if their number is not entry_count() or an offset is outside the file.
void unpack_entries(const JpegHeader& header, const EntryPoints& entries, size_t file_size,
                    int rows, std::vector<EntryPoint>& points);

// Which bytes of the file decoding of `rows` of MCUs reads, [begin, end), by entry points that are
// taken to be right. Nothing where there are none for this header, or they end before.
struct ByteRange {
  size_t begin, end;
};
struct McuRows {
  int begin, end;
};
std::optional<ByteRange> bytes_of_rows(const JpegHeader& header, const EntryPoints& entries,
                                       size_t file_size, McuRows rows);

// Appends one entry. False if it does not fit the layout (a delta or a predictor is too large).
bool pack_entry(const JpegHeader& header, const EntryPoint& point, size_t previous_offset,
                std::vector<uint8_t>& packed);

// The packed entries of an image, by one entropy decode of the whole file. Empty where there can be
// none: files that JpegDecoder does not take, files with restart markers, damaged files, and values
// that do not fit the layout. `spacing` is kRow or 1..65535, else Error(kValue).
std::vector<uint8_t> build_entries(Bytes file, int spacing, const DecodeLimits& limits = {});

}  // namespace fastload
