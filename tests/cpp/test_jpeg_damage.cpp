// decode/jpeg: what is damaged in a scan, in its restart markers or in a file's entry points is
// refused where it is met, and what a region does not need is not looked at.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "decode/jpeg/decoder.h"
#include "decode/jpeg/entry_points.h"
#include "levels.h"
#include "picture.h"
#include "random.h"
#include "rewritten_jpeg.h"

namespace {

using namespace fastload;
using test::as_jpeg;
using test::Picture;
using test::Random;
using test::rewritten;
using Buffer = std::vector<uint8_t>;

constexpr Rect kAll{0, 0, 96, 64};  // MCUs of 16x16 pixels: 4 rows of 6
constexpr Rect kTop{0, 0, 96, 16};
constexpr Rect kBottom{0, 48, 96, 16};

Buffer picture(int restart, int sampling = 0x22) {
  Random random(3);
  Picture wanted{96, 64, sampling};
  wanted.restart = restart;
  wanted.noise = true;
  return as_jpeg(random, wanted);
}

JpegHeader header_of(const Buffer& file) {
  JpegHeader header;
  CHECK(parse_jpeg(file, {}, header));
  return header;
}

struct Collector final : RowSink {
  void restart() override { seen.clear(); }
  void rows(const uint8_t* pixels, size_t stride, int, int count) override {
    for (int i = 0; i < count; ++i) {
      const uint8_t* row = pixels + static_cast<size_t>(i) * stride;
      seen.insert(seen.end(), row, row + kAll.width * 3);
    }
  }
  Buffer seen;
};

Buffer decoded(JpegDecoder& decoder, const Buffer& file, Rect roi,
               const EntryPoints& entries = {}) {
  CHECK(decoder.open(file));
  Collector sink;
  decoder.decode(roi, sink, entries);
  return sink.seen;
}

Buffer decoded(const Buffer& file, Rect roi, const EntryPoints& entries = {}) {
  JpegDecoder decoder;
  return decoded(decoder, file, roi, entries);
}

// As long a file, whose scan is one bits alone.
Buffer of_ones(Buffer file) {
  const size_t begin = header_of(file).scan_begin;
  for (size_t i = begin; i < file.size() - 2; ++i) file[i] = (i - begin) % 2 == 0 ? 0xFF : 0;
  return file;
}

// Offsets of the restart markers' FF.
std::vector<size_t> markers_of(const Buffer& file) {
  std::vector<size_t> found;
  for (size_t i = header_of(file).scan_begin; i + 1 < file.size(); ++i) {
    if (file[i] == 0xFF && file[i + 1] >= 0xD0 && file[i + 1] <= 0xD7) found.push_back(i);
  }
  return found;
}

Buffer without(Buffer file, size_t offset, size_t count) {
  const auto begin = file.begin() + static_cast<ptrdiff_t>(offset);
  file.erase(begin, begin + static_cast<ptrdiff_t>(count));
  return file;
}

Buffer with(Buffer file, size_t offset, const Buffer& more) {
  file.insert(file.begin() + static_cast<ptrdiff_t>(offset), more.begin(), more.end());
  return file;
}

Buffer cut(Buffer file, size_t size) {
  file.resize(size);
  return file;
}

}  // namespace

TEST(restart_markers_come_in_order) {
  const Buffer file = picture(2);  // 12 segments: the numbers begin again
  const std::vector<size_t> markers = markers_of(file);
  CHECK_EQ(markers.size(), size_t{11});
  const Buffer whole = decoded(file, kAll);
  for (size_t i = 0; i < markers.size(); ++i) {
    CHECK_EQ(file[markers[i] + 1], static_cast<uint8_t>(0xD0 + i % 8));
    const std::string where = "before MCU " + std::to_string(2 * (i + 1)) + ".";
    Buffer wrong = file;
    wrong[markers[i] + 1] ^= 1;
    CHECK_THROWS(kDecode, "a restart marker is missing or out of order " + where,
                 decoded(wrong, kAll));
    CHECK_THROWS(kDecode, "a restart marker is missing or out of order",
                 decoded(wrong, kBottom).size());
    wrong[markers[i] + 1] = 0xD9;
    CHECK_THROWS(kDecode, "out of order " + where, decoded(wrong, kAll));
    // The last one may be followed by nothing else that begins with FF.
    CHECK_THROWS(kDecode, "a restart", decoded(without(file, markers[i], 2), kAll));
    // Fill bytes before a marker mean nothing.
    CHECK(decoded(with(file, markers[i], {0xFF, 0xFF}), kAll) == whole);
  }
}

TEST(a_restart_segment_ends_with_its_mcus) {
  const Buffer file = picture(2);
  const std::string error = "a restart segment is longer than its MCUs";
  for (const size_t marker : markers_of(file)) {
    CHECK_THROWS(kDecode, error, decoded(with(file, marker, {0x00}), kAll));
    CHECK_THROWS(kDecode, error, decoded(with(file, marker, {0xFF, 0x00}), kAll));
    CHECK_THROWS(kDecode, error, decoded(with(file, marker, Buffer(600, 1)), kAll));
  }
}

TEST(regions_need_the_segments_that_they_are_in) {
  const Buffer file = picture(2);
  const std::vector<size_t> markers = markers_of(file);
  const Buffer whole = decoded(file, kAll), top = decoded(file, kTop);
  const Buffer bottom = decoded(file, kBottom);
  CHECK(std::equal(top.begin(), top.end(), whole.begin()));
  CHECK(std::equal(bottom.rbegin(), bottom.rend(), whole.rbegin()));
  // A row has three segments, and the rows beside it give their chroma to its edge.
  CHECK(decoded(cut(file, markers[6] + 2), kTop) == top);
  CHECK_THROWS(kDecode, "", decoded(cut(file, markers[1]), kTop));
  CHECK_THROWS(kDecode, "a restart marker is missing before MCU 16.",
               decoded(cut(file, markers[7]), kBottom));
  Buffer hidden = file;  // before the region nothing but markers is looked at
  for (size_t i = header_of(file).scan_begin; i < markers[0]; ++i) hidden[i] = 1;
  CHECK(decoded(hidden, kBottom) == bottom);
}

TEST(a_scan_that_ends_is_an_error) {
  const Buffer file = picture(0);
  const JpegHeader header = header_of(file);
  const Buffer whole = decoded(file, kAll), top = decoded(file, kTop);
  const std::string error = "JPEG data: the data ends before MCU";
  const Buffer ones = of_ones(file);
  for (const SimdLevel level : test::machine_levels()) {
    JpegDecoder decoder(level);
    for (size_t size = header.scan_begin; size + 4 < file.size(); size += 131) {
      // What a decoder has behind the data, from this file or the one before, makes no difference.
      CHECK_THROWS(kDecode, "an illegal Huffman code", decoded(decoder, ones, kAll));
      CHECK_THROWS(kDecode, error, decoded(decoder, cut(file, size), kAll));
      const size_t end = size + (file[size - 1] == 0xFF);
      CHECK_THROWS(kDecode, error, decoded(decoder, with(file, end, {0xFF, 0xD9}), kAll));
    }
  }
  CHECK(decoded(cut(file, file.size() - 2), kAll) == whole);  // without EOI
  CHECK(decoded(cut(file, file.size() - 60), kTop) == top);
  CHECK_THROWS(kDecode, "", decoded(cut(file, file.size() - 60), kBottom));
}

TEST(components_share_a_table_of_either_kind) {
  const Buffer file = picture(0);
  const Buffer wanted = decoded(file, kAll);
  CHECK(decoded(rewritten(file, {}), kAll) == wanted);
  test::Rewriting mixed;
  mixed.mixes_tables = true;
  const Buffer other = rewritten(file, mixed);
  const JpegHeader header = header_of(other);
  CHECK(header.components[1].dc == header.components[0].dc);
  CHECK(header.components[1].ac != header.components[0].ac);
  CHECK(header.components[2].dc != header.components[0].dc);
  CHECK(header.components[2].ac == header.components[0].ac);
  CHECK(decoded(other, kAll) == wanted);
}

TEST(ones_are_no_code) {
  for (const int restart : {0, 2}) {
    CHECK_THROWS(kDecode, "JPEG data: an illegal Huffman code before MCU",
                 decoded(of_ones(picture(restart)), kAll));
  }
}

TEST(every_bit_of_an_entry_point_is_proved) {
  for (const int sampling : {0, 0x22}) {
    const Buffer file = picture(0, sampling);
    const JpegHeader header = header_of(file);
    const Buffer whole = decoded(file, kAll);
    for (const int spacing : {0, 32}) {
      const Buffer packed = build_entries(file, spacing);
      const size_t size = entry_size(header);
      CHECK_EQ(packed.size(), size * entry_count(header, spacing));
      CHECK(decoded(file, kAll, {packed, spacing}) == whole);
      for (size_t bit = 0; bit < packed.size() * 8; ++bit) {
        Buffer wrong = packed;
        wrong[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        try {
          decoded(file, kAll, {wrong, spacing});
        } catch (const Error& error) {
          const std::string what = error.what();
          if (bit < size * 8) CHECK(what.find("must be all zeros") != std::string::npos);
          continue;
        }
        test::fail(__FILE__, __LINE__, "bit " + std::to_string(bit) + " may be anything");
      }
    }
  }
}

TEST(entry_points_of_another_picture_are_refused) {
  const Buffer file = picture(0);
  const Buffer packed = build_entries(file, 0);
  const JpegHeader header = header_of(file);
  CHECK_EQ(packed.size(), 4 * entry_size(header));
  CHECK_THROWS(kFormat, "expected 4 of 7 bytes. Found: 27 bytes",
               decoded(file, kAll, {cut(packed, 27), 0}));
  CHECK_THROWS(kFormat, "expected 12 of 7 bytes. Found: 28 bytes",
               decoded(file, kAll, {packed, 32}));
  CHECK_THROWS(kFormat, "an offset lies behind the file's end",
               decoded(cut(file, header.scan_begin + 20), kAll, {packed, 0}));
  Buffer stuffed = file;  // the byte before an entry
  std::vector<EntryPoint> points;
  unpack_entries(header, {packed, 0}, file.size(), 4, points);
  CHECK_EQ(points.size(), size_t{4});
  stuffed[points[2].offset - 1] = 0xFF;
  CHECK_THROWS(kDecode, "an entry point lies inside a stuffed byte",
               decoded(stuffed, kAll, {packed, 0}));
  CHECK_THROWS(kDecode, "an entry point lies inside a stuffed byte",
               decoded(stuffed, {0, 40, 96, 8}, {packed, 0}));
  Buffer marked = file;
  marked[points[1].offset - 9] = 0xFF;
  marked[points[1].offset - 8] = 0xD9;
  CHECK_THROWS(kDecode, "", decoded(marked, kTop, {packed, 0}));
}

TEST(entry_points_hold_what_their_layout_has_room_for) {
  for (const int sampling : {0, 0x22}) {
    const JpegHeader header = header_of(picture(0, sampling));
    const size_t most = (size_t{1} << (sampling == 0 ? 26 : 20)) - 1;
    const auto packs = [&](size_t delta, int bit, std::array<int, 3> predictors) {
      std::vector<uint8_t> packed;
      return pack_entry(header, {1000 + delta, bit, predictors}, 1000, packed);
    };
    CHECK(packs(most, 7, {1023, -1024, 1023}));
    CHECK(!packs(most + 1, 0, {}));
    CHECK(!packs(0, 0, {1024, 0, 0}));
    CHECK(!packs(0, 0, {-1025, 0, 0}));
    CHECK(packs(0, 0, {0, 0, 1024}) == (sampling == 0));  // what a gray picture has not
    CHECK(packs(0, 0, {0, -1025, 0}) == (sampling == 0));
  }
}

TEST(entry_points_come_back_as_they_were_packed) {
  Random random(4);
  for (const int sampling : {0, 0x22}) {
    const JpegHeader header = header_of(picture(0, sampling));
    for (int i = 0; i < 200; ++i) {
      std::vector<EntryPoint> wanted(entry_count(header, EntryPoints::kRow)), found;
      size_t offset = header.scan_begin;
      std::vector<uint8_t> packed;
      for (size_t at = 0; at < wanted.size(); ++at) {
        const size_t before = offset;
        if (at > 0) offset += static_cast<size_t>(random.in(0, (1 << 20) - 1));
        wanted[at].offset = offset;
        if (at > 0) {
          wanted[at].bit = random.in(0, 7);
          for (int c = 0; c < header.component_count; ++c) {
            wanted[at].predictors[static_cast<size_t>(c)] = random.in(-1024, 1023);
          }
        }
        CHECK(pack_entry(header, wanted[at], before, packed));
      }
      unpack_entries(header, {packed, 0}, offset + 1, header.mcu_rows, found);
      CHECK_EQ(found.size(), wanted.size());
      for (size_t at = 0; at < wanted.size(); ++at) {
        CHECK_EQ(found[at].offset, wanted[at].offset);
        CHECK_EQ(found[at].bit, wanted[at].bit);
        for (int c = 0; c < header.component_count; ++c) {
          const auto place = static_cast<size_t>(c);
          CHECK_EQ(found[at].predictors[place], wanted[at].predictors[place]);
        }
      }
      CHECK_THROWS(kFormat, "an offset lies behind the file's end",
                   unpack_entries(header, {packed, 0}, offset, header.mcu_rows, found));
    }
  }
}

TEST(rows_say_which_bytes_they_are_in) {
  const Buffer file = picture(0);
  const JpegHeader header = header_of(file);
  const Buffer packed = build_entries(file, 0);
  std::vector<EntryPoint> points;
  unpack_entries(header, {packed, 0}, file.size(), 4, points);
  const auto range = [&](int begin, int end) {
    return bytes_of_rows(header, {packed, 0}, file.size(), {begin, end});
  };
  for (int begin = 0; begin < 4; ++begin) {
    for (int end = begin + 1; end <= 4; ++end) {
      const auto found = range(begin, end);
      CHECK(found.has_value());
      CHECK_EQ(found->begin, points[static_cast<size_t>(begin)].offset - 1);
      CHECK_EQ(found->end, end == 4 ? file.size() : points[static_cast<size_t>(end)].offset + 2);
    }
  }
  CHECK(!bytes_of_rows(header, {cut(packed, 27), 0}, file.size(), {0, 1}).has_value());
  CHECK(!bytes_of_rows(header, {packed, 0}, points[2].offset, {0, 2}).has_value());
  const auto short_file = bytes_of_rows(header, {packed, 0}, points[2].offset + 1, {0, 2});
  CHECK(short_file.has_value());
  CHECK_EQ(short_file->end, points[2].offset + 1);
}

TEST(entry_points_stand_so_many_pixels_apart) {
  const Buffer file = picture(0);
  const JpegHeader header = header_of(file);
  for (const auto& [spacing, in_a_row] :
       {std::pair{0, 1}, {1, 6}, {16, 6}, {17, 3}, {32, 3}, {80, 2}, {96, 1}, {65535, 1}}) {
    CHECK_EQ(segments_per_row(header, spacing), in_a_row);
    CHECK_EQ(entry_count(header, spacing), static_cast<size_t>(4 * in_a_row));
    CHECK_EQ(build_entries(file, spacing).size(), static_cast<size_t>(4 * in_a_row) * 7);
  }
  for (const int spacing : {-1, 65536}) {
    CHECK_THROWS(kValue,
                 "spacing must be 0 (rows of MCUs) or 1..65535 pixels. Found: " +
                     std::to_string(spacing) + ".",
                 build_entries(file, spacing));
  }
  CHECK(build_entries(picture(2), 0).empty());                  // has markers
  CHECK(build_entries(cut(file, file.size() / 2), 0).empty());  // is damaged
}
