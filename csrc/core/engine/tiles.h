// The pictures that a sample is made of, and where each goes: drawn once a view, for all fields.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cache/bounded.h"
#include "collate/batch.h"
#include "engine/sample_plan.h"
#include "engine/sources.h"
#include "transform/mosaic.h"
#include "transform/pixels/motion.h"
#include "transform/pixels/stage.h"
#include "transform/view.h"

namespace fastload {

// One picture of a sample.
struct Tile {
  Sources::Home home;
  Record record;    // of the first stream
  Extent stored;    // size of the first picture as stored
  Extent drawn;     // size of what the view was drawn of
  View view;        // of that
  Motions motions;  // around the view; where there are points
  // Of a mosaic: which of the batch's partners it is, counted from 1 (0: the sample itself), and
  // where its window lies on the canvas.
  uint32_t number = 0;
  int x = 0, y = 0;
};

// What a sample's tiles are put together to: a mosaic, or two that are mixed.
struct Together {
  std::vector<Composition> mosaics;  // of the tiles, one after the other
  double weight = 1;                 // of the first one
  View view;                         // of the picture that this makes
  Motions motions;                   // likewise
};

// What one view of a sample consists of.
struct Sample {
  std::vector<Tile> tiles;
  std::optional<Together> together;  // where there may be several
};

// A sample on its way into the batch.
struct Job {
  Batch& batch;
  const uint32_t position;
  const uint64_t id;  // sample id
  const Sources::Home home;
  const Record record;  // of the first stream
  const PhiloxKey key;
  const std::span<Sample> samples;  // of each view; drawn when the first picture is open
  uint64_t start = 0;               // ns, when its present stage began
  Extent stored = {};               // size of the first picture as stored
  // Of a plan with windows: where the sample itself and its partners are.
  std::span<const Sources::Home> homes = {};

  [[nodiscard]] const Sources::Home& home_of(uint32_t partner) const {
    return partner == 0 ? home : homes[partner];
  }
  [[nodiscard]] SampleRng rng(uint32_t view) const {
    return {key, id, batch.draw(position), static_cast<uint8_t>(view)};
  }
};

// Not thread-safe: it keeps memory for what it draws.
class TileDrawer {
 public:
  // The plan must outlive it.
  explicit TileDrawer(const SamplePlan& plan) : plan_(plan.fields), mosaic_(plan.mosaic) {}

  // Draws the view of that number of a picture of which `stored` is the size on storage, and
  // `drawn` that of what is cut from. Throws as draw_view() and
  // boxes_of().
  void draw(uint32_t view, const Sources::Home& home, const Record& record, Extent stored,
            Extent drawn, const SampleRng& rng, Sample& to);

  // Draws the sample's mosaic. `partners`: as BatchRequest's, of this sample; `size_of` gives the
  // size of a first picture as stored. Throws as compose() and what size_of() throws.
  using SizeOf = std::function<Extent(const Sources::Home&, const Record&)>;
  void draw_mosaic(const Sources& sources, uint64_t id, std::span<const int64_t> partners,
                   const SampleRng& rng, const SizeOf& size_of, Sample& to);

 private:
  void add_mosaic(const Sources& sources, std::span<const uint64_t> ids, uint32_t first,
                  const SampleRng& rng, const SizeOf& size_of, Sample& to);

  const FieldsPlan& plan_;
  const std::optional<MosaicSpec>& mosaic_;
  DrawnPixels pixels_;
};

}  // namespace fastload
