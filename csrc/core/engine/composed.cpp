// Pictures of mosaics: each tile's visible part is resized to its place in the picture that the
// sample's fields are cut from; of turned mosaics, and of masks, to a canvas that is moved into it.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "base/clock.h"
#include "decode/rows.h"
#include "engine/kept_pictures.h"
#include "engine/pictures.h"
#include "engine/views.h"
#include "io/guarded_range.h"
#include "transform/pixels/warp.h"
#include "transform/timed_sink.h"

namespace fastload {
namespace {

// Rows of a part of a picture in memory.
class PartOfCanvas final : public RowSink {
 public:
  PartOfCanvas(uint8_t* first, size_t stride, size_t row)
      : first_(first), stride_(stride), row_(row) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    uint8_t* to = first_ + stride_ * static_cast<size_t>(y);
    for (int i = 0; i < count; ++i, pixels += stride, to += stride_) std::memcpy(to, pixels, row_);
  }
  void restart() override {}  // rows are put where they belong, again

 private:
  uint8_t* first_;
  size_t stride_, row_;
};

size_t area(const Rect& rect) {
  return static_cast<size_t>(rect.width) * static_cast<size_t>(rect.height);
}

bool is_shown(const Tile& tile) { return area(tile.view.window) > 0; }

// One pixel of what no tile covers.
std::array<uint8_t, 3> blank_pixel(const MosaicSpec& mosaic, const CutSpec& cut) {
  if (!cut.format.ids) return mosaic.fill;
  std::array<uint8_t, 3> pixel{};
  const auto fill = static_cast<uint16_t>(cut.fill);
  std::memcpy(pixel.data(), &fill, cut.format.pixel_bytes());
  return pixel;
}

void fill_with(std::span<const uint8_t> pixel, size_t count, uint8_t* to) {
  if (std::ranges::all_of(pixel, [&](uint8_t byte) { return byte == pixel[0]; })) {
    std::memset(to, pixel[0], pixel.size() * count);
    return;
  }
  for (size_t i = 0; i < count; ++i, to += pixel.size()) {
    std::memcpy(to, pixel.data(), pixel.size());
  }
}

// Fills what none of the parts covers of a square.
void fill_between(std::span<const ShownPart> parts, std::span<const uint8_t> pixel, int size,
                  uint8_t* to) {
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size;) {
      int covered = x, next = size;  // up to where a part lies here, and where the next one begins
      for (const auto& [part, _] : parts) {
        if (y < part.y || y >= part.y + part.height) continue;
        if (part.x > x) next = std::min(next, part.x);
        if (part.x <= x) covered = std::max(covered, part.x + part.width);
      }
      if (covered == x) {
        fill_with(pixel, static_cast<size_t>(next - x), to + pixel.size() * static_cast<size_t>(x));
        covered = next;
      }
      x = covered;
    }
    to += pixel.size() * static_cast<size_t>(size);
  }
}

// What `cut` throws of another sample's record says so.
template <class Cut>
void naming(const Tile& tile, const Cut& cut) {
  try {
    cut();
  } catch (const Error& error) {
    if (tile.number == 0) throw;
    throw Error(error.kind(), "record " + std::to_string(tile.home.id) + " of " +
                                  tile.home.source->reader->index().path() +
                                  ", which is put together with it: " + error.what());
  }
}

// Whether the tiles that are shown, which do not overlap, leave nothing of the canvas.
bool is_covered(std::span<const Tile> tiles, const Rect& visible) {
  size_t covered = 0;
  for (const Tile& tile : tiles) covered += area(tile.view.window);
  return covered == area(visible);
}

}  // namespace

void Pictures::draw_mosaic(Job& job) {
  const auto size_of = [this](const Sources::Home& home, const Record& record) {
    return first_size(home, record, decoder_, scratch_);
  };
  drawer_.draw_mosaic(sources_, job.id, job.batch.partners(job.position), job.rng(0), size_of,
                      job.samples.front());
}

void Pictures::produce_mosaic(Job& job, const FieldsPlan::Stream& stream, uint32_t slot) {
  const uint32_t field = stream.frames.front().field;
  const CutPlan& cut = plan_.fields.cut(field);
  const Sample& sample = job.samples.front();
  const Together& together = *sample.together;
  const auto size = static_cast<size_t>(plan_.mosaic->size);
  const size_t bytes = size * size * cut.spec().format.pixel_bytes();
  const bool mixes = together.mosaics.size() > 1;
  // Of ids the heavier one's are taken.
  const bool ids = cut.spec().format.ids;
  const size_t heavier = mixes && ids && together.weight < 0.5 ? 1 : 0;
  size_t begin = 0;
  for (size_t i = 0; i < together.mosaics.size(); ++i) {
    const Composition& mosaic = together.mosaics[i];
    const auto tiles = std::span(sample.tiles).subspan(begin, mosaic.pictures.size());
    begin += tiles.size();
    Buffer<uint8_t>& to = compose_.made[ids || i == 0 ? 0 : 1];
    to.reserve(bytes + RowSink::kSlack);
    if (ids && mixes && i != heavier) {
      skip(job, tiles, slot);
    } else {
      if (ids || !plan_.mosaic->upright()) {
        fill_canvas(job, stream, slot, tiles, mosaic.visible);
        move_canvas(mosaic, cut.spec(), to.data());
      } else {
        place_tiles(job, stream, slot, tiles, mosaic, to.data());
      }
    }
  }
  const uint64_t before = now_ns();
  if (mixes && !ids) {
    mix_up(compose_.made[0].data(), compose_.made[1].data(), bytes, together.weight);
  }
  cut_composed(job, field, together.view);
  resize_ns_ += now_ns() - before;
}

void Pictures::skip(const Job& job, std::span<const Tile> tiles, uint32_t slot) {
  for (const Tile& tile : tiles) ahead_.skip(job.batch.ahead().get(), request(job, tile, slot));
}

// The number of a tile's record among those of the batch.
uint32_t Pictures::request(const Job& job, const Tile& tile, uint32_t slot) const {
  const auto streams = static_cast<uint32_t>(plan_.fields.streams().size());
  return (job.position * (1 + job.batch.partner_count()) + tile.number) * streams + slot;
}

// An upright mosaic as the sample shows it: each picture is resized to its place.
void Pictures::place_tiles(Job& job, const FieldsPlan::Stream& stream, uint32_t slot,
                           std::span<const Tile> tiles, const Composition& mosaic, uint8_t* to) {
  const CutSpec& spec = plan_.fields.cut(stream.frames.front().field).spec();
  const int size = plan_.mosaic->size;
  const size_t pixel_bytes = spec.format.pixel_bytes();
  const size_t stride = static_cast<size_t>(size) * pixel_bytes;
  std::array<ShownPart, 9> parts;
  std::array<PictureSide, 9> kept;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const Extent& stored = tiles[i].stored;
    kept[i] = kept_size(mosaic.pictures[i],
                        {static_cast<int>(stored.width), static_cast<int>(stored.height)});
    parts[i] = shown_part(mosaic, mosaic.pictures[i], kept[i], size);
  }
  const uint64_t before = now_ns();
  const std::array<uint8_t, 3> pixel = blank_pixel(*plan_.mosaic, spec);
  fill_between(std::span(parts).first(tiles.size()), std::span(pixel).first(pixel_bytes), size, to);
  resize_ns_ += now_ns() - before;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto& [place, placing] = parts[i];
    if (area(place) == 0) {
      skip(job, tiles.subspan(i, 1), slot);
      continue;
    }
    View view = tiles[i].view;
    view.resized_width = kept[i].width;
    view.resized_height = kept[i].height;
    view.window = source_rect(placing);
    PartOfCanvas out(
        to + stride * static_cast<size_t>(place.y) + pixel_bytes * static_cast<size_t>(place.x),
        stride, pixel_bytes * static_cast<size_t>(place.width));
    compose_.placer.begin(placing, out, spec.format);
    naming(tiles[i], [&] { cut_tile(job, stream, slot, tiles[i], view, compose_.placer); });
    compose_.placer.end();
  }
}

// The part of a mosaic's canvas that is visible.
void Pictures::fill_canvas(Job& job, const FieldsPlan::Stream& stream, uint32_t slot,
                           std::span<const Tile> tiles, const Rect& visible) {
  const CutSpec& spec = plan_.fields.cut(stream.frames.front().field).spec();
  const size_t pixel_bytes = spec.format.pixel_bytes();
  compose_.canvas.reserve(area(visible) * pixel_bytes + RowSink::kSlack);
  const uint64_t before = now_ns();
  if (!is_covered(tiles, visible)) {
    const std::array<uint8_t, 3> pixel = blank_pixel(*plan_.mosaic, spec);
    fill_with(std::span(pixel).first(pixel_bytes), area(visible), compose_.canvas.data());
  }
  resize_ns_ += now_ns() - before;
  for (const Tile& tile : tiles) {
    if (!is_shown(tile)) {  // announced where its size was not known
      ahead_.skip(job.batch.ahead().get(), request(job, tile, slot));
      continue;
    }
    const size_t stride = static_cast<size_t>(visible.width) * pixel_bytes;
    uint8_t* const first = compose_.canvas.data() +
                           stride * static_cast<size_t>(tile.y - visible.y) +
                           pixel_bytes * static_cast<size_t>(tile.x - visible.x);
    PartOfCanvas out(first, stride, pixel_bytes * static_cast<size_t>(tile.view.window.width));
    naming(tile, [&] { cut_tile(job, stream, slot, tile, tile.view, out); });
  }
}

// A tile's record in hand.
struct Pictures::OpenTile {
  const Tile& tile;
  const CutSpec& spec;
  const View view;  // of the open picture
  const EntryPoints entries;
};

// Cuts a window of a tile's whole picture, resized: from the picture that was kept, or from the
// record, whose picture is kept.
void Pictures::cut_tile(Job& job, const FieldsPlan::Stream& stream, uint32_t slot, const Tile& tile,
                        const View& view, RowSink& out) {
  const CutSpec& spec = plan_.fields.cut(stream.frames.front().field).spec();
  const uint64_t key =
      (tile.home.source->first + tile.home.id) * plan_.fields.streams().size() + slot;
  if (const auto kept = kept_.find(key, view.resized_width, view.resized_height)) {
    ahead_.skip(job.batch.ahead().get(), request(job, tile, slot));
    give_window(kept, view.window, spec.format.pixel_bytes(), out);
    return;
  }
  const bool first = stream.number == 0;
  std::shared_ptr<const void> held;
  const uint64_t before = now_ns();
  Bytes bytes = first ? find_coefficients(tile.home, tile.record) : Bytes{};
  if (!bytes.empty()) {
    ahead_.skip(job.batch.ahead().get(), request(job, tile, slot));
  } else {
    bytes = ahead_.read(job.batch.ahead().get(), request(job, tile, slot),
                        origin_of(tile.home, stream.number), scratch_, held, nullptr);
  }
  job.start += count_read(before, bytes.size()) - before;  // what follows is decoding's
  Reader& reader = tile.home.source->stream(stream.number);
  const Record& record = first ? tile.record : reader.index().record(tile.home.id);
  const ImageInfo info = open_record(decoder_, bytes, record, reader.shown(), spec.format);
  const EntryPoints entries = first ? entries_of(tile.home, bytes) : EntryPoints{};
  const OpenTile open{tile, spec, scaled(view, tile.drawn, {info.width, info.height}), entries};
  KeptPictures::Use whole = whole_tile(open);
  if (!whole) decode_tile(open, open.view.window, out);
  confirm(tile.home, stream.number, bytes, held != nullptr, entries);
  if (first) keep_coefficients(tile.home, tile.record, bytes);
  if (!whole) return;
  give_window(whole, view.window, spec.format.pixel_bytes(), out);
  if (loss_count() == losses_) kept_.keep(key, whole);
}

// A part of a kept picture.
void Pictures::give_window(const KeptPictures::Use& picture, const Rect& window, size_t pixel_bytes,
                           RowSink& out) {
  const uint64_t before = now_ns();
  const size_t stride = static_cast<size_t>(picture.width()) * pixel_bytes;
  const uint8_t* const first = picture.pixels() + stride * static_cast<size_t>(window.y) +
                               pixel_bytes * static_cast<size_t>(window.x);
  out.rows(first, stride, 0, window.height);
  resize_ns_ += now_ns() - before;
}

// The whole picture, resized; nothing where there is no room for it, or it is damaged, perhaps
// where the tile does not need it.
KeptPictures::Use Pictures::whole_tile(const OpenTile& open) {
  const int width = open.view.resized_width, height = open.view.resized_height;
  const size_t pixel_bytes = open.spec.format.pixel_bytes();
  KeptPictures::Use whole = kept_.make(width, height, pixel_bytes);
  if (!whole) return whole;
  const auto warnings = [this] { return decoder_.counts()[kWarnings]; };
  const uint64_t before = warnings();
  const size_t row = static_cast<size_t>(width) * pixel_bytes;
  PartOfCanvas out(whole.pixels(), row, row);
  try {
    decode_tile(open, {0, 0, width, height}, out);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDecode) throw;
    return {};
  }
  if (warnings() != before) return {};
  return whole;
}

void Pictures::decode_tile(const OpenTile& open, const Rect& window, RowSink& out) {
  View view = open.view;
  view.window = window;
  if (open.spec.nearest) {
    compose_.nearest.begin(view, open.spec.format, open.spec.fill, out);
    TimedSink sink(compose_.nearest);
    decoder_.decode(compose_.nearest.source(), sink, open.entries);
    resize_ns_ += sink.spent();
    compose_.nearest.end();
  } else {
    resampler_.begin(view, view.filter, out, open.spec.format);
    TimedSink sink(resampler_);
    decoder_.decode(source_rect(view, view.filter), sink, open.entries);
    resize_ns_ += sink.spent();
    resampler_.end();
  }
}

// The canvas as the sample shows it.
void Pictures::move_canvas(const Composition& mosaic, const CutSpec& spec, uint8_t* to) {
  const uint64_t before = now_ns();
  const int size = plan_.mosaic->size;
  const Rect& visible = mosaic.visible;
  const std::array<uint8_t, 3> pixel = blank_pixel(*plan_.mosaic, spec);
  const size_t pixel_bytes = spec.format.pixel_bytes();
  if (area(visible) == 0) {
    fill_with(std::span(pixel).first(pixel_bytes), area({0, 0, size, size}), to);
  } else if (spec.format.ids) {
    move_nearest_into(mosaic.motion, spec.format.bits == 16, pixel_bytes, visible.width,
                      visible.height, compose_.canvas.data(), pixel.data(), size, size, to);
  } else {
    const auto memory = [this](size_t bytes) {
      compose_.warp.reserve(bytes);
      return compose_.warp.data();
    };
    warp_into({mosaic.motion, WarpFilter::kBilinear, pixel},
              {compose_.canvas.data(), visible.width, visible.height}, memory, {to, size, size});
  }
  resize_ns_ += now_ns() - before;
}

// Cuts a field's view of what was put together.
void Pictures::cut_composed(const Job& job, uint32_t field, const View& view) {
  const FieldPlan& plan = plan_.fields.fields()[field];
  const FieldPlace& place = job.batch.place(field);
  check_room(view, place, job.position, plan_.fields.is_measured(plan));
  const bool dense = !plan.picture.store.channels_last;
  const int size = plan_.mosaic->size;
  cutter_.begin(view, plan_.fields.cut(field),
                {place.at(job.position), dense ? 0 : place.row_bytes_at(job.position, plan)},
                job.rng(plan.view), {size, size, {size, size}});
  const Rect source = cutter_.source();
  const size_t pixel_bytes = plan.picture.format.pixel_bytes();
  const size_t stride = static_cast<size_t>(size) * pixel_bytes;
  emit_rows(cutter_,
            compose_.made[0].data() + stride * static_cast<size_t>(source.y) +
                pixel_bytes * static_cast<size_t>(source.x),
            stride, source.height);
  cutter_.end();
  fill_padding(place, plan, job.position, {view.made().height, view.made().width});
}

}  // namespace fastload
