#include "sample/field_plan.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastload {
namespace {

std::vector<uint8_t> bytes_of(int64_t value) {
  std::vector<uint8_t> bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

uint32_t row_unit(PointFormat format) {
  switch (format) {
    case PointFormat::kXyxy:
    case PointFormat::kXywh:
    case PointFormat::kCxcywh:
      return 4 * sizeof(float);
    case PointFormat::kXy:
      return 2 * sizeof(float);
    case PointFormat::kXyv:
      return 3 * sizeof(float);
    case PointFormat::kPolygons:
    case PointFormat::kAreas:
    case PointFormat::kMixed:
      return 1;
  }
  return 1;
}

void check(const FieldPlan& field, size_t number) {
  const std::string where = "Field " + std::to_string(number) + " of a sample ";
  if (field.form != FieldPlan::Form::kPicture && field.form != FieldPlan::Form::kMasks &&
      field.width == 0) {
    throw Error(ErrorKind::kValue,
                where + "must have values or rows of at least 1 byte. Found: 0.");
  }
  if (field.form == FieldPlan::Form::kPoints && field.width % row_unit(field.points) != 0) {
    throw Error(ErrorKind::kValue, where +
                                       "must have rows of whole points or boxes, a multiple of " +
                                       std::to_string(row_unit(field.points)) +
                                       " bytes. Found: " + std::to_string(field.width) + ".");
  }
  if (field.is_vision()) {
    const size_t width = field.form == FieldPlan::Form::kVisionSizes ? FieldPlan::kVisionFactBytes
                         : field.vision != nullptr
                             ? field.vision->rule().row_bytes(field.vision->dtype())
                             : 0;
    if (field.vision == nullptr || field.width != width) {
      throw Error(ErrorKind::kValue, where + "must have a rule for its pictures, and its rows' " +
                                         std::to_string(width) +
                                         " bytes. Found: " + std::to_string(field.width) + ".");
    }
  }
  for (const auto& [first, second] : field.pairs) {
    const bool points = field.points == PointFormat::kXy || field.points == PointFormat::kXyv;
    const uint32_t most = points ? field.width / row_unit(field.points) : 0;
    if (std::max(first, second) < most) continue;
    throw Error(ErrorKind::kValue, where + "must have pairs of its " + std::to_string(most) +
                                       " points. Found: " + std::to_string(first) + " and " +
                                       std::to_string(second) + ".");
  }
  const auto is_boxes = [](PointFormat format) { return format <= PointFormat::kCxcywh; };
  if (field.becomes && !(is_boxes(field.points) && is_boxes(*field.becomes))) {
    throw Error(ErrorKind::kValue, where + "must have boxes to give them another format.");
  }
  if (field.is_areas() && field.width != 1) {
    throw Error(ErrorKind::kValue, where + "must have areas as rows of 1 byte. Found: " +
                                       std::to_string(field.width) + ".");
  }
  if (field.form == FieldPlan::Form::kMasks && row_unit(field.points) != 1) {
    throw Error(ErrorKind::kValue,
                where + "must have masks of outlines or areas. Found: " +
                    std::string(kPointFormats[static_cast<size_t>(field.points)]) + ".");
  }
  const bool repeats = field.form == FieldPlan::Form::kPicture;
  const size_t unit = repeats ? dtype_size(field.picture.store.dtype) : field.width;
  if (!field.blank.empty() && (field.is_ragged() || field.blank.size() != unit)) {
    throw Error(ErrorKind::kValue,
                where + "must have a blank value of " + std::to_string(unit) +
                    " bytes, of rows none. Found: " + std::to_string(field.blank.size()) + ".");
  }
}

// Of forms that have one.
void set_width(FieldPlan& field) {
  if (field.form == FieldPlan::Form::kLabel) {
    field.width = sizeof(int64_t);
    if (field.blank.empty()) field.blank = bytes_of(kIgnoreLabel);
  }
  if (field.form == FieldPlan::Form::kId) {
    field.width = sizeof(int64_t);
    field.blank = bytes_of(int64_t{-1});
  }
  if (field.form == FieldPlan::Form::kView) field.width = FieldPlan::kViewBytes;
  if (field.form == FieldPlan::Form::kPad) field.width = 1;
}

// What follows has rows, or is drawn, and there is something to follow.
void check_objects(const FieldPlan& field, const ViewPlan& view, size_t number) {
  const bool rows = field.is_ragged() || field.form == FieldPlan::Form::kMasks;
  if (!field.follows || (rows && view.objects)) return;
  throw Error(ErrorKind::kValue, "Field " + std::to_string(number) +
                                     " of a sample follows its view's objects. Found: " +
                                     (rows ? "a view without any." : "no rows."));
}

// Masks and points can follow what moves pixels, but not to several places at once.
void check_follows(const FieldPlan& field, const PixelSpec& pixels) {
  const bool follows = field.form == FieldPlan::Form::kPoints ||
                       field.form == FieldPlan::Form::kMasks ||
                       (field.form == FieldPlan::Form::kPicture && field.picture.format.ids);
  const PixelOperation* const moving = follows ? pixels.moving_in_mix() : nullptr;
  if (moving == nullptr) return;
  throw Error(ErrorKind::kValue,
              "The transform mixes pictures of which some were moved (" +
                  std::string(moving->name) +
                  "), as AugMix does: masks, boxes, points and outlines cannot follow. Leave it "
                  "out, or these fields by fields=[...].");
}

}  // namespace

FieldsPlan::FieldsPlan(std::vector<ViewPlan> views, std::vector<FieldPlan> fields)
    : views_(std::move(views)), fields_(std::move(fields)), cuts_(fields_.size()) {
  if (views_.empty() || views_.size() > kMaxViews || fields_.empty()) {
    throw Error(ErrorKind::kValue,
                "A sample must have 1 to " + std::to_string(kMaxViews) +
                    " views and at least one field. Found: " + std::to_string(views_.size()) +
                    " views, " + std::to_string(fields_.size()) + " fields.");
  }
  for (const ViewPlan& view : views_) {
    if (!view.geometry.needs_boxes()) continue;
    has_points_ = true;  // motions of the whole picture come before its boxes are looked at
    if (view.objects) continue;
    throw Error(ErrorKind::kValue,
                "RandomIoUCrop draws from the sample's boxes. Found: a dataset without a field of "
                "boxes.");
  }
  for (uint32_t number = 0; number < fields_.size(); ++number) {
    FieldPlan& field = fields_[number];
    if (field.view >= views_.size()) {
      throw Error(ErrorKind::kValue, "A field's view must be below " +
                                         std::to_string(views_.size()) +
                                         ". Found: " + std::to_string(field.view) + ".");
    }
    set_width(field);
    check_steps(field, number);
    if (!field.picture.nearest || field.picture.format.ids) {
      field.picture.pixels = views_[field.view].pixels;
      field.picture.source = views_[field.view].source;
    }
    const GeometrySpec& geometry = views_[field.view].geometry;
    if (!field.picture.nearest) field.picture.colour = geometry.fill;
    if (field.form == FieldPlan::Form::kPicture && field.picture.fill != 0 && field.blank.empty()) {
      field.blank = bytes_of(field.picture.fill);
      field.blank.resize(dtype_size(field.picture.store.dtype));
    }
    if (field.picture.nearest && geometry.mask_fill) field.picture.fill = *geometry.mask_fill;
    check(field, number);
    check_objects(field, views_[field.view], number);
    check_follows(field, views_[field.view].pixels);
    check_follows(field, views_[field.view].source);
    if (field.form == FieldPlan::Form::kPicture) add_picture(number);
    has_views_ = has_views_ || field.has_view();
    has_points_ = has_points_ || field.form == FieldPlan::Form::kPoints ||
                  field.form == FieldPlan::Form::kMasks || field.form == FieldPlan::Form::kView ||
                  field.follows;
    has_objects_ = has_objects_ || field.follows;
    has_vision_ = has_vision_ || field.is_vision();
    has_windows_ = has_windows_ || !field.steps.empty();
    for (const uint32_t partner : field.steps) partners_ = std::max(partners_, partner);
  }
  if (has_windows_ && has_vision_) {
    throw Error(ErrorKind::kValue, "Pictures as rows of patches have no windows of frames.");
  }
}

// Steps are of what has one size, and each step's view is there.
void FieldsPlan::check_steps(const FieldPlan& field, uint32_t number) const {
  using Form = FieldPlan::Form;
  const bool picture = field.form == Form::kPicture;
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kValue, "Field " + std::to_string(number) + " of a sample " + why);
  };
  if (field.steps.empty()) {
    if (field.form == Form::kPad) refuse("says which steps are padding, and has no steps.");
    if (field.each_step) refuse("has a view for each step, and no steps.");
    return;
  }
  if (!picture && field.form != Form::kFixed && field.form != Form::kLabel &&
      field.form != Form::kPad) {
    refuse("has steps: that is for pictures, values of one size, labels and padding.");
  }
  const ViewPlan& view = views_[field.view];
  if (picture && (view.out_width == 0 || view.out_height == 0)) {
    refuse("has steps, and pictures that differ in size: a window's have one size.");
  }
  if (!field.each_step) return;
  if (!picture) refuse("has a view for each step, and no pictures.");
  for (size_t step = 0; step < field.steps.size(); ++step) {
    if (field.view + step >= views_.size()) {
      refuse("has a view for each of its " + std::to_string(field.steps.size()) +
             " steps. Found: views up to " + std::to_string(views_.size() - 1) + ", the first is " +
             std::to_string(field.view) + ".");
    }
    const ViewPlan& other = views_[field.view + step];
    if (other.out_width != view.out_width || other.out_height != view.out_height) {
      refuse("has pictures of one size at each of its steps. Found: view " +
             std::to_string(field.view + step) + " has another one.");
    }
  }
}

void FieldsPlan::add_picture(uint32_t number) {
  const FieldPlan& field = fields_[number];
  cuts_[number].emplace(field.picture);
  for (uint32_t step = 0; step < field.frames(); ++step) add_frame(field, {number, step});
}

void FieldsPlan::add_frame(const FieldPlan& field, Frame frame) {
  const std::pair key(field.part, field.partner_at(frame.step));
  const auto place = std::lower_bound(
      streams_.begin(), streams_.end(), key,
      [](const Stream& one, const auto& wanted) {
        return std::pair(one.number, one.partner) < wanted;
      });
  const auto same = [&](const Stream& one) { return one.number == field.part; };
  if (const auto other = std::ranges::find_if(streams_, same); other != streams_.end()) {
    const PixelFormat& format = fields_[other->frames.front().field].picture.format;
    if (!(format == field.picture.format)) {
      throw Error(ErrorKind::kValue, "All fields of a stream of records have one format. Found: " +
                                         format_text(format) + " and " +
                                         format_text(field.picture.format) + ".");
    }
  }
  if (place != streams_.end() && std::pair(place->number, place->partner) == key) {
    place->frames.push_back(frame);
  } else {
    streams_.insert(place, {field.part, {frame}, key.second});
  }
}

size_t FieldsPlan::picture_bytes() const {
  size_t bytes = 0;
  for (const FieldPlan& field : fields_) {
    if (field.form != FieldPlan::Form::kPicture) continue;
    const ViewPlan& view = views_[field.view];
    bytes += field.pixel_bytes() * static_cast<size_t>(view.out_width) *
             static_cast<size_t>(view.out_height) * field.frames();
  }
  return bytes;
}

}  // namespace fastload
