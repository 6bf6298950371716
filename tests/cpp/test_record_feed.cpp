// The records that another decoder gets: which of a batch, and bytes that stay as long as the
// batch, read ahead by many threads or by the one that asks.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/record_feed.h"
#include "file_system.h"
#include "made_set.h"
#include "picture.h"
#include "random.h"

namespace fastload::test {
namespace {

using Ids = std::vector<int64_t>;

constexpr int kSide = 16;

// In turn: a JPEG in colour, a gray one, one whose end is cut off, and no picture at all.
std::vector<std::vector<uint8_t>> mixed(size_t count) {
  Random random(3);
  std::vector<std::vector<uint8_t>> records;
  for (size_t i = 0; i < count; ++i) {
    const int width = random.in(kSide, 120), height = random.in(kSide, 120);
    records.push_back(i % 4 == 3
                          ? random.samples(500)
                          : as_jpeg(random, {width, height, i % 4 == 1 ? 0 : 0x22, 75, 0, true}));
    if (i % 4 == 2) records.back().resize(records.back().size() - 2);
  }
  return records;
}

bool is_good(int64_t id) { return id % 4 < 2; }

Ids ids_of(size_t count) {
  Ids ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int64_t>(i);
  return ids;
}

RecordFeed feed_of(MadeSet& set, size_t budget = 0) {
  RecordFeed::Plan plan{};
  plan.out_width = plan.out_height = kSide;
  plan.geometry.add("random_resized_crop", {kSide, kSide, 0.08, 1.0, 3.0 / 4, 4.0 / 3});
  plan.geometry.add("horizontal_flip", {0.5});
  Source source{};
  source.reader = &set.reader();
  return RecordFeed(Sources({source}), plan, {budget, 1});
}

RecordRequest request_of(const Ids& ids) {
  RecordRequest request{};
  request.ids = ids;
  return request;
}

bool holds(const RecordBatch& batch, const Ids& ids, MadeSet& set) {
  const size_t count = batch.records.size();
  if (batch.positions.size() != count || batch.start.size() != 2 * count ||
      batch.shape.size() != 2 * count || batch.roi_start.size() != 2 * count ||
      batch.roi_end.size() != 2 * count) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t id = ids[static_cast<size_t>(batch.positions[i])];
    if (!set.equals(static_cast<size_t>(id), batch.records[i])) return false;
  }
  return true;
}

Ids taken(const RecordBatch& batch, const Ids& ids) {
  Ids found;
  for (const int64_t position : batch.positions) {
    found.push_back(ids[static_cast<size_t>(position)]);
  }
  return found;
}

TEST(a_batch_has_the_whole_plain_jpegs_and_their_windows) {
  const Reset reset;
  MadeSet set(mixed(40));
  RecordFeed feed = feed_of(set);
  Ids ids = ids_of(40);
  ids[4] = -1;
  const auto batch = feed.fetch(request_of(ids), nullptr);
  CHECK(holds(*batch, ids, set));
  CHECK_EQ(batch->records.size(), 19u);
  CHECK(std::is_sorted(batch->positions.begin(), batch->positions.end()));
  for (const int64_t id : taken(*batch, ids)) CHECK(is_good(id));
  for (size_t i = 0; i < batch->records.size(); ++i) {
    const ImageInfo info = probe(batch->records[i]);
    const size_t y = 2 * i, x = y + 1;
    CHECK(batch->start[y] >= 0 && batch->start[x] >= 0);
    CHECK(batch->shape[y] >= 1 && batch->start[y] + batch->shape[y] <= int(info.height));
    CHECK(batch->shape[x] >= 1 && batch->start[x] + batch->shape[x] <= int(info.width));
    CHECK(batch->roi_start[y] >= 0 && batch->roi_start[y] < batch->roi_end[y]);
    CHECK(batch->roi_end[y] <= static_cast<float>(batch->shape[y]));
    CHECK(std::min(batch->roi_start[x], batch->roi_end[x]) >= 0);
    CHECK(std::max(batch->roi_start[x], batch->roi_end[x]) <= static_cast<float>(batch->shape[x]));
  }
}

TEST(what_is_refused_or_not_yet_accepted_is_left_out) {
  const Reset reset;
  MadeSet set(mixed(40));
  RecordFeed feed = feed_of(set);
  const Ids ids = ids_of(40);
  feed.refuse(Ids{0, 5, -1});
  CHECK_EQ(feed.fetch(request_of(ids), nullptr)->records.size(), 18u);
  feed.require_accepted();
  CHECK_EQ(feed.fetch(request_of(ids), nullptr)->records.size(), 0u);
  feed.accept(Ids{0, 1, 2, 8, -1});  // 0 is refused, 2 has no end
  CHECK(taken(*feed.fetch(request_of(ids), nullptr), ids) == (Ids{1, 8}));
}

TEST(the_share_is_drawn_by_sample_and_the_budget_holds) {
  const Reset reset;
  MadeSet set(mixed(400));
  RecordFeed feed = feed_of(set);
  const Ids ids = ids_of(400);
  RecordRequest request = request_of(ids);
  request.share = 0.5;
  const Ids half = taken(*feed.fetch(request, nullptr), ids);
  CHECK(half.size() > 60 && half.size() < 140);
  const Ids back(ids.rbegin(), ids.rend());
  request.ids = back;
  Ids again = taken(*feed.fetch(request, nullptr), back);
  std::reverse(again.begin(), again.end());
  CHECK(half == again);
  request.epoch = 1;
  CHECK(half != taken(*feed.fetch(request, nullptr), back));
  request = request_of(ids);
  request.share = 1;
  CHECK(feed.fetch(request, nullptr)->records.empty());
  request.share = 0;
  request.most_bytes = 100'000;
  const auto some = feed.fetch(request, nullptr);
  uint64_t bytes = 0;
  for (const Bytes record : some->records) {
    const ImageInfo info = probe(record);
    bytes += uint64_t{3} * info.width * info.height;
  }
  CHECK(!some->records.empty() && bytes <= request.most_bytes);
}

TEST(records_that_cannot_be_read_or_are_damaged_are_left_to_our_own_decoder) {
  const Reset reset;
  MadeSet set(mixed(40));
  set.scribble(set.record(8).offset + 300);
  set.open();
  file_system.cold = true;
  file_system.bad = static_cast<int64_t>(set.record(16).offset + 10);
  RecordFeed feed = feed_of(set, 1 << 20);
  const Ids ids = ids_of(40);
  const RecordRequest request = request_of(ids);
  const Ids found = taken(*feed.fetch(request, feed.announce(request)), ids);
  CHECK_EQ(found.size(), 18u);
  CHECK(std::find(found.begin(), found.end(), 8) == found.end());
  CHECK(std::find(found.begin(), found.end(), 16) == found.end());
}

// Batches are announced in order, taken by four threads in any order, one in five not at all.
TEST(many_threads_take_batches_that_are_read_ahead) {
  const Reset reset;
  file_system.cold = true;
  constexpr size_t kCount = 1200, kBatch = 30;
  MadeSet set(mixed(kCount));
  RecordFeed feed = feed_of(set, 1 << 20);
  std::vector<Ids> ids;
  std::vector<std::shared_ptr<void>> announced;
  for (size_t first = 0; first < kCount; first += kBatch) {
    Ids batch = ids_of(kBatch);
    for (int64_t& id : batch) id += static_cast<int64_t>(first);
    ids.push_back(std::move(batch));
    announced.push_back(feed.announce(request_of(ids.back())));
  }
  std::atomic<size_t> next{0}, wrong{0}, records{0};
  auto work = [&] {
    std::vector<std::unique_ptr<RecordBatch>> kept;  // their buffers are in use meanwhile
    for (size_t i = next++; i < ids.size(); i = next++) {
      if (i % 5 == 4) {
        feed.forget(announced[i]);
        continue;
      }
      kept.push_back(feed.fetch(request_of(ids[i]), announced[i]));
      records += kept.back()->records.size();
      if (!holds(*kept.back(), ids[i], set)) ++wrong;
      if (kept.size() > 3) kept.erase(kept.begin());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0u);
  CHECK_EQ(records.load(), kCount / 2 * 4 / 5);
  CHECK(feed.read_ahead().ahead > 0);
  CHECK(feed.read_ahead().buffer_peak <= 1 << 20);
}

TEST(a_batch_outlives_the_feed) {
  const Reset reset;
  file_system.cold = true;
  MadeSet set(mixed(40));
  const Ids ids = ids_of(40);
  std::unique_ptr<RecordBatch> batch;
  {
    RecordFeed feed = feed_of(set, 1 << 20);
    const RecordRequest request = request_of(ids);
    const auto announced = feed.announce(request);
    feed.announce(request);  // and never fetched
    batch = feed.fetch(request, announced);
    feed.close();
    feed.close();
  }
  CHECK_EQ(batch->records.size(), 20u);
  CHECK(holds(*batch, ids, set));
}

}  // namespace
}  // namespace fastload::test
