#include "engine/views.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

std::string size_text(int width, int height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

}  // namespace

ImageInfo open_record(Decoder& decoder, Bytes bytes, const Record& record, const Shown& shown,
                      const PixelFormat& format) {
  if (static_cast<Codec>(record.codec) != Codec::kRaw) return decoder.open(bytes, format, shown);
  const bool wide = (record.flags & ImageInfo::kSixteenBit) != 0;
  const PixelFormat stored{record.channels == 0 ? 3 : record.channels, wide ? 16 : 8, false};
  return decoder.open_raw(bytes, record.width, record.height, stored, format);
}

Extent first_size(const Sources::Home& home, const Record& record, Decoder& decoder,
                  std::vector<uint8_t>& scratch) {
  if (record.width != 0 && record.height != 0) return {record.width, record.height};
  Reader& reader = *home.source->reader;
  const ImageInfo info = decoder.open(reader.read(home.id, scratch), {}, reader.shown());
  return {info.width, info.height};
}

View scaled(const View& view, Extent drawn, Extent size) {
  return view_at_size(view, drawn.width, drawn.height, size.width, size.height);
}

void check_room(const View& view, const FieldPlace& place, uint32_t position, bool measured) {
  const auto [height, width] = place.size_at(position);
  const Sides made = view.made();
  if (made.width == width && made.height == height) return;
  if (!measured) {
    throw Error(ErrorKind::kValue,
                "the picture is " + size_text(made.width, made.height) +
                    " pixels after the transforms, others are " + size_text(width, height) +
                    ": add Resize, CenterCrop or RandomResizedCrop to the transform");
  }
  // Padding takes smaller ones; those of a list are as they were measured.
  if (place.sizes.empty() && made.width <= width && made.height <= height) return;
  throw Error(ErrorKind::kFormat, "the picture is " + size_text(made.width, made.height) +
                                      " pixels after the transforms, and there is room for " +
                                      size_text(width, height) +
                                      ": its size is not the one in the index. Pack again");
}

void motions_of(const PixelSpec& spec, int width, int height, const SampleRng& rng,
                DrawnPixels& drawn, std::vector<Motion>& to) {
  to.clear();
  if (spec.moving() == nullptr) return;
  spec.draw(rng, drawn);
  drawn.motions(width, height, to);
}

void check_column(const Column& column, const FieldPlan& field) {
  const uint32_t width = column.width();
  const bool label = field.form == FieldPlan::Form::kLabel;
  const bool masks = field.form == FieldPlan::Form::kMasks;
  const Storage storage = field.is_ragged() || masks ? Storage::kRagged : Storage::kFixed;
  const bool fits = label ? width == sizeof(int32_t) || width == sizeof(int64_t)
                          : width == (masks ? 1 : field.width);
  if (column.storage() == storage && fits) return;
  throw Error(ErrorKind::kValue, column.path() + " has values or rows of " + std::to_string(width) +
                                     " bytes, the field takes " +
                                     (label ? "4 or 8" : std::to_string(field.width)) + " of " +
                                     (field.is_ragged() ? "rows" : "values") + ".");
}

void check_objects(const std::vector<Column*>& columns, const ObjectsPlan& objects) {
  const auto check = [&](uint32_t part, uint32_t width, const char* what) {
    const bool is_there = part < columns.size();
    if (is_there && columns[part]->storage() == Storage::kRagged &&
        columns[part]->width() == width) {
      return;
    }
    throw Error(ErrorKind::kValue, std::string("A view's objects are led by a column of ") + what +
                                       ". Found: " +
                                       (is_there ? columns[part]->path()
                                                 : "column " + std::to_string(part) + " of " +
                                                       std::to_string(columns.size())) +
                                       ".");
  };
  check(objects.part, 4 * sizeof(float), "boxes");
  if (objects.without) check(*objects.without, 1, "bools, which of them to leave out");
}

int64_t label_of(const Sources::Home& home, const Record& record, const FieldPlan& field) {
  const auto& [source, own] = home;
  if (field.part == FieldPlan::kIndex) return source->label(record.label);
  Column& column = *source->columns[field.part];
  if (column.width() == sizeof(int32_t)) {
    int32_t label = 0;
    column.copy(own, reinterpret_cast<uint8_t*>(&label), sizeof(label));
    return label;
  }
  int64_t label = 0;
  column.copy(own, reinterpret_cast<uint8_t*>(&label), sizeof(label));
  return label;
}

}  // namespace fastload
