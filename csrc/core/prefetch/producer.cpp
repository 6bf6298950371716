#include "prefetch/producer.h"

#include <exception>
#include <string>

namespace fastload {
namespace {

// Stands between decoder and resampler to tell their times apart.
class TimedSink final : public RowSink {
 public:
  explicit TimedSink(RowSink& next) : next_(next) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    const uint64_t start = now_ns();
    next_.rows(pixels, stride, y, count);
    spent_ += now_ns() - start;
  }
  void restart() override { next_.restart(); }
  [[nodiscard]] uint64_t spent() const { return spent_; }

 private:
  RowSink& next_;
  uint64_t spent_ = 0;
};

}  // namespace

Producer::Producer(Reader& reader, const SamplePlan& plan, const FallbackDecode& fallback,
                   ThreadStats& stats)
    : reader_(reader),
      plan_(plan),
      stats_(stats),
      decoder_(plan.limits, fallback),
      store_(plan.store) {}

void Producer::produce(Batch& batch, uint32_t position, uint64_t id) {
  const uint64_t start = now_ns();
  const Record& record = reader_.index().record(id);
  const Bytes bytes = reader_.read(id, scratch_);
  const uint64_t read = now_ns();
  stats_.add_time(Stage::kShard, read - start);
  ThreadStats::add(stats_.bytes, bytes.size());

  const ImageInfo info = static_cast<Codec>(record.codec) == Codec::kRaw
                             ? decoder_.open_raw(bytes, record.width, record.height)
                             : decoder_.open(bytes);
  if (batch.epoch() != epoch_) {
    epoch_ = batch.epoch();
    key_ = epoch_key(plan_.seed, epoch_);
  }
  const View view = draw_view(plan_.geometry, static_cast<int>(info.width),
                              static_cast<int>(info.height), {key_, id, batch.draw(position)});
  if (view.window.width != plan_.out_width || view.window.height != plan_.out_height) {
    throw Error(ErrorKind::kValue,
                "the picture is " + std::to_string(view.window.width) + "x" +
                    std::to_string(view.window.height) +
                    " pixels after the transforms, others are " + std::to_string(plan_.out_width) +
                    "x" + std::to_string(plan_.out_height) +
                    ": add Resize, CenterCrop or RandomResizedCrop to the transform");
  }
  store_.begin(batch.image(position), plan_.out_width, plan_.out_height);
  resampler_.begin(view, plan_.geometry.filter, store_);
  TimedSink sink(resampler_);
  decoder_.decode(source_rect(view, plan_.geometry.filter), sink, entries_of(id));
  resampler_.end();
  batch.set_label(position, record.label);
  stats_.add_time(Stage::kTransform, sink.spent());
  stats_.add_time(Stage::kDecode, now_ns() - read - sink.spent());
}

EntryPoints Producer::entries_of(uint64_t id) const {
  if (plan_.entries == nullptr) return {};
  return {plan_.entries->find(id), static_cast<int>(plan_.entries->spacing())};
}

void Producer::count_paths() {
  const DecodeCounts& now = decoder_.counts();
  auto add = [&](Path path, uint64_t value, uint64_t before) {
    if (value != before)
      ThreadStats::add(stats_.records[static_cast<size_t>(path)], value - before);
  };
  add(Path::kJpeg, now.jpeg, counted_.jpeg);
  add(Path::kJpegTurbo, now.jpeg_turbo, counted_.jpeg_turbo);
  add(Path::kPng, now.png, counted_.png);
  add(Path::kWebp, now.webp, counted_.webp);
  add(Path::kRaw, now.raw, counted_.raw);
  add(Path::kFallback, now.fallback, counted_.fallback);
  add(Path::kWarnings, now.warnings, counted_.warnings);
  counted_ = now;
}

void Producer::fill(Batch& batch, uint32_t position) {
  const int64_t id = batch.id(position);
  if (id < 0) {
    batch.blank(position);
    return;
  }
  SampleFault fault{position, id, ErrorKind::kDecode, ""};
  try {
    produce(batch, position, static_cast<uint64_t>(id));
    count_paths();
    ThreadStats::add(stats_.samples, 1);
    return;
  } catch (const Error& error) {
    fault.kind = error.kind();
    fault.message = error.what();
  } catch (const std::exception& error) {
    fault.kind = ErrorKind::kState;
    fault.message = std::string("unexpected: ") + error.what();
  }
  batch.blank(position);
  batch.add_fault(std::move(fault));
  ThreadStats::add(stats_.faults, 1);
}

}  // namespace fastload
