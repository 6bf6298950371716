// Engines without memory: nothing ends the process or waits for ever, close() throws nothing, and
// what is delivered is right or reported.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "../check.h"
#include "../column_file.h"
#include "../made_cache.h"
#include "../made_set.h"
#include "../plain_job.h"
#include "../tiny_dataset.h"
#include "cache/coefficient_cache.h"
#include "engine/engine.h"
#include "everywhere.h"
#include "failing.h"
#include "pictures.h"
#include "vision/numbers.h"

namespace fastload::test {
namespace {

constexpr size_t kBatches = 3, kBatch = 4, kSamples = kBatches * kBatch;

// What a job's batches are made of.
struct Work {
  std::function<Sources()> sources;
  SamplePlan plan;
  int side = 2;                      // of the pictures
  std::vector<uint8_t> wanted = {};  // what a run gives that has memory
  bool partners = false;
  size_t frames = 1;  // of a window of partners; their pictures lie one after the other
};

// What a run delivered.
struct Delivered {
  explicit Delivered(const Work& work)
      : bytes(static_cast<size_t>(work.side) * static_cast<size_t>(work.side) * 3 * work.frames),
        images(kSamples * bytes, 77),
        labels(kSamples, 77) {}
  size_t bytes;  // of a picture
  std::vector<uint8_t> images;
  std::vector<int64_t> labels;
  bool whole[kBatches] = {}, starved[kBatches] = {};
};

void run(const Work& work, Delivered& to) {
  const EnginePointer engine =
      make_engine(work.sources(), work.plan, {2, 0, {}}, nullptr, {1 << 20, 1});
  std::vector<Engine::Ticket> tickets;
  for (size_t b = 0; b < kBatches; ++b) {
    BatchRequest request = plain_request(
        engine->plan(), std::span(to.images).subspan(b * kBatch * to.bytes, kBatch * to.bytes),
        std::span(to.labels).subspan(b * kBatch, kBatch), {});
    for (size_t i = 0; i < kBatch; ++i) request.ids.push_back(static_cast<int64_t>(b * kBatch + i));
    if (engine->plan().fields.has_vision()) request.places[0].offsets = {0, 1, 2, 3, 4};  // rows
    if (work.partners) {
      // Those of windows are there several times.
      const size_t others = work.frames > 1 ? 5 : kSamples;
      for (size_t i = 0; i < 3 * kBatch; ++i) {
        request.partners.push_back(static_cast<int64_t>(i % others));
      }
      request.places[0].stride = to.bytes;
    }
    if (b == 1) request.ahead = engine->announce(request.ids, {}, 0, request.partners);
    tickets.push_back(engine->submit(std::move(request)));
  }
  for (size_t b = 0; b < kBatches; ++b) {
    CHECK(engine->wait(tickets[b], 60));  // else it hangs
    for (const SampleFault& fault : engine->collect(tickets[b])) {
      CHECK(fault.kind == ErrorKind::kMemory);
      to.starved[b] = true;
    }
    to.whole[b] = true;
  }
  engine->close();
}

void check_delivered(const Work& work, const Delivered& found) {
  for (size_t i = 0; i < kSamples; ++i) {
    if (!found.whole[i / kBatch]) continue;
    const bool blank = found.labels[i] == kIgnoreLabel;
    CHECK(!blank || found.starved[i / kBatch]);
    if (!blank) CHECK_EQ(found.labels[i], static_cast<int64_t>(i));
    const auto at = static_cast<ptrdiff_t>(i * found.bytes);
    const auto first = found.images.begin() + at, end = first + static_cast<ptrdiff_t>(found.bytes);
    CHECK(blank ? std::all_of(first, end, [](uint8_t byte) { return byte == 0; })
                : std::equal(first, end, work.wanted.begin() + at));
  }
}

// `before` comes before each run, with memory.
void fail_engine(
    const char* what, Work work, const std::function<void()>& before = [] {}) {
  before();
  Delivered plenty(work);
  run(work, plenty);
  for (const bool whole : plenty.whole) CHECK(whole);
  for (const bool starved : plenty.starved) CHECK(!starved);
  work.wanted = plenty.images;
  size_t refused = 0, starved = 0;
  // Whether a decoding thread or the caller meets the lack is chance: again if need be.
  for (int round = 0; round == 0 || (starved == 0 && round < 50); ++round) {
    fail_in_turn(what, [&](int64_t successes, bool for_good) {
      before();
      Delivered found(work);
      try {
        const Failing failing(successes, for_good);
        run(work, found);
      } catch (const std::bad_alloc&) {
        ++refused;
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::kMemory);
        ++refused;
      }
      check_delivered(work, found);
      for (const bool one : found.starved) starved += one ? 1 : 0;
      if (has_failed()) return;
      for (size_t b = 0; b < kBatches; ++b) CHECK(found.whole[b] && !found.starved[b]);
    });
  }
  CHECK(refused > 10);  // calls that threw
  CHECK(starved > 0);   // batches whose samples had none
}

TEST(an_engine_without_memory_says_so) {
  const TinyDataset data(kSamples);
  fail_engine("engine", {[&] {
                           return Sources({{data.reader(), nullptr, {}, 0}});
                         },
                         plain_plan(2)});
}

// Records of each codec, by turns.
std::vector<Made> mixed_records() {
  const std::vector<Made> kinds{jpeg(small_picture()), png(PNG_FORMAT_RGB), webp(false, false),
                                progressive()};
  std::vector<Made> records;
  for (size_t i = 0; i < kSamples; ++i) records.push_back(kinds[i % kinds.size()]);
  return records;
}

SamplePlan resizing_plan(int side) {
  ViewPlan view;
  view.out_width = view.out_height = side;
  const auto pixels = static_cast<double>(side);
  view.geometry.add("random_resized_crop", {pixels, pixels, 0.08, 1.0, 3.0 / 4, 4.0 / 3});
  view.geometry.add("horizontal_flip", {0.5});
  view.pixels = PixelSpec({{"grayscale", 0.5, {}, {}}});
  return {image_and_label(view, {})};
}

TEST(an_engine_of_all_codecs_without_memory_says_so) {
  MadeSet set(mixed_records());
  fail_engine("engine of all codecs",
              {[&] {
                 return Sources({{&set.reader(), nullptr, {}, 0}});
               },
               resizing_plan(16), 16},
              [&] { set.open(); });
}

TEST(an_engine_with_a_cache_of_coefficients_without_memory_says_so) {
  MadeSet set(mixed_records());
  std::optional<MadeCache> made;
  std::shared_ptr<CacheFile> file;
  std::shared_ptr<CoefficientCache> cache;
  fail_engine("engine with a cache of coefficients",
              {[&] {
                 return Sources({{&set.reader(), nullptr, {}, 0, nullptr, cache}});
               },
               resizing_plan(16), 16},
              [&] {
                set.open();
                cache.reset();
                made.emplace(set, set.size(), true, 0, true);
                file = made->attach();
                cache = std::make_shared<CoefficientCache>(*file, set.size(), file->index_digest());
              });
}

TEST(an_engine_of_bounded_pictures_without_memory_says_so) {
  MadeSet set(mixed_records());
  SamplePlan plan = resizing_plan(16);
  plan.decoded_side = 24;
  fail_engine("engine of bounded pictures",
              {[&] {
                 return Sources({{&set.reader(), nullptr, {}, 0}});
               },
               plan, 16},
              [&] { set.open(); });
}

// Each picture is one row, of a rule that makes it so; each sample has its own record's.
TEST(an_engine_of_rows_for_vision_models_without_memory_says_so) {
  MadeSet set(mixed_records());
  FieldPlan rows;
  rows.form = FieldPlan::Form::kVision;
  rows.vision = std::make_shared<VisionPlan>(
      vision_rule("paligemma", std::vector<std::pair<std::string, VisionNumber>>{
                                   {"size", {{16, 16}, ""}}}),
      DType::kUint8);
  rows.width = static_cast<uint32_t>(rows.vision->rule().row_bytes(DType::kUint8));
  FieldPlan label;
  label.form = FieldPlan::Form::kLabel;
  label.part = FieldPlan::kIndex;
  fail_engine("engine of rows for vision models",
              {[&] {
                 Source source{&set.reader(), nullptr, {}, 0};
                 source.lists.push_back({&set.reader(), nullptr});
                 return Sources({source});
               },
               {FieldsPlan({{{}, 16, 16}}, {rows, label})}, 16},
              [&] { set.open(); });
}

TEST(an_engine_of_mosaics_without_memory_says_so) {
  MadeSet set(mixed_records());
  SamplePlan plan = plain_plan(32);
  plan.mosaic.emplace();
  plan.mosaic->size = 32;
  plan.kept_bytes = 1 << 20;
  Work work{[&] { return Sources({{&set.reader(), nullptr, {}, 0}}); }, plan, 32};
  work.partners = true;
  fail_engine("engine of mosaics", work, [&] { set.open(); });
}

// One of windows that share their frames, cut and copied.
TEST(an_engine_of_windows_without_memory_says_so) {
  MadeSet set(mixed_records());
  for (const bool drawn : {false, true}) {
    ViewPlan view;
    view.out_width = view.out_height = 16;
    if (drawn) {
      view.geometry.add("random_resized_crop", {16, 16, 0.08, 1.0, 3.0 / 4, 4.0 / 3});
    } else {
      view.geometry.add("resize_exact", {16, 16});
    }
    FieldPlan image, label;
    image.form = FieldPlan::Form::kPicture;
    image.steps = {1, 0, 3, 2};
    label.form = FieldPlan::Form::kLabel;
    label.part = FieldPlan::kIndex;
    Work work{[&] { return Sources({{&set.reader(), nullptr, {}, 0}}); },
              {FieldsPlan({view}, {image, label})},
              16};
    work.partners = true;
    work.frames = 4;
    fail_engine("engine of windows", work, [&] { set.open(); });
  }
}

}  // namespace
}  // namespace fastload::test
