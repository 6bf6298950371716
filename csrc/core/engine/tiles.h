// The pictures that a sample is made of, and where each goes: drawn once a view, for all fields.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/bounded.h"
#include "collate/batch.h"
#include "engine/sample_plan.h"
#include "engine/sources.h"
#include "transform/pixels/motion.h"
#include "transform/pixels/stage.h"
#include "transform/view.h"

namespace fastload {

// One picture of a sample.
struct Tile {
  Sources::Home home;
  Record record;     // of the first stream
  Extent stored;     // size of the first picture as stored
  Extent drawn;      // size of what the view was drawn of
  View view;         // of that
  Motions motions;   // around the view; where there are points
  int x = 0, y = 0;  // where its window lies in the sample's picture
};

// What one view of a sample consists of.
struct Sample {
  std::vector<Tile> tiles;
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

  [[nodiscard]] SampleRng rng(uint32_t view) const {
    return {key, id, batch.draw(position), static_cast<uint8_t>(view)};
  }
};

// Not thread-safe: it keeps memory for what it draws.
class TileDrawer {
 public:
  // The plan must outlive it.
  explicit TileDrawer(const FieldsPlan& plan) : plan_(plan) {}

  // Draws the view of that number of a picture of which `stored` is the size on storage, and
  // `drawn` that of what is cut from. Throws as draw_view() and
  // boxes_of().
  void draw(uint32_t view, const Sources::Home& home, const Record& record, Extent stored,
            Extent drawn, const SampleRng& rng, Sample& to);

 private:
  const FieldsPlan& plan_;
  DrawnPixels pixels_;
};

}  // namespace fastload
