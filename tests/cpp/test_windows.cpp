// Windows: frames that several samples of a batch share, by many threads, against engines that read
// and decode each frame for itself. Meant for ThreadSanitizer.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/engine.h"
#include "engine/shared_records.h"
#include "made_set.h"
#include "picture.h"
#include "plain_job.h"
#include "random.h"
#include "tiny_dataset.h"

namespace fastload::test {
namespace {

using Octets = std::vector<uint8_t>;
using Form = FieldPlan::Form;

constexpr int kRecords = 12;

SamplePlan plan_of(int side, bool drawn, bool share, bool pixels = false) {
  ViewPlan view;
  view.out_width = view.out_height = side;
  const auto pixels_a_side = static_cast<double>(side);
  if (drawn) {
    view.geometry.add("random_resized_crop",
                      {pixels_a_side, pixels_a_side, 0.2, 1.0, 3.0 / 4, 4.0 / 3});
    view.geometry.add("horizontal_flip", {0.5});
  } else {
    view.geometry.add("resize_exact", {pixels_a_side, pixels_a_side});
  }
  if (pixels) view.pixels = PixelSpec({{"grayscale", 0.5, {}, {}}});
  FieldPlan image, label, pad;
  image.form = Form::kPicture;
  image.steps = {1, 0, 2};
  label.form = Form::kLabel;
  label.part = FieldPlan::kIndex;
  label.steps = {2, 0};
  pad.form = Form::kPad;
  pad.steps = {1, 2};
  SamplePlan plan{FieldsPlan({view}, {image, label, pad})};
  plan.share = share;
  return plan;
}

struct Windows {
  Windows(Random& random, size_t count, int records) {
    for (size_t i = 0; i < count; ++i) {
      ids.push_back(random.in(0, 9) == 0 ? -1 : random.in(0, records - 1));
      for (int partner = 0; partner < 2; ++partner) {
        partners.push_back(random.in(0, records - 1) | (random.coin() ? kPadBit : 0));
      }
    }
  }
  std::vector<int64_t> ids, partners;
};

struct Filled {
  Filled(const SamplePlan& plan, const Windows& windows) : windows(windows) {
    const size_t count = windows.ids.size();
    images.resize(plan.fields.picture_bytes() * count, 77);
    labels.resize(2 * count, 77);
    pads.resize(2 * count, 77);
  }
  BatchRequest request(const SamplePlan& plan, uint64_t epoch) {
    std::vector<FieldPlace> places = places_of(plan.fields, images, labels);
    places[0].stride = plan.fields.picture_bytes();
    places[1].stride = 2 * sizeof(int64_t);
    places.emplace_back().memory = pads;
    places.back().stride = 2;
    BatchRequest request{std::move(places), windows.ids, {}, epoch, nullptr, nullptr};
    request.partners = windows.partners;
    return request;
  }
  const Windows& windows;
  Octets images, pads;
  std::vector<int64_t> labels;
  std::vector<SampleFault> faults;
};

std::vector<Filled> run(const Sources& sources, const SamplePlan& plan,
                        const std::vector<Windows>& batches, int threads,
                        uint64_t* used_again = nullptr) {
  Engine engine(sources, plan, {threads, 0, {}}, nullptr,
                ReadAheadPlan{threads > 1 ? size_t{1} << 20 : 0, 1});
  std::vector<Filled> all;
  std::vector<Engine::Ticket> tickets;
  for (const Windows& windows : batches) all.emplace_back(plan, windows);
  for (size_t i = 0; i < all.size(); ++i) {
    tickets.push_back(engine.submit(all[i].request(plan, i)));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(engine.wait(tickets[i], 120));
    all[i].faults = engine.collect(tickets[i]);
  }
  if (used_again != nullptr) *used_again = engine.kept().used_again;
  return all;
}

void check_same(const Filled& found, const Filled& wanted) {
  CHECK(found.images == wanted.images);
  CHECK(found.labels == wanted.labels);
  CHECK(found.pads == wanted.pads);
  CHECK_EQ(found.faults.size(), wanted.faults.size());
  for (size_t i = 0; i < found.faults.size(); ++i) {
    CHECK_EQ(found.faults[i].position, wanted.faults[i].position);
    CHECK(found.faults[i].message == wanted.faults[i].message);
  }
}

// Records of JPEGs, the last one of which is no picture.
std::vector<Octets> jpegs(bool one_size) {
  Random random(3);
  std::vector<Octets> records;
  for (int i = 0; i < kRecords - 1; ++i) {
    const int width = one_size ? 40 : random.in(20, 60);
    records.push_back(as_jpeg(random, {width, one_size ? 30 : random.in(20, 60)}));
  }
  records.emplace_back(50, uint8_t{7});
  return records;
}

}  // namespace

TEST(shared_frames_are_what_each_frame_is_alone) {
  Random random(21);
  for (const bool one_size : {true, false}) {
    MadeSet set(jpegs(one_size));
    const Sources sources({{&set.reader(), nullptr, {}, 0}});
    std::vector<Windows> batches;
    for (int i = 0; i < 5; ++i) batches.emplace_back(random, 16, kRecords);
    for (const auto& [drawn, pixels] : {std::pair(false, false), {true, false}, {false, true}}) {
      const auto wanted = run(sources, plan_of(16, drawn, false, pixels), batches, 1);
      for (const int threads : {1, 3, 8}) {
        uint64_t used_again = 0;
        const auto found =
            run(sources, plan_of(16, drawn, true, pixels), batches, threads, &used_again);
        CHECK(used_again > 50);
        for (size_t i = 0; i < batches.size(); ++i) check_same(found[i], wanted[i]);
        CHECK(!wanted[0].faults.empty());
      }
    }
  }
}

TEST(windows_of_many_tiny_pictures_by_many_threads) {
  constexpr int kCount = 40;
  const TinyDataset data(kCount);
  const Sources sources({{data.reader(), nullptr, {}, 0}});
  Random random(22);
  for (const bool drawn : {false, true}) {
    std::vector<Windows> batches;
    for (int i = 0; i < 12; ++i) batches.emplace_back(random, 64, kCount);
    const SamplePlan plan = plan_of(2, drawn, true);
    const auto found = run(sources, plan, batches, 8);
    for (const Filled& one : found) {
      CHECK(one.faults.empty());
      for (size_t i = 0; i < one.windows.ids.size(); ++i) {
        const int64_t id = one.windows.ids[i];
        const int64_t* const partners = one.windows.partners.data() + 2 * i;
        const std::vector<int64_t> frames{partners[0] & ~kPadBit, id, partners[1] & ~kPadBit};
        for (size_t t = 0; t < frames.size(); ++t) {
          const uint8_t byte = one.images[(3 * i + t) * kTinyBytes + 5];
          CHECK_EQ(byte, static_cast<uint8_t>(id < 0 ? 0 : frames[t]));
        }
        CHECK_EQ(one.labels[2 * i], id < 0 ? kIgnoreLabel : frames[2]);
        CHECK_EQ(one.pads[2 * i + 1], id >= 0 && (partners[1] & kPadBit) != 0 ? 1 : 0);
      }
    }
  }
}

TEST(windows_that_are_cancelled_or_closed_wait_for_nobody) {
  MadeSet set(jpegs(true));
  const Sources sources({{&set.reader(), nullptr, {}, 0}});
  Random random(23);
  const SamplePlan plan = plan_of(16, true, true);
  for (int round = 0; round < 20; ++round) {
    std::vector<Windows> batches;
    for (int i = 0; i < 4; ++i) batches.emplace_back(random, 24, kRecords);
    std::vector<Filled> all;
    for (const Windows& windows : batches) all.emplace_back(plan, windows);
    Engine engine(sources, plan, {4, 0, {}}, nullptr, ReadAheadPlan{1 << 20, 1});
    std::vector<Engine::Ticket> tickets;
    for (Filled& one : all) tickets.push_back(engine.submit(one.request(plan, 0)));
    std::thread limits([&] { engine.set_threads(1 + round % 4); });
    if (round % 2 == 0) engine.cancel(tickets[static_cast<size_t>(random.in(0, 3))]);
    limits.join();
    if (round % 4 != 0) engine.close();
  }
}

TEST(what_a_sample_has_made_is_seen_when_it_is_settled) {
  const SamplePlan plan = plan_of(16, true, true);
  // Three slots of each sample; record 5 is the first sample's twice, and the second one's.
  const std::vector<int64_t> records{5, 5, 1, 2, 5, 3, 4, -1, -1};
  SparePixels spare;
  SharedRecords shared(records, plan.fields, spare);
  CHECK(shared.any());
  SharedRecords::Entry* const entry = shared.owned(0, 0);
  CHECK(entry != nullptr && shared.used(0, 0) == nullptr);
  CHECK(shared.used(0, 1) == entry && shared.used(1, 1) == entry);
  CHECK(shared.owned(0, 2) == nullptr && shared.used(0, 2) == nullptr);
  CHECK(shared.owned(2, 1) == nullptr && shared.used(2, 1) == nullptr);
  CHECK(entry->wants_whole);  // what is drawn for the second sample differs
  shared.begin(0);
  CHECK(!shared.wait(*entry, 0));
  entry->is_made = entry->has_whole = true;
  CHECK(shared.reserve(*entry, 100));
  CHECK(shared.wait(*entry, 0));
  shared.begin(0);  // once more: files were lost
  CHECK(!entry->is_made && !entry->has_whole);
  entry->is_made = true;
  CHECK(!shared.reserve(*entry, SharedRecords::kMostBytes + 1));
  std::atomic<bool> seen{false}, made{false};
  std::thread other([&] {
    made = shared.wait(*entry, 1);
    seen = true;
  });
  CHECK(!seen);
  shared.settle(0, false);  // it has failed
  other.join();
  CHECK(!made);
  std::vector<int64_t> first(records);
  leave_first(first);
  CHECK(first == (std::vector<int64_t>{5, -1, 1, 2, -1, 3, 4, -1, -1}));
  SharedRecords none(first, plan.fields, spare);
  CHECK(!none.any());
}

TEST(memory_of_whole_pictures_is_used_again) {
  SparePixels spare;
  std::vector<uint8_t> first = spare.take(1000);
  CHECK_EQ(first.size(), 1000u);
  const uint8_t* const memory = first.data();
  spare.give(std::move(first));
  CHECK(spare.take(1001).data() != memory);  // too small
  CHECK(spare.take(200).data() != memory);   // much too large
  const std::vector<uint8_t> again = spare.take(600);
  CHECK(again.data() == memory);
  spare.give(std::vector<uint8_t>(SparePixels::kMostBytes + 1));
  CHECK_EQ(spare.take(SparePixels::kMostBytes / 2).size(), SparePixels::kMostBytes / 2);
  spare.clear();
}

TEST(steps_lie_in_their_memory) {
  Random random(24);
  size_t passed = 0, refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const size_t n = static_cast<size_t>(random.in(0, 4));
    FieldPlan field;
    field.form = std::vector{Form::kPicture, Form::kLabel, Form::kFixed,
                             Form::kPad}[static_cast<size_t>(random.in(0, 3))];
    field.width = static_cast<uint32_t>(random.in(1, 9));
    field.steps.resize(static_cast<size_t>(random.in(1, 4)));
    field.picture.store.channels_last = random.coin();
    Octets memory(static_cast<size_t>(random.in(0, 150)));  // its end is guarded
    FieldPlace place;
    place.memory = memory;
    place.stride = static_cast<size_t>(random.in(0, 60));
    if (field.form == Form::kPicture) {
      place.room = {random.in(0, 3), random.in(0, 3)};
      place.row_bytes = random.coin() ? field.pixel_bytes() * static_cast<size_t>(place.room.width)
                                      : static_cast<size_t>(random.in(0, 14));
    }
    try {
      check_place(place, field, n, 0);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kValue);
      ++refused;
      continue;
    }
    ++passed;
    for (uint32_t position = 0; position < n; ++position) fill_blank(place, field, position);
  }
  CHECK(passed > 1000 && refused > 1000);
}

}  // namespace fastload::test
