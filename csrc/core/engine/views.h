// What the fields of a sample share: the size of its first picture, views at other sizes, labels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/bounded.h"
#include "decode/decode.h"
#include "engine/sources.h"
#include "engine/tiles.h"
#include "read_ahead/read_ahead.h"
#include "sample/field_place.h"
#include "sample/field_plan.h"
#include "sample/points.h"
#include "transform/view.h"
#include "transform/view_at_size.h"

namespace fastload {

// Opens a reader's record, whether it is a file or pixels. Throws as Decoder::open().
ImageInfo open_record(Decoder& decoder, Bytes bytes, const Record& record, const Shown& shown,
                      const PixelFormat& format = {});

// The size of the sample's first picture, of which the index has `record`, or which is opened.
// Throws as Reader::read and Decoder::open.
Extent first_size(const Sources::Home& home, const Record& record, Decoder& decoder,
                  std::vector<uint8_t>& scratch);

// As view_at_size().
View scaled(const View& view, Extent drawn, Extent size);

// Throws Error(kValue) where the view's window is not what the place has room for: exactly, or,
// where sizes were measured, in a corner of it.
void check_room(const View& view, const FieldPlace& place, uint32_t position, bool measured);

// The sample's label; `record` is of its first picture. Throws as Column::copy.
int64_t label_of(const Sources::Home& home, const Record& record, const FieldPlan& field);

// Where operations move the pixels of this sample's picture of that size.
void motions_of(const PixelSpec& spec, int width, int height, const SampleRng& rng,
                DrawnPixels& drawn, std::vector<Motion>& to);

// Throws Error(kValue) where the column's values are not what the field takes.
void check_column(const Column& column, const FieldPlan& field);

// The same of the columns that lead a view's objects.
void check_objects(const std::vector<Column*>& columns, const ObjectsPlan& objects);

// What `produce` throws of another sample's frame says so; `step` is the first that it stands at.
template <class Produce>
void naming_frame(const Job& job, uint32_t partner, uint32_t step, const Produce& produce) {
  try {
    produce();
  } catch (const Error& error) {
    if (partner == 0) throw;
    throw Error(error.kind(), "its frame of sample " +
                                  std::to_string(job.batch.frame_id(job.position, partner)) +
                                  " (step " + std::to_string(step) + "): " + error.what());
  }
}

// Where the reading ahead finds a sample's record of a stream.
inline ReadAhead::Origin origin_of(const Sources::Home& home, uint32_t stream) {
  const Source& source = *home.source;
  if (stream == 0) {
    return {source.reader, source.entries, home.id, source.pixels.get(), source.coefficients.get()};
  }
  return {&source.stream(stream), nullptr, home.id, nullptr};
}

}  // namespace fastload
