// Fields of any kind: columns, places in a batch's memory, points under a view, and an engine over
// all of them. Under sanitizers, so what lies outside is a finding.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "check.h"
#include "column_file.h"
#include "engine/engine.h"
#include "plain_job.h"
#include "random.h"
#include "sample/column.h"
#include "sample/field_place.h"
#include "sample/points.h"
#include "tiny_dataset.h"

namespace fastload::test {
namespace {

using Form = FieldPlan::Form;

// Value i: `width` times the byte i, or i % 5 rows of them.
std::vector<Octets> numbered(size_t count, size_t width, bool ragged) {
  std::vector<Octets> values;
  for (size_t i = 0; i < count; ++i) {
    values.emplace_back(width * (ragged ? i % 5 : 1), static_cast<uint8_t>(i));
  }
  return values;
}

FieldPlan field_of(Form form, uint32_t width = 0, uint32_t part = 0) {
  FieldPlan field;
  field.form = form;
  field.width = width;
  field.part = part;
  return field;
}

// A place that is drawn without regard to what there is room for.
FieldPlace random_place(Random& random, const FieldPlan& field, std::span<uint8_t> memory,
                        size_t n) {
  FieldPlace place;
  place.memory = memory;
  place.stride = static_cast<size_t>(random.in(0, 40));
  if (field.is_ragged()) {
    int64_t end = random.in(0, 2) - 1;
    for (size_t i = 0; i <= n; ++i) place.offsets.push_back(end += random.in(0, 4));
    if (random.in(0, 9) == 0) place.offsets.back() -= 7;
  } else if (field.form == Form::kPicture) {
    place.room = {random.in(0, 4) - 1, random.in(0, 4)};
    place.row_bytes = static_cast<size_t>(random.in(0, 14));
    if (random.coin()) {
      for (size_t i = 0; i < n; ++i) {
        place.offsets.push_back(random.in(0, 60) - 2);
        place.sizes.push_back({random.in(0, 3), random.in(0, 3)});
      }
    }
  }
  return place;
}

bool fits(const FieldPlace& place, const FieldPlan& field, size_t n) {
  try {
    check_place(place, field, n, 0);
    return true;
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kValue);
    return false;
  }
}

}  // namespace

TEST(values_of_columns) {
  for (const uint32_t width : {1u, 3u, 24u}) {
    const std::vector<Octets> fixed = numbered(50, width, false), rows = numbered(50, width, true);
    const ColumnFile fixed_file(fixed, width), rows_file(rows, 0);
    Column a(fixed_file.path(), Storage::kFixed, width);
    Column b(rows_file.path(), Storage::kRagged, width);
    a.verify();
    b.verify();
    for (uint64_t id = 0; id < 50; ++id) {
      CHECK_EQ(a.length(id), width);
      CHECK_EQ(b.length(id), rows[id].size());
      Octets x(width), y(rows[id].size());
      a.copy(id, x.data(), x.size());
      b.copy(id, y.data(), y.size());
      CHECK(x == fixed[id] && y == rows[id]);
    }
    Octets out(2 * width);
    CHECK_THROWS(kFormat, "when it was measured", (a.copy(0, out.data(), 2 * width), 0));
    CHECK_THROWS(kValue, "below 50. Found: 50", a.length(50));
  }
}

TEST(lists_of_records_have_numbers) {
  std::vector<Octets> values;
  std::vector<Record> all;
  Random random(7);
  for (size_t id = 0; id < 60; ++id) {
    Octets value;
    for (int64_t left = random.in(0, 4); left > 0; --left) {
      Record record{};
      record.offset = all.size() * 100;
      record.length = 90;
      record.label = -1;
      const auto* const bytes = reinterpret_cast<const uint8_t*>(&record);
      value.insert(value.end(), bytes, bytes + sizeof(record));
      all.push_back(record);
    }
    values.push_back(value);
  }
  const ColumnFile file(values, 0);
  Column column(file.path(), Storage::kRecords, 1);
  column.verify();
  CHECK_EQ(column.width(), sizeof(Record));
  CHECK_EQ(column.record_count(), all.size());
  ListedRecords listed(column);
  CHECK_EQ(listed.size(), all.size());
  CHECK_EQ(listed.digest(), column.digest());
  uint64_t next = 0;
  for (uint64_t id = 0; id < values.size(); ++id) {
    const auto [first, last] = column.records_of(id);
    CHECK_EQ(first, next);
    CHECK_EQ((last - first) * sizeof(Record), values[id].size());
    for (uint64_t number = first; number < last; ++number) {
      CHECK_EQ(listed.record(number).offset, all[number].offset);
    }
    next = last;
  }
  CHECK_THROWS(kValue, "must be below", listed.record(all.size()));
  CHECK_THROWS(kState, "not records of shards", column.record(0));
  Column rows(file.path(), Storage::kRagged, 32);
  CHECK_THROWS(kState, "no lists of records", rows.record_count());
}

TEST(what_passes_the_check_of_places_lies_in_memory) {
  Random random(11);
  size_t passed = 0, refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const size_t n = static_cast<size_t>(random.in(0, 4));
    FieldPlan field =
        field_of(static_cast<Form>(random.in(0, 4)), static_cast<uint32_t>(random.in(1, 12)));
    field.picture.store.channels_last = random.coin();
    Octets memory(static_cast<size_t>(random.in(0, 150)));  // its end is guarded
    const FieldPlace place = random_place(random, field, memory, n);
    if (!fits(place, field, n)) {
      ++refused;
      continue;
    }
    ++passed;
    for (uint32_t position = 0; position < n; ++position) fill_blank(place, field, position);
    if (field.form != Form::kPicture || !place.sizes.empty()) continue;
    const PictureSize part{std::min(1, place.room.height), std::min(1, place.room.width)};
    for (uint32_t position = 0; position < n; ++position) {
      fill_padding(place, field, position, part);
    }
  }
  CHECK(passed > 1000 && refused > 1000);
}

TEST(places_that_no_memory_has_are_refused) {
  Octets memory(1000);
  FieldPlan picture = field_of(Form::kPicture), rows = field_of(Form::kRagged, 16);
  FieldPlace place;
  place.memory = memory;
  place.room = {1 << 30, 1 << 30};
  place.row_bytes = ~size_t{0};
  place.stride = ~size_t{0};
  CHECK_THROWS(kValue, "does not fit field 3", (check_place(place, picture, 2, 3), 0));
  place.offsets = {0, INT64_MAX};
  place.sizes = {{INT32_MAX, INT32_MAX}, {INT32_MAX, INT32_MAX}};
  CHECK_THROWS(kValue, "does not fit", (check_place(place, picture, 2, 0), 0));
  place.offsets = {0, INT64_MAX, INT64_MAX};
  CHECK_THROWS(kValue, "does not fit", (check_place(place, rows, 2, 0), 0));
  place.offsets = {INT64_MIN, 0, 1};
  CHECK_THROWS(kValue, "does not fit", (check_place(place, rows, 2, 0), 0));
}

TEST(points_of_any_bytes_stay_in_their_bytes) {
  Random random(12);
  const View view{{3, 4, 50, 40}, 25, 80, {1, 2, 20, 30}, true};
  const PointMap map(view, 100, 90, 50, 45);
  size_t moved = 0;
  for (int round = 0; round < 20'000; ++round) {
    Octets bytes = random.samples(static_cast<size_t>(random.in(0, 12)) * 4);
    // Few objects, polygons and points, so that some are what they say.
    for (size_t i = 0; i + 3 < bytes.size(); i += 4) {
      const auto small = static_cast<uint32_t>(random.in(0, 9) == 0 ? -1 : random.in(0, 2));
      if (random.in(0, 3) != 0) std::memcpy(bytes.data() + i, &small, sizeof(small));
    }
    Octets exact(bytes);
    try {
      map.move(exact, static_cast<PointFormat>(random.in(0, 5)), random.coin());
      ++moved;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kFormat);
    }
    CHECK_EQ(exact.size(), bytes.size());
  }
  CHECK(moved > 1000);
}

TEST(batches_of_fields_by_several_threads) {
  constexpr size_t kCount = 200;
  const TinyDataset data(kCount);
  const ColumnFile fixed_file(numbered(kCount, 6, false), 6);
  const ColumnFile rows_file(numbered(kCount, 4, true), 0);
  Column fixed(fixed_file.path(), Storage::kFixed, 6);
  Column rows(rows_file.path(), Storage::kRagged, 4);
  Source source{data.reader(), nullptr, {}, 0};
  source.columns = {&fixed, &rows};
  FieldPlan label = field_of(Form::kLabel, 0, FieldPlan::kIndex);
  FieldPlan value = field_of(Form::kFixed, 6, 0), ragged = field_of(Form::kRagged, 4, 1);
  value.blank = Octets(6, 9);
  ViewPlan view;
  view.out_width = view.out_height = 2;
  SamplePlan plan{FieldsPlan({view}, {field_of(Form::kPicture), label, value, ragged})};
  Engine engine(Sources({source}), plan, {3, 0, {}}, nullptr, ReadAheadPlan{1 << 20, 1});
  Random random(13);
  for (uint64_t epoch = 0; epoch < 30; ++epoch) {
    std::vector<int64_t> ids(static_cast<size_t>(random.in(1, 60)));
    for (int64_t& id : ids) id = random.in(-1, static_cast<int>(kCount) - 1);
    const std::vector<Measured> measured = engine.measure(ids, {}, epoch);
    CHECK(measured[0].sizes.empty() && measured[2].offsets.empty());
    const std::vector<int64_t>& ends = measured[3].offsets;
    CHECK_EQ(ends.size(), ids.size() + 1);
    Octets images(ids.size() * kTinyBytes, 77), values(ids.size() * 6, 77);
    Octets all(static_cast<size_t>(ends.back()) * 4, 77);
    std::vector<int64_t> labels(ids.size(), 77);
    std::vector<FieldPlace> places = places_of(plan.fields, images, labels);
    places.emplace_back().memory = values;
    places.back().stride = 6;
    places.emplace_back().memory = all;
    places.back().offsets = ends;
    const Engine::Ticket ticket = engine.submit({places, ids, {}, epoch, nullptr, nullptr});
    CHECK(engine.wait(ticket, 60.0));
    CHECK_EQ(engine.collect(ticket).size(), 0u);
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool none = ids[i] < 0;
      const auto byte = static_cast<uint8_t>(ids[i]);
      CHECK_EQ(labels[i], none ? kIgnoreLabel : ids[i]);
      CHECK_EQ(images[i * kTinyBytes + 5], none ? 0 : byte);
      CHECK_EQ(values[i * 6 + 5], none ? 9 : byte);
      CHECK_EQ(ends[i + 1] - ends[i], none ? 0 : ids[i] % 5);
      for (int64_t at = ends[i] * 4; at < ends[i + 1] * 4; ++at) {
        CHECK_EQ(all[static_cast<size_t>(at)], byte);
      }
    }
  }
}

TEST(parts_of_other_sizes_are_refused) {
  const TinyDataset data(10);
  const ColumnFile file(numbered(11, 4, false), 4);
  Column column(file.path(), Storage::kFixed, 4);
  Source source{data.reader(), nullptr, {}, 0};
  source.columns = {&column};
  CHECK_THROWS(kFormat, "has the values of 11 samples", Sources({source}));
}

}  // namespace fastload::test
