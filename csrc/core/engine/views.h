// What the fields of a sample share: the size of its first picture, views at other sizes, labels.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/bounded.h"
#include "decode/decode.h"
#include "engine/sources.h"
#include "read_ahead/read_ahead.h"
#include "sample/field_place.h"
#include "sample/field_plan.h"
#include "transform/view.h"

namespace fastload {

// The size of the sample's first picture, of which the index has `record`, or which is opened.
// Throws as Reader::read and Decoder::open.
Extent first_size(const Sources::Home& home, const Record& record, Decoder& decoder,
                  std::vector<uint8_t>& scratch);

// A view that was drawn of a picture of size `drawn`, for one of `size`: the crop's corners are
// rounded to whole pixels, and the window has as many pixels as before.
View scaled(const View& view, Extent drawn, Extent size);

// Throws Error(kValue) where the view's window is not what the place has room for: exactly, or,
// where sizes were measured, in a corner of it.
void check_room(const View& view, const FieldPlace& place, uint32_t position, bool measured);

// The sample's label; `record` is of its first picture. Throws as Column::copy.
int64_t label_of(const Sources::Home& home, const Record& record, const FieldPlan& field);

// Throws Error(kValue) where the column's values are not what the field takes.
void check_column(const Column& column, const FieldPlan& field);

// Where the reading ahead finds a sample's record of a stream.
inline ReadAhead::Origin origin_of(const Sources::Home& home, uint32_t stream) {
  const Source& source = home.source;
  if (stream == 0) return {source.reader, source.entries, home.id, source.pixels.get()};
  return {&source.stream(stream), nullptr, home.id, nullptr};
}

}  // namespace fastload
