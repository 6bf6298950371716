// What an engine does before its threads work, and what another decoder gets, without memory.
#include <cstring>
#include <numeric>
#include <vector>

#include "../check.h"
#include "../column_file.h"
#include "../made_set.h"
#include "collate/slot_pool.h"
#include "engine/measure.h"
#include "engine/record_feed.h"
#include "everywhere.h"
#include "pictures.h"
#include "sample/shapes.h"

namespace fastload::test {
namespace {

constexpr size_t kSamples = 8;

// A large, a small and a gray JPEG, one whose end is cut off, and a PNG, by turns.
std::vector<Made> records() {
  Made cut = jpeg(small_picture());
  cut.resize(cut.size() - 2);
  const std::vector<Made> kinds{jpeg(small_picture()), jpeg(small_picture(0)), cut,
                                png(PNG_FORMAT_RGB)};
  std::vector<Made> all;
  for (size_t i = 0; i < kSamples; ++i) all.push_back(kinds[i % kinds.size()]);
  return all;
}

template <class T>
void append(Made& to, const std::vector<T>& values) {
  const size_t size = to.size(), bytes = values.size() * sizeof(T);
  to.resize(size + bytes);
  if (bytes != 0) std::memcpy(to.data() + size, values.data(), bytes);
}

std::vector<int64_t> all_ids() {
  std::vector<int64_t> ids(kSamples);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(another_decoder_gets_its_records_without_memory) {
  MadeSet set(records());
  const std::vector<int64_t> ids = all_ids();
  fail_everywhere(
      "records for another decoder",
      [&] {
        RecordFeed::Plan plan{};
        plan.out_width = plan.out_height = 16;
        plan.geometry.add("random_resized_crop", {16, 16, 0.08, 1.0, 3.0 / 4, 4.0 / 3});
        RecordFeed feed(Sources({{&set.reader(), nullptr, {}, 0}}), plan, {0, 1});
        RecordRequest request{};
        request.ids = ids;
        const auto batch = feed.fetch(request, feed.announce(request));
        CHECK(!batch->records.empty());
        Made made;
        append(made, batch->positions);
        append(made, batch->start);
        append(made, batch->shape);
        append(made, batch->roi_end);
        for (const Bytes record : batch->records) {
          made.insert(made.end(), record.begin(), record.end());
        }
        return made;
      },
      [&] { set.open(); });
}

// An area of each object of a sample, of so many objects as its id says.
std::vector<Octets> areas() {
  std::vector<Octets> values;
  for (size_t i = 0; i < kSamples; ++i) {
    ShapesMaker maker(PointFormat::kAreas);
    for (size_t object = 0; object <= i % 3; ++object) {
      maker.add_area(50, 70, std::vector<uint32_t>{500, 100, 2900});
    }
    values.push_back(maker.value());
  }
  return values;
}

TEST(batches_are_measured_without_memory) {
  MadeSet set(records());
  const ColumnFile file(areas(), 0);
  const std::vector<int64_t> ids = all_ids();
  const FallbackDecode fallback;
  ViewPlan view;
  view.geometry.add("resize_shorter", {20, 40});
  FieldPlan picture, area;
  picture.form = FieldPlan::Form::kPicture;
  area.form = FieldPlan::Form::kPoints;
  area.points = PointFormat::kAreas;
  area.width = 1;
  const SamplePlan plan{FieldsPlan({view}, {picture, area})};
  fail_everywhere(
      "places of a batch",
      [&] {
        Column column(file.path(), Storage::kRagged, 1);
        Source source{&set.reader(), nullptr, {}, 0};
        source.columns = {&column};
        const Sources sources({source});
        Made made;
        for (const Measured& field : Measurer(sources, plan, fallback).measure(ids, {}, 0)) {
          append(made, field.offsets);
          append(made, field.sizes);
          append(made, field.counts);
        }
        CHECK(made.size() > kSamples * sizeof(PictureSize));
        return made;
      },
      [&] { set.open(); });
}

TEST(slots_are_lent_without_memory) {
  fail_everywhere("slots", [] {
    const auto pool = SlotPool::make(2);
    Made made;
    for (int round = 0; round < 3; ++round) {
      const auto first = pool->lease(1 << 16), second = pool->lease(1 << 17);
      const auto third = pool->lease(100);
      std::memset(second->data(), round, 1 << 17);
      made.push_back(second->data()[1000]);
    }
    return made;
  });
}

}  // namespace
}  // namespace fastload::test
