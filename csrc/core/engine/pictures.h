// One thread's way from a sample's records to its pictures in the slot: read, decode, cut.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/decode.h"
#include "engine/kept_pictures.h"
#include "engine/scratch.h"
#include "engine/shared_picture.h"
#include "engine/shared_records.h"
#include "engine/stats.h"
#include "engine/tiles.h"
#include "engine/transcoder.h"
#include "read_ahead/read_ahead.h"
#include "transform/cut.h"

namespace fastload {

// Not thread-safe. Cheap to make: its memory is in the thread's scratch.
class Pictures {
 public:
  // All must outlive it; `scratch` is used by nobody else meanwhile. `transcoder`: where a source
  // has a cache of coefficients.
  Pictures(const Sources& sources, const SamplePlan& plan, const FallbackDecode& fallback,
           ThreadStats& stats, Scratch& scratch, ReadAhead& ahead, KeptPictures& kept,
           Transcoder* transcoder);

  // Before a sample; `losses`: loss_count().
  void begin(uint64_t losses);
  // Reads the record of a stream and cuts its pictures' fields; `slot` counts the streams that are
  // read. With the first stream's the sample's views are drawn, and job.start follows the clock.
  void produce(Job& job, const FieldsPlan::Stream& stream, uint32_t slot);
  // Where the plan has a mosaic: draws the sample's, and makes the field of a stream of all its
  // tiles' records.
  void draw_mosaic(Job& job);
  void produce_mosaic(Job& job, const FieldsPlan::Stream& stream, uint32_t slot);
  // Draws the views where no field is of the first stream.
  void draw_by_index(Job& job);
  // ns of begin() until now in which pixels were transformed.
  [[nodiscard]] uint64_t resize_ns() const { return resize_ns_; }
  // After a sample that went well.
  void end();

 private:
  struct Open;
  bool open(Job& job, const FieldsPlan::Stream& stream, uint32_t slot, Open& open);
  bool produce_parts(Job& job, const FieldsPlan::Stream& stream, Bytes bytes,
                     const LoadedBytes& loaded);
  [[nodiscard]] View view_of(const Job& job, FieldsPlan::Frame frame, Extent size) const;
  bool take(Job& job, const FieldsPlan::Stream& stream, SharedRecords& shared,
            SharedRecords::Entry& entry);
  bool copy(const Job& job, FieldsPlan::Frame frame, const SharedRecords& shared,
            const SharedRecords::Entry& entry);
  bool cut_whole(const Job& job, const FieldsPlan::Stream& stream, SharedRecords& shared,
                 SharedRecords::Entry& entry, const ImageInfo& info, const EntryPoints& entries);
  bool open_stored(Open& open);
  static Bytes find_coefficients(const Sources::Home& home, const Record& record);
  void keep_coefficients(const Sources::Home& home, const Record& record, Bytes bytes);
  bool open_bounded(Open& open, const PixelFormat& format);
  void confirm(const Sources::Home& home, uint32_t stream, Bytes bytes, bool held,
               const EntryPoints& entries);
  uint64_t count_read(uint64_t start, size_t bytes);
  void draw(Job& job, Extent drawn);
  void cut_fields(const Job& job, const FieldsPlan::Stream& stream, const ImageInfo& info,
                  Bytes bytes, const EntryPoints& entries);
  bool decode_shared(const Job& job, const FieldsPlan::Stream& stream, const ImageInfo& info,
                     Bytes bytes, const EntryPoints& entries);
  template <class Decode>
  void cut(const Job& job, FieldsPlan::Frame frame, Extent size, const Decode& decode);
  EntryPoints entries_of(const Sources::Home& home, Bytes bytes);
  [[nodiscard]] uint32_t request(const Job& job, const Tile& tile, uint32_t slot) const;
  void skip(const Job& job, std::span<const Tile> tiles, uint32_t slot);
  void place_tiles(Job& job, const FieldsPlan::Stream& stream, uint32_t slot,
                   std::span<const Tile> tiles, const Composition& mosaic, uint8_t* to);
  void fill_canvas(Job& job, const FieldsPlan::Stream& stream, uint32_t slot,
                   std::span<const Tile> tiles, const Rect& visible);
  struct OpenTile;
  void cut_tile(Job& job, const FieldsPlan::Stream& stream, uint32_t slot, const Tile& tile,
                const View& view, RowSink& out);
  void give_window(const KeptPictures::Use& picture, const Rect& window, size_t pixel_bytes,
                   RowSink& out);
  KeptPictures::Use whole_tile(const OpenTile& open);
  void decode_tile(const OpenTile& open, const Rect& window, RowSink& out);
  void move_canvas(const Composition& mosaic, const CutSpec& spec, uint8_t* to);
  void cut_composed(const Job& job, uint32_t field, const View& view);
  void count_paths();

  const Sources& sources_;
  const SamplePlan& plan_;
  ThreadStats& stats_;
  Decoder& decoder_;
  Resampler& resampler_;
  Cutter& cutter_;
  TileDrawer drawer_;
  DrawnPixels drawn_;
  std::vector<uint8_t>& scratch_;
  std::vector<uint8_t>& entries_;
  BoundedPicture bounded_;
  SharedPicture shared_;
  ComposeScratch& compose_;
  std::vector<Rect> parts_;  // of the picture in work, one a field
  ReadAhead& ahead_;
  KeptPictures& kept_;
  Transcoder* const transcoder_;
  DecodeCounts counted_;
  uint64_t recut_ = 0;      // pictures that were opened a second time, as raw pixels, to cut from
  uint64_t resize_ns_ = 0;  // of the sample in work
  uint64_t losses_ = 0;     // loss_count() before it was begun
};

}  // namespace fastload
