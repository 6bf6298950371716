// transcode/: JPEG files taken apart and put together again; the coefficients are libjpeg's.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "check.h"
#include "levels.h"
#include "listed_planes.h"
#include "picture.h"
#include "random.h"
#include "rewritten_jpeg.h"
#include "transcode/jpeg_parts.h"
#include "transcode/rest.h"

namespace {

using namespace fastload;
using test::as_jpeg;
using test::Picture;
using test::Random;
using test::Rewriting;
using File = std::vector<uint8_t>;

File joined(const JpegParts& parts) {
  File file;
  join_jpeg(parts, file);
  return file;
}

void check_parts(const File& file, bool pads_with_ones = true) {
  JpegParts parts;
  split_jpeg(file, {}, parts);
  if (!pads_with_ones) set_padding(parts.rest, false);
  CHECK(joined(parts) == file);
  CHECK(parts.blocks.planes(parts.header) == test::coefficients_of(file));
}

bool can_be_taken_apart(const File& file) {
  JpegParts parts;
  try {
    split_jpeg(file, {}, parts);
    return joined(parts) == file;
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kDecode || error.kind() == ErrorKind::kLimit);
    return false;
  }
}

Picture drawn_picture(Random& random) {
  Picture picture;
  picture.width = random.in(1, 70);
  picture.height = random.in(1, 50);
  picture.sampling = std::array{0, 0x11, 0x21, 0x22, 0x12}[static_cast<size_t>(random.in(0, 4))];
  picture.quality = random.in(1, 100);
  picture.noise = random.coin();
  picture.optimize = random.coin();
  if (random.coin()) picture.restart = random.in(1, 12);
  return picture;
}

// Bytes of a marker segment, its length in front.
File segment(uint8_t marker, const File& body) {
  const size_t length = body.size() + 2;
  File bytes{0xFF, marker, static_cast<uint8_t>(length >> 8), static_cast<uint8_t>(length)};
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

File inserted(const File& file, size_t at, const File& bytes) {
  File result = file;
  result.insert(result.begin() + static_cast<ptrdiff_t>(at), bytes.begin(), bytes.end());
  return result;
}

// Where the file's marker segments of a kind begin, those that stuffed data holds not counted.
std::vector<size_t> places_of(const File& file, uint8_t marker) {
  std::vector<size_t> places;
  for (size_t at = 2; at + 4 <= file.size() && file[at] == 0xFF && file[at + 1] != 0xD9;) {
    if (file[at + 1] == marker) places.push_back(at);
    const bool is_scan = file[at + 1] == 0xDA;
    at += 2 + (size_t{file[at + 2]} << 8 | file[at + 3]);
    const auto in_scan = [&] {
      return file[at] != 0xFF || file[at + 1] == 0 || (file[at + 1] & 0xF8) == 0xD0;
    };
    while (is_scan && at + 1 < file.size() && in_scan()) ++at;
  }
  return places;
}

TEST(sequential_files_come_back) {
  Random random(1);
  for (int round = 0; round < 400; ++round) check_parts(as_jpeg(random, drawn_picture(random)));
}

TEST(every_small_size_comes_back) {
  Random random(2);
  for (const int sampling : {0, 0x11, 0x21, 0x22, 0x12}) {
    for (int size = 0; size < 18 * 18; ++size) {
      check_parts(as_jpeg(random, {.width = 1 + size % 18,
                                   .height = 1 + size / 18,
                                   .sampling = sampling,
                                   .quality = 90,
                                   .noise = true}));
    }
  }
}

TEST(every_instruction_set_writes_the_same) {
  Random random(3);
  const SimdLevel best = simd_level();
  for (int round = 0; round < 60; ++round) {
    const File file = as_jpeg(random, drawn_picture(random));
    for (const SimdLevel level : test::machine_levels()) {
      set_simd_level(simd_level_name(level));
      check_parts(file);
    }
    set_simd_level(simd_level_name(best));
  }
}

TEST(scans_of_any_script_come_back) {
  Random random(4);
  for (int round = 0; round < 600; ++round) {
    const File file = as_jpeg(random, drawn_picture(random));
    Rewriting how;
    how.is_progressive = round % 3 != 0;
    how.optimize = how.is_progressive || random.coin();
    if (random.coin()) how.restart = random.in(1, 9);
    if (random.coin()) how.restart_rows = random.in(0, 2);
    how.scans = test::drawn_scans(random, how.is_progressive, file);
    check_parts(test::rewritten(file, how));
  }
}

TEST(long_runs_of_empty_blocks_come_back) {
  // 40,000 blocks without AC coefficients, more than one run holds; and correction bits in each
  // block of a few thousand.
  Random random(5);
  const File empty = as_jpeg(random, {.width = 1600, .height = 1600, .sampling = 0, .quality = 1});
  check_parts(test::rewritten(empty, {.is_progressive = true}));
  const File noise = as_jpeg(
      random, {.width = 400, .height = 400, .sampling = 0x11, .quality = 95, .noise = true});
  check_parts(test::rewritten(noise, {.is_progressive = true}));
}

TEST(tables_of_sixteen_bits_come_back) {
  Random random(6);
  for (int round = 0; round < 20; ++round) {
    Picture picture = drawn_picture(random);
    File file = as_jpeg(random, picture);
    const std::vector<size_t> tables = places_of(file, 0xDB);
    CHECK(!tables.empty());
    // One table of 8 bits becomes one of 16.
    const size_t at = tables[0];
    File body{static_cast<uint8_t>(0x10 | (file[at + 4] & 15))};
    for (size_t i = 0; i < 64; ++i) {
      body.push_back(static_cast<uint8_t>(random.in(0, 3)));
      body.push_back(file[at + 5 + i]);
    }
    const File before(file.begin(), file.begin() + static_cast<ptrdiff_t>(at));
    const File behind(file.begin() + static_cast<ptrdiff_t>(at + 69), file.end());
    File changed = before;
    const File wide = segment(0xDB, body);
    changed.insert(changed.end(), wide.begin(), wide.end());
    changed.insert(changed.end(), behind.begin(), behind.end());
    check_parts(changed);
  }
}

TEST(what_lies_between_segments_comes_back) {
  Random random(7);
  for (int round = 0; round < 100; ++round) {
    File file = as_jpeg(random, drawn_picture(random));
    if (random.coin()) file = test::rewritten(file, {.is_progressive = true});
    const std::vector<size_t> scans = places_of(file, 0xDA);
    const size_t scan =
        scans[static_cast<size_t>(random.in(0, static_cast<int>(scans.size()) - 1))];
    const size_t end = file.size() - 2;
    // Fill bytes before a marker, comments, and tables that are said again.
    check_parts(inserted(file, scan, File(static_cast<size_t>(random.in(1, 9)), 0xFF)));
    check_parts(inserted(file, end, File(static_cast<size_t>(random.in(1, 9)), 0xFF)));
    check_parts(inserted(file, scan, segment(0xFE, random.samples(300))));
    check_parts(inserted(file, scan, segment(0xE5, random.samples(5))));
    const size_t table = places_of(file, 0xC4)[0];
    const size_t size = 2 + (size_t{file[table + 2]} << 8 | file[table + 3]);
    const auto begin = file.begin() + static_cast<ptrdiff_t>(table);
    check_parts(inserted(file, places_of(file, 0xC4)[0],
                         File(begin, begin + static_cast<ptrdiff_t>(size))));
    // Bytes behind the end.
    check_parts(inserted(file, file.size(), random.samples(static_cast<size_t>(random.in(1, 99)))));
  }
}

TEST(bits_before_a_marker_may_be_zeros) {
  int rounds = 0;
  Random random(8);
  for (int round = 0; round < 200; ++round) {
    Picture picture = drawn_picture(random);
    picture.restart = 0;
    const File file = as_jpeg(random, picture);
    // By joining, not by decoding: which of the last byte's bits are padding.
    JpegParts parts;
    split_jpeg(file, {}, parts);
    set_padding(parts.rest, false);
    const File zeros = joined(parts);
    if (zeros.size() != file.size()) continue;  // the last byte was stuffed
    rounds += zeros != file ? 1 : 0;
    check_parts(zeros, false);
  }
  CHECK(rounds > 100);
}

TEST(what_is_no_whole_file_is_refused) {
  Random random(9);
  const File file = as_jpeg(random, {.width = 40, .height = 30, .quality = 90, .noise = true});
  const File progressive = test::rewritten(file, {.is_progressive = true});
  for (const File* whole : {&file, &progressive}) {
    for (size_t size = 0; size < whole->size(); ++size) {
      CHECK(
          !can_be_taken_apart(File(whole->begin(), whole->begin() + static_cast<ptrdiff_t>(size))));
    }
  }
  JpegParts parts;
  DecodeLimits small;
  small.max_pixels = 1199;
  CHECK_THROWS(kLimit, "1199", split_jpeg(file, small, parts));
}

TEST(changed_files_are_refused_or_come_back) {
  Random random(10);
  int kept = 0;
  for (int round = 0; round < 6000; ++round) {
    File file = as_jpeg(random, {.width = random.in(1, 40),
                                 .height = random.in(1, 40),
                                 .sampling = random.coin() ? 0 : 0x22,
                                 .quality = random.in(20, 95),
                                 .restart = random.in(0, 3),
                                 .noise = true});
    if (round % 2 == 0) file = test::rewritten(file, {.is_progressive = true});
    for (int changes = random.in(1, 3); changes > 0; --changes) {
      const auto at = static_cast<size_t>(random.in(2, static_cast<int>(file.size()) - 1));
      file[at] = random.sample();
    }
    kept += can_be_taken_apart(file) ? 1 : 0;
  }
  CHECK(kept > 600 && kept < 5400);
}

TEST(changed_rests_are_refused_or_give_a_file) {
  Random random(11);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    File file = as_jpeg(random, {.width = 30, .height = 20, .quality = 80, .noise = true});
    if (round % 2 == 0) file = test::rewritten(file, {.is_progressive = true});
    JpegParts parts;
    split_jpeg(file, {}, parts);
    JpegRest rest = unpack_rest(parts.rest);
    for (int changes = random.in(1, 3); changes > 0; --changes) {
      const auto at = static_cast<size_t>(random.in(0, static_cast<int>(rest.frame.size()) - 1));
      rest.frame[at] = random.sample();
    }
    parts.rest = pack_rest(rest.frame);
    if (random.coin()) {
      const auto at = static_cast<size_t>(random.in(0, static_cast<int>(parts.rest.size()) - 1));
      parts.rest[at] = random.sample();
    }
    try {
      joined(parts);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kDecode);
      ++refused;
    }
  }
  CHECK(refused > 300 && refused < 2990);
}

TEST(coefficients_without_a_code_are_refused) {
  Random random(12);
  for (const bool is_progressive : {false, true}) {
    File file = as_jpeg(random, {.width = 30, .height = 20, .sampling = 0, .optimize = true});
    if (is_progressive) file = test::rewritten(file, {.is_progressive = true});
    JpegParts parts;
    split_jpeg(file, {}, parts);
    for (const int16_t value : {int16_t{-32768}, int16_t{32767}, int16_t{9000}}) {
      for (const size_t k : {size_t{0}, size_t{1}, size_t{63}}) {
        JpegParts changed = parts;
        auto planes = parts.blocks.planes(parts.header);
        planes[0][k] = value;
        test::list_planes(planes, changed);
        CHECK_THROWS(kDecode, "has no code", joined(changed));
      }
    }
  }
}

}  // namespace
