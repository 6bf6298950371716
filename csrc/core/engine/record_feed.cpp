#include "engine/record_feed.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"
#include "decode/jpeg/entry_points.h"

namespace fastload {
namespace {

constexpr int kCheckSpacing = 64;  // pixels; any will do

// Whole: a file that was cut decodes in some decoders, fails in others.
bool is_whole(Bytes record) {
  const size_t n = record.size();
  return n >= 4 && record.data()[n - 2] == 0xFF && record.data()[n - 1] == 0xD9;
}

bool is_plain_jpeg(const ImageInfo& info) {
  return info.codec == Codec::kJpeg && info.flags == 0 &&
         (info.channels == 1 || info.channels == 3);
}

bool is_within(const ImageInfo& info, const DecodeLimits& limits) {
  return info.width >= 1 && info.height >= 1 && info.width <= limits.max_side &&
         info.height <= limits.max_side && uint64_t{info.width} * info.height <= limits.max_pixels;
}

void set(std::vector<bool>& bits, std::span<const int64_t> ids) {
  for (const int64_t id : ids) {
    if (id < 0) continue;
    const auto at = static_cast<size_t>(id);
    if (at >= bits.size()) bits.resize(at + 1);
    bits[at] = true;
  }
}

bool has(const std::vector<bool>& bits, uint64_t id) { return id < bits.size() && bits[id]; }

// Takes pixels that nobody wants.
class NoSink final : public RowSink {
 public:
  void rows(const uint8_t* /*pixels*/, size_t /*stride*/, int /*y*/, int /*count*/) override {
    any = true;
  }
  void restart() override {}

  bool any = false;
};

// The window on the picture's pixels, relative to the rectangle `decoded` of it.
void add_window(const View& view, const Rect& decoded, RecordBatch& batch) {
  const double step_x = static_cast<double>(view.crop.width) / view.resized_width;
  const double step_y = static_cast<double>(view.crop.height) / view.resized_height;
  const double left = view.crop.x - decoded.x + view.window.x * step_x;
  const double top = view.crop.y - decoded.y + view.window.y * step_y;
  const double right = left + view.window.width * step_x;
  const double bottom = top + view.window.height * step_y;
  batch.start.insert(batch.start.end(), {decoded.y, decoded.x});
  batch.shape.insert(batch.shape.end(), {decoded.height, decoded.width});
  batch.roi_start.insert(batch.roi_start.end(),
                         {static_cast<float>(top), static_cast<float>(view.flip ? right : left)});
  batch.roi_end.insert(batch.roi_end.end(),
                       {static_cast<float>(bottom), static_cast<float>(view.flip ? left : right)});
}

}  // namespace

RecordFeed::RecordFeed(Sources sources, const Plan& plan, const ReadAheadPlan& read_ahead)
    : sources_(std::move(sources)),
      plan_(plan),
      checker_(plan.limits),
      ahead_(read_ahead, [this](uint64_t id) {
        const auto [source, own] = sources_.find(id);
        return ReadAhead::Origin{source->reader, source->entries, own};
      }) {}

bool RecordFeed::is_wanted(const RecordRequest& request, const PhiloxKey& key, size_t i) const {
  if (request.ids[i] < 0) return false;
  const auto id = static_cast<uint64_t>(request.ids[i]);
  {
    const std::lock_guard lock(verdicts_);
    if (has(refused_, id) || (accepted_only_ && !has(accepted_, id))) return false;
  }
  if (request.share <= 0) return true;
  const uint32_t draw = request.draws.empty() ? 0 : request.draws[i];
  const PhiloxWords words = SampleRng{key, id, draw}.words(DrawOp::kDecoder, 0);
  return uniform_double(words[0], words[1]) >= request.share;
}

std::shared_ptr<void> RecordFeed::announce(const RecordRequest& request) {
  const PhiloxKey key = epoch_key(plan_.seed, request.epoch);
  std::vector<int64_t> ids(request.ids.begin(), request.ids.end());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!is_wanted(request, key, i)) ids[i] = -1;
  }
  return ahead_.announce(std::move(ids));
}

std::unique_ptr<RecordBatch> RecordFeed::fetch(const RecordRequest& request,
                                               const std::shared_ptr<void>& announced) {
  const PhiloxKey key = epoch_key(plan_.seed, request.epoch);
  auto batch = std::make_unique<RecordBatch>();
  uint64_t bytes = 0;
  for (size_t i = 0; i < request.ids.size(); ++i) {
    if (!is_wanted(request, key, i)) continue;
    try {
      if (add(request, key, i, announced.get(), bytes, *batch)) {
        batch->positions.push_back(static_cast<int64_t>(i));
      }
    } catch (const Error&) {
      // Our own decoder meets the same error, and reports it.
    }
  }
  return batch;
}

// Whether it has all rows that it declares: other decoders fill missing ones with gray and say
// nothing. (They do say when a table is missing, and there is no row at all.) Who has entry points
// was found intact when they were made; of all others the codes are read once, or, with restart
// markers, the picture.
bool RecordFeed::has_all_rows(const Source& source, uint64_t own, uint64_t id, Bytes record,
                              const ImageInfo& info) {
  {
    const std::lock_guard lock(verdicts_);
    if (has(whole_, id)) return true;
  }
  std::vector<uint8_t> scratch;
  bool intact = source.entries != nullptr && source.entries->find(own, scratch).size() > 0;
  if (!intact) intact = !build_entries(record, kCheckSpacing).empty();
  const std::lock_guard lock(verdicts_);  // the checker's, too: few pictures come to it
  if (!intact) {
    NoSink sink;
    try {
      checker_.open(record);
      checker_.decode({0, 0, static_cast<int>(info.width), static_cast<int>(info.height)}, sink);
      intact = true;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) throw;
      intact = !sink.any;
    }
  }
  const auto sample = static_cast<int64_t>(id);
  set(intact ? whole_ : refused_, {&sample, 1});
  return intact;
}

bool RecordFeed::add(const RecordRequest& request, const PhiloxKey& key, size_t i, void* group,
                     uint64_t& bytes, RecordBatch& batch) {
  const auto id = static_cast<uint64_t>(request.ids[i]);
  const auto [source, own] = sources_.find(id);
  if (static_cast<Codec>(source->reader->index().record(own).codec) == Codec::kRaw) return false;
  std::vector<uint8_t> scratch;
  std::shared_ptr<const void> held;
  const Bytes record = ahead_.read(group, static_cast<uint32_t>(i),
                                   {source->reader, source->entries, own}, scratch, held);
  const ImageInfo info = probe(record);
  if (!is_plain_jpeg(info) || !is_within(info, plan_.limits) || !is_whole(record)) return false;
  const uint64_t decoded = uint64_t{3} * info.width * info.height;
  if (bytes + decoded > request.most_bytes) return false;
  if (!has_all_rows(*source, own, id, record, info)) return false;
  const uint32_t draw = request.draws.empty() ? 0 : request.draws[i];
  const View view = draw_view(plan_.geometry, static_cast<int>(info.width),
                              static_cast<int>(info.height), {key, id, draw});
  if (view.window.width != plan_.out_width || view.window.height != plan_.out_height ||
      shows_fill(view) || view.quarter != 0) {
    return false;
  }
  add_window(view, decoded_rect(view, false), batch);
  bytes += decoded;
  batch.records.push_back(record);
  if (!scratch.empty()) batch.scratch.push_back(std::move(scratch));  // its address stays
  if (held != nullptr) batch.held.push_back(std::move(held));
  return true;
}

void RecordFeed::refuse(std::span<const int64_t> ids) {
  const std::lock_guard lock(verdicts_);
  set(refused_, ids);
}

void RecordFeed::accept(std::span<const int64_t> ids) {
  const std::lock_guard lock(verdicts_);
  set(accepted_, ids);
}

}  // namespace fastload
