// What a loader's batches hold of each sample: views of it, and fields of these views.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sample/objects_plan.h"
#include "transform/cut.h"
#include "transform/pixels/stage.h"
#include "transform/view.h"
#include "vision/cutter.h"

namespace fastload {

// The label of a position that carries no sample: padding, or a bad sample. torch's
// cross_entropy ignores it by default (ignore_index=-100).
inline constexpr int64_t kIgnoreLabel = -100;

// One view of a sample: the crop, size and flip that all fields of it share. Drawn from the size of
// the sample's first picture, before anything is decoded.
struct ViewPlan {
  GeometrySpec geometry;
  int out_width = 0;  // pixels of all pictures of the view; 0: they differ, or are not known
  int out_height = 0;
  PixelSpec pixels = {};  // operations on the images' pixels, between resize and store
  PixelSpec source = {};  // likewise, on whole pictures, before the crop
  // What becomes of the sample's objects; nothing: all of them stay, and no box is clipped.
  std::optional<ObjectsPlan> objects = {};
};

// One field of a view.
struct FieldPlan {
  enum class Form : uint8_t {
    kPicture,
    kLabel,   // a class index, int64 in the batch
    kFixed,   // a value of `width` bytes, as it is
    kRagged,  // rows of `width` bytes, as they are
    kPoints,  // ragged rows that the view moves
    kMasks,   // outlines or areas of objects, drawn: a byte a pixel of the view, an object
    kId,      // the sample's id, int64: of a substitute, its own
    kVision,  // the sample's pictures as rows of patches or tiles
    kVisionSizes,  // kVisionFactBytes of int64 for each of them; see engine/vision_rows.h
    kView,    // kViewBytes of float64: width and height of the first picture as stored; scale and
              // shift from its pixels to the view's, across and down; whether that is mirrored
              // then, and quarter turns. Scales are 0 where it is no such map: motions, mosaics
    kPad,     // a byte for each step: 1 where its frame stands for one that the run does not have
  };
  static constexpr uint32_t kViewBytes = 8 * sizeof(double);
  static constexpr uint32_t kVisionFactBytes = 6 * sizeof(int64_t);
  // `part` of a label that is in the index.
  static constexpr uint32_t kIndex = ~uint32_t{0};

  Form form = Form::kFixed;
  uint32_t view = 0;   // number of the view
  uint32_t part = 0;   // of a picture: its stream of records; of kVision and kVisionSizes: the
                       // source's list of pictures; of others: its column
  uint32_t width = 0;  // bytes of a value, row or mask in the batch; 0: of masks that differ
  // What positions without a sample have: an element of a picture, repeated, or the value. Empty:
  // of a picture its fill, else zeros.
  std::vector<uint8_t> blank;
  CutSpec picture;                                  // of a picture; the operations are its view's
  PointFormat points = PointFormat::kXyxy;          // of kPoints and kMasks
  bool relative = false;                            // in parts of the picture's width and height
  std::vector<std::array<uint16_t, 2>> pairs = {};  // of points of a row, left and right
  bool follows = false;  // its rows are those of the view's objects that stay
  std::optional<PointFormat> becomes = {};  // of boxes: their format in the batch, if another one

  std::shared_ptr<const VisionPlan> vision = nullptr;  // of kVision and kVisionSizes
  std::string name = {};                               // likewise; for messages

  // Of a window: whose frame stands at each step, one after the other in the batch: 0, the sample's
  // own, or k, its k-th partner's. Empty: there is the sample's own alone. Of pictures of one size,
  // kLabel, kFixed and kPad.
  std::vector<uint32_t> steps = {};
  // Of pictures: the one at step t is of view `view + t`, which differs in what is drawn alone;
  // else all are of `view`.
  bool each_step = false;

  [[nodiscard]] size_t frames() const { return std::max<size_t>(1, steps.size()); }
  [[nodiscard]] uint32_t partner_at(uint32_t step) const { return steps.empty() ? 0 : steps[step]; }
  [[nodiscard]] uint32_t view_at(uint32_t step) const { return each_step ? view + step : view; }

  [[nodiscard]] bool is_ragged() const {
    return form == Form::kRagged || form == Form::kPoints || is_vision() ||
           (form == Form::kMasks && width != 0);
  }
  [[nodiscard]] bool is_vision() const {
    return form == Form::kVision || form == Form::kVisionSizes;
  }
  // Whether the sample's view decides what the batch gets.
  [[nodiscard]] bool has_view() const {
    return follows || form == Form::kPicture || form == Form::kPoints || form == Form::kMasks ||
           is_origin();
  }
  // Whether it says where the sample comes from, which no column does.
  [[nodiscard]] bool is_origin() const { return form == Form::kId || form == Form::kView; }
  // Whether its objects' bytes have another length under the view.
  [[nodiscard]] bool is_areas() const {
    return form == Form::kPoints &&
           (points == PointFormat::kAreas || points == PointFormat::kMixed);
  }
  // Whether it has all of an object in bytes of no fixed number.
  [[nodiscard]] bool is_shapes() const {
    return is_areas() || (form == Form::kPoints && points == PointFormat::kPolygons);
  }
  // Whether the view decides how many rows or bytes there are.
  [[nodiscard]] bool is_counted() const { return follows || is_areas() || form == Form::kMasks; }
  // Bytes of a pixel in the batch.
  [[nodiscard]] size_t pixel_bytes() const {
    return dtype_size(picture.store.dtype) * static_cast<size_t>(picture.format.channels);
  }
};

// The same for all samples of a loader.
class FieldsPlan {
 public:
  static constexpr size_t kMaxViews = 256;

  // Throws Error(kValue) for fields of views that there are not, and what does not fit together.
  FieldsPlan(std::vector<ViewPlan> views, std::vector<FieldPlan> fields);

  [[nodiscard]] const std::vector<ViewPlan>& views() const { return views_; }
  [[nodiscard]] const std::vector<FieldPlan>& fields() const { return fields_; }
  // How a picture's field is cut.
  [[nodiscard]] const CutPlan& cut(size_t field) const { return *cuts_[field]; }
  // Whether the pictures or masks of a field differ in size.
  [[nodiscard]] bool is_measured(const FieldPlan& field) const {
    const bool masks = field.form == FieldPlan::Form::kMasks;
    return masks ? field.width == 0
                 : field.form == FieldPlan::Form::kPicture && views_[field.view].out_width == 0;
  }
  // A picture in the batch: of a field, at a step of it.
  struct Frame {
    uint32_t field;
    uint32_t step;  // 0 where it has none
  };
  // The streams of records that are read, ascending, each with its pictures, which are all opened
  // in one format. Where there are windows a stream is there once for each partner.
  struct Stream {
    uint32_t number;
    std::vector<Frame> frames;
    uint32_t partner = 0;  // whose record: 0, the sample's own, or k, its k-th partner's
  };
  [[nodiscard]] const std::vector<Stream>& streams() const { return streams_; }
  // Whether any field depends on its view.
  [[nodiscard]] bool has_views() const { return has_views_; }
  // Whether anything has points, which the view's motions move.
  [[nodiscard]] bool has_points() const { return has_points_; }
  // Whether any field has pictures as rows.
  [[nodiscard]] bool has_vision() const { return has_vision_; }
  // Whether any field has steps: partners are frames then.
  [[nodiscard]] bool has_windows() const { return has_windows_; }
  // How many partners a sample must have for them.
  [[nodiscard]] uint32_t partners() const { return partners_; }
  // Whether any field's rows are those of a view's objects.
  [[nodiscard]] bool has_objects() const { return has_objects_; }
  // Whether the views are drawn of a picture that is read: the sample's own of the first stream.
  [[nodiscard]] bool draws_of_first() const {
    return !streams_.empty() && streams_.front().number == 0 && streams_.front().partner == 0;
  }
  // Bytes of a sample's pictures; 0 for those that differ.
  [[nodiscard]] size_t picture_bytes() const;

 private:
  void add_picture(uint32_t number);
  void add_frame(const FieldPlan& field, Frame frame);
  void check_steps(const FieldPlan& field, uint32_t number) const;

  std::vector<ViewPlan> views_;
  std::vector<FieldPlan> fields_;
  std::vector<std::optional<CutPlan>> cuts_;  // by field
  std::vector<Stream> streams_;
  bool has_views_ = false;
  bool has_points_ = false;
  bool has_objects_ = false;
  bool has_vision_ = false;
  bool has_windows_ = false;
  uint32_t partners_ = 0;
};

}  // namespace fastload
