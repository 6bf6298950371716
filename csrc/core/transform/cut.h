// A view of a picture of any format, from a decoder's rows to its place in the batch:
//
//   const CutPlan plan({.format = ..., .nearest = ..., .store = ...});  // once for each field
//   decoder.open(bytes, plan.spec().format);
//   cutter.begin(view, plan, {pointer, row_bytes, plane_bytes}, rng);
//   decoder.decode(cutter.source(), cutter, entries);
//   cutter.end();
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "transform/border.h"
#include "transform/nearest.h"
#include "transform/picture_store.h"
#include "transform/pixels/stage.h"
#include "transform/resample.h"
#include "transform/store.h"
#include "transform/turn.h"
#include "transform/view.h"

namespace fastload {

struct CutSpec {
  PixelFormat format;    // as which the picture is opened
  bool nearest = false;  // else by the view's filter
  PixelSpec pixels;      // of RGB of 8 bits, and of ids, which follow what moves pixels
  StoreSpec store;
  int fill = 0;           // nearest: what pixels outside the picture have, before they are stored
  PixelSpec source = {};  // as `pixels`, of the whole picture, before the view is cut from it
  // Filtered: what is where a view shows nothing of the picture, before it is stored: a number for
  // each channel, or one for all; empty: 0.
  std::vector<int> colour = {};

  // Whether something is done when all rows have come.
  [[nodiscard]] bool works_at_end() const {
    return !pixels.empty() || !source.empty() || store.erase.probability > 0;
  }
};

// The picture that a view is cut from: what operations on all of it must know.
struct WholeSize {
  int width = 0;
  int height = 0;
  std::pair<int, int> drawn = {};  // width and height that the view was drawn of, if not the same
};

// Hands on a part of a picture that comes whole, in one call.
class PartSink final : public RowSink {
 public:
  void begin(const Rect& part, size_t pixel_bytes, RowSink& out) {
    part_ = part;
    pixel_bytes_ = pixel_bytes;
    out_ = &out;
  }
  void rows(const uint8_t* pixels, size_t stride, int, int) override {
    const auto x = static_cast<size_t>(part_.x), y = static_cast<size_t>(part_.y);
    out_->rows(pixels + y * stride + x * pixel_bytes_, stride, 0, part_.height);
  }
  void restart() override {}

 private:
  Rect part_;
  size_t pixel_bytes_ = 0;
  RowSink* out_ = nullptr;
};

// What is the same for all pictures of a field; may be shared by threads.
class CutPlan {
 public:
  // Throws Error(kValue) for ids that are not cut by the nearest pixel, for a fill that the format
  // does not hold, for one where there should be a colour, for operations on pixels, and erasing,
  // of other formats than RGB of 8 bits (and ids, which only follow), and as channel_scales().
  explicit CutPlan(CutSpec spec);
  [[nodiscard]] const CutSpec& spec() const { return spec_; }
  // By vector kernels where the format is RGB of 8 bits.
  [[nodiscard]] const std::variant<Store, PictureStore>& store() const { return store_; }
  // Whether source() of this sample's Cutter may be the whole picture.
  [[nodiscard]] bool may_take_whole(const SampleRng& rng, DrawnPixels& drawn) const;
  // A pixel of fill, as decoded ones are.
  [[nodiscard]] const std::vector<uint8_t>& fill() const { return fill_; }
  // Another plan has another one, unless it is a copy.
  [[nodiscard]] uint64_t number() const { return number_; }

 private:
  CutSpec spec_;
  uint64_t number_;
  std::vector<uint8_t> fill_;
  std::variant<Store, PictureStore> store_;
};

// One per thread; keeps its memory between pictures and fields.
class Cutter final : public RowSink {
 public:
  // Both are borrowed, and nobody else's from begin() to end().
  Cutter(Resampler& resampler, PixelStage& stage) : resampler_(resampler), stage_(stage) {}

  // Starts a picture: the rows of source() will come through rows(), the window's rows go to
  // `place`. The plan must live until end(); `rng` is what its operations on pixels draw from;
  // `whole` is for a plan with operations on the whole picture.
  // Throws as source_rect().
  void begin(const View& view, const CutPlan& plan, const StorePlace& place,
             const SampleRng& rng = {}, const WholeSize& whole = {});
  // What the view needs; the whole picture, where operations on that need it.
  [[nodiscard]] Rect source() const { return source_; }
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override;
  // Ends the picture. Throws Error(kState) if rows were missing.
  void end();
  // Lets go of memory for whole pictures of more than `most` bytes.
  void trim(size_t most);

 private:
  // The sinks for what a view shows, and around it, between the decoder and `out`.
  void begin_view(const View& view, const CutPlan& plan, RowSink& out);
  void begin_whole(const WholeSize& whole);

  Resampler& resampler_;
  PixelStage& stage_;
  PixelStage whole_;  // both for operations on the whole picture, which goes through `part_` then
  FollowingStage whole_following_;
  PartSink part_;
  RowSink* in_ = &resampler_;  // where rows go first
  FollowingStage following_;
  NearestSampler nearest_;
  TurnSink turn_;
  BorderSink before_, behind_;  // fill around what is seen, and around what is shown
  MirrorSink mirror_;           // in place of the latter
  std::variant<Store, PictureStore> store_{Store(StoreSpec())};
  uint64_t number_ = 0;  // of the plan that the store is of: copying it costs a few pixels' time
  bool is_nearest_ = false;
  const CutSpec* spec_ = nullptr;
  StorePlace place_;
  SampleRng rng_;
  std::pair<int, int> size_;  // width, height
  Rect source_;
};

}  // namespace fastload
