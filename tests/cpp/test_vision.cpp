// csrc/core/vision/: sizes where floors and halves decide, rows on memory of exactly the promised
// size, rows that are missing or come again. Tests against Pillow are in
// tests/transform/test_vision_rows.py.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "check.h"
#include "levels.h"
#include "random.h"
#include "vision/cutter.h"
#include "vision/numbers.h"
#include "vision/rule.h"
#include "vision/values.h"

namespace {

using fastload::DType;
using fastload::look_up_bfloat16;
using fastload::look_up_float32;
using fastload::plan;
using fastload::RowSink;
using fastload::ValueRuns;
using fastload::vision_rule;
using fastload::VisionCutter;
using fastload::VisionNumber;
using fastload::VisionPlan;
using fastload::VisionRule;
using fastload::VisionSizes;
using fastload::VisionValues;
using fastload::test::Random;
using Bytes = std::vector<uint8_t>;
using Numbers = std::vector<std::pair<std::string, VisionNumber>>;

VisionRule rule_of(const std::string& family, const Numbers& numbers = {}) {
  return vision_rule(family, numbers);
}

Numbers one(const std::string& name, double value) { return {{name, {{value}, ""}}}; }

// Small tiles, so that pictures of a few pixels have several.
std::vector<VisionRule> small_rules() {
  return {
      rule_of("qwen2_vl", {{"patch", {{5}, ""}}, {"max_pixels", {{5000}, ""}}}),
      rule_of("qwen2_vl", {{"patch", {{17}, ""}}, {"temporal", {{1}, ""}}, {"merge", {{1}, ""}}}),
      rule_of("qwen2_vl", {{"patch", {{1}, ""}}, {"min_pixels", {{4}, ""}}}),
      rule_of("siglip2", {{"patch", {{3}, ""}}, {"max_patches", {{40}, ""}}}),
      rule_of("idefics3", {{"longest_edge", {{70}, ""}}, {"tile", {{20}, ""}}}),
      rule_of("llava_onevision", {{"tile", {{16}, ""}}, {"pinpoints", {{16, 48, 32, 32}, ""}}}),
      rule_of("internvl", {{"tile", {{19}, ""}}, {"crop_to_patches", {{1}, ""}}}),
      rule_of("gemma3",
              {{"size", {{21, 33}, ""}}, {"pan_and_scan", {{1}, ""}}, {"pan_min_crop", {{8}, ""}}}),
      rule_of("paligemma", {{"size", {{9, 70}, ""}}}),
      rule_of("llava_onevision", {{"tile", {{16}, ""}},
                                  {"pinpoints", {{16, 48, 32, 32}, ""}},
                                  {"first_max_pixels", {{900}, ""}}}),
  };
}

// A picture whose last row ends with what a sink may read.
struct Picture {
  int width, height;
  Bytes pixels;
  [[nodiscard]] size_t stride() const { return static_cast<size_t>(width) * 3; }
};

Picture random_picture(Random& random, int most) {
  Picture picture{random.in(1, most), random.in(1, most), {}};
  const size_t bytes = picture.stride() * static_cast<size_t>(picture.height);
  picture.pixels = random.samples(bytes + RowSink::kSlack);
  return picture;
}

void feed(RowSink& sink, const Picture& picture, int end, int chunk) {
  for (int y = 0; y < end; y += chunk) {
    const uint8_t* const from = picture.pixels.data() + picture.stride() * static_cast<size_t>(y);
    sink.rows(from, picture.stride(), y, std::min(chunk, end - y));
  }
}

Bytes cut(VisionCutter& cutter, const VisionPlan& how, const Picture& picture, int chunk,
          int pictures = 1) {
  const VisionSizes sizes = plan(how.rule(), picture.width, picture.height, pictures);
  Bytes out(how.rule().row_bytes(how.dtype()) * static_cast<size_t>(sizes.rows), 0xA5);
  cutter.begin(how, sizes, out.data());
  CHECK_EQ(cutter.source().width, picture.width);
  CHECK_EQ(cutter.source().height, picture.height);
  feed(cutter, picture, picture.height, chunk);
  cutter.end();
  return out;
}

TEST(halves_are_rounded_to_even) {
  const VisionRule rule = rule_of("qwen2_vl");
  CHECK_EQ(plan(rule, 42, 112).width, 56);   // 1.5 factors
  CHECK_EQ(plan(rule, 70, 112).width, 56);   // 2.5
  CHECK_EQ(plan(rule, 98, 112).width, 112);  // 3.5
  CHECK_EQ(plan(rule, 70, 112).tokens, 8);
}

TEST(sides_that_round_to_nothing_grow) {
  const VisionRule rule = rule_of("qwen2_vl");
  CHECK_EQ(plan(rule, 1, 1).width, 56);
  CHECK_EQ(plan(rule, 1, 200).width, 28);
  CHECK_THROWS(kValue, "Found: 1 x 201 pixels", plan(rule, 1, 201));
  CHECK_THROWS(kValue, "Found: 201 x 1 pixels", plan(rule, 201, 1));
}

TEST(llama_factory_resizes_twice) {
  const VisionRule rule = rule_of("qwen2_vl", one("first_max_pixels", 768 * 768));
  const VisionSizes sizes = plan(rule, 2000, 700);
  CHECK_EQ(sizes.steps.size(), size_t{2});
  CHECK_EQ(sizes.steps[0].width, 1298);  // int(2000 * sqrt(589824 / 1400000))
  CHECK_EQ(sizes.steps[0].height, 454);
  CHECK_EQ(plan(rule, 768, 768).steps.size(), size_t{1});
  CHECK_EQ(plan(rule_of("paligemma", one("first_max_pixels", 900)), 90, 40).steps.size(), size_t{2});
}

TEST(idefics3_is_one_tile_or_several_and_the_whole) {
  const VisionRule rule = rule_of("idefics3", one("longest_edge", 364));
  CHECK_EQ(plan(rule, 100, 60).rows, int64_t{1});
  CHECK_EQ(plan(rule, 100, 60).grid_width, 0);
  const VisionSizes many = plan(rule_of("idefics3"), 100, 60);
  CHECK_EQ(many.grid_width, 4);
  CHECK_EQ(many.grid_height, 3);
  CHECK_EQ(many.rows, int64_t{13});
  CHECK_EQ(many.tokens, int64_t{13 * 169});
}

TEST(of_several_pictures_llava_makes_one_row_each) {
  const VisionRule rule = rule_of("llava_onevision");
  CHECK_EQ(plan(rule, 500, 375, 2).rows, int64_t{1});
  CHECK(plan(rule, 500, 375, 1).rows > 1);
  CHECK_THROWS(kValue, "at least 1", plan(rule, 500, 375, 0));
}

// The constants of the families, so that nobody waits for the scalar code.
TEST(vectors_make_the_tables_of_all_families) {
  for (const char* family : {"qwen2_vl", "siglip2", "llava_onevision"}) {
    CHECK(VisionValues(rule_of(family), DType::kFloat32).by_vectors());
  }
  const Numbers imagenet{{"mean", {{0.485, 0.456, 0.406}, ""}},
                         {"std", {{0.229, 0.224, 0.225}, ""}}};
  CHECK(VisionValues(rule_of("internvl", imagenet), DType::kFloat32).by_vectors());
}

// Every run, merge and number of copies, at every level, where one byte too many would be seen.
TEST(kernels_are_the_table) {
  Random random(3);
  const VisionValues float32(rule_of("qwen2_vl"), DType::kFloat32);
  const VisionValues bfloat16(rule_of("qwen2_vl"), DType::kBfloat16);
  for (int i = 0; i < 400; ++i) {
    const bool planar = random.coin();
    ValueRuns runs;
    runs.length = static_cast<size_t>(random.in(1, 40)) * (planar ? 1 : 3);
    runs.merge = static_cast<size_t>(random.in(1, 3));
    runs.count = runs.merge * static_cast<size_t>(random.in(1, 3));
    runs.lines = static_cast<size_t>(random.in(1, 4));
    runs.line_apart = runs.length * runs.count + static_cast<size_t>(random.in(0, 9));
    runs.copies = static_cast<size_t>(random.in(1, 3));
    runs.copy_apart = runs.lines * runs.length + static_cast<size_t>(random.in(0, 3));
    runs.apart = runs.copies * runs.copy_apart + static_cast<size_t>(random.in(0, 3));
    const Bytes in = random.samples(runs.lines * runs.line_apart + RowSink::kSlack);
    for (const VisionValues* values : {&float32, &bfloat16}) {
      const size_t size = dtype_size(values->dtype());
      const size_t last = runs.place(runs.count - 1) + (runs.copies - 1) * runs.copy_apart;
      Bytes wanted(size * (last + runs.lines * runs.length), 0xA5), found = wanted;
      const auto& scale = planar ? values->channel(1) : values->interleaved();
      const auto plain = size == 4 ? look_up_float32 : look_up_bfloat16;
      plain(in.data(), runs, scale, wanted.data());
      for (const fastload::SimdLevel level : fastload::test::machine_levels()) {
        fastload::set_simd_level(simd_level_name(level));
        std::ranges::fill(found, 0xA5);
        values->line()(in.data(), runs, scale, found.data());
        CHECK(found == wanted);
      }
    }
  }
}

// A divisor whose reciprocal is no number: the table has the right ones all the same.
TEST(numbers_that_vectors_do_not_make_are_looked_up) {
  const VisionRule rule = rule_of("siglip2", {{"std", {{1e-40, 1e-40, 1e-40}, ""}},
                                              {"rescale", {{1e-10}, ""}},
                                              {"mean", {{0, 0, 0}, ""}}});
  const VisionValues values(rule, DType::kFloat32);
  CHECK(!values.by_vectors());
  CHECK(values.line() == look_up_float32);
}

TEST(rows_do_not_depend_on_level_chunk_and_what_was_before) {
  Random random(11);
  VisionCutter kept;
  for (const VisionRule& rule : small_rules()) {
    for (const DType dtype : {DType::kUint8, DType::kBfloat16, DType::kFloat32}) {
      const VisionPlan how(rule, dtype);
      for (int i = 0; i < 12; ++i) {
        const Picture picture = random_picture(random, 90);
        const int pictures = random.in(1, 2);
        VisionCutter fresh;
        fastload::set_simd_level("scalar");
        const Bytes wanted = cut(fresh, how, picture, picture.height, pictures);
        for (const fastload::SimdLevel level : fastload::test::machine_levels()) {
          fastload::set_simd_level(simd_level_name(level));
          CHECK(cut(kept, how, picture, random.in(1, 20), pictures) == wanted);
        }
      }
    }
  }
}

TEST(a_picture_that_comes_again_is_the_same) {
  Random random(12);
  for (const VisionRule& rule : small_rules()) {
    const VisionPlan how(rule, DType::kFloat32);
    const Picture picture = random_picture(random, 90);
    VisionCutter cutter;
    const Bytes wanted = cut(cutter, how, picture, 7);
    const Picture other{picture.width, picture.height, Bytes(picture.pixels.size(), 77)};
    for (const int before : {0, 1, picture.height / 2, picture.height}) {
      const VisionSizes sizes = plan(rule, picture.width, picture.height);
      Bytes found(wanted.size(), 0);
      cutter.begin(how, sizes, found.data());
      feed(cutter, other, before, 3);
      cutter.restart();
      feed(cutter, picture, picture.height, 5);
      cutter.end();
      CHECK(found == wanted);
    }
  }
}

TEST(missing_rows_are_told) {
  Random random(13);
  for (const VisionRule& rule : small_rules()) {
    const VisionPlan how(rule, DType::kUint8);
    Picture picture = random_picture(random, 40);
    while (picture.height < 2) picture = random_picture(random, 40);
    const VisionSizes sizes = plan(rule, picture.width, picture.height);
    Bytes out(rule.row_bytes(DType::kUint8) * static_cast<size_t>(sizes.rows));
    VisionCutter cutter;
    CHECK_THROWS(kState, "No picture was begun", cutter.end());
    for (const int end : {0, picture.height - 1}) {
      cutter.begin(how, sizes, out.data());
      feed(cutter, picture, end, 4);
      CHECK_THROWS(kState, "rows. Found: ", cutter.end());
    }
    cutter.begin(how, sizes, out.data());
    feed(cutter, picture, picture.height, 4);
    cutter.end();
    CHECK_THROWS(kState, "No picture was begun", cutter.end());
  }
}

}  // namespace
