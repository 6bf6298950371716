// Mosaics: where several pictures lie on a canvas, and which part of that the sample shows. Places
// are those of Ultralytics' Mosaic and RandomPerspective (8.4), computed in double.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/geometry.h"
#include "base/philox.h"
#include "transform/pixels/motion.h"
#include "transform/resample.h"

namespace fastload {

struct MosaicSpec {
  int size = 640;  // of the sample, in pixels a side: even
  int tiles = 4;   // 4 or 9
  // Each number is drawn uniformly from those between the negative and this one.
  double degrees = 0;      // by which it is turned
  double translate = 0.1;  // around the middle, in parts of the size
  double scale = 0.5;      // around 1
  double shear = 0;        // degrees, along each axis
  double perspective = 0;  // 1 / pixels
  std::array<uint8_t, 3> fill{114, 114, 114};
  double mixup_alpha = 32;  // of the weight of a second one

  // Whether pictures are only scaled and moved: then each is resized once, to where the sample
  // shows it. Else canvases are moved.
  [[nodiscard]] bool upright() const { return degrees == 0 && shear == 0 && perspective == 0; }
};

struct PictureSide {
  int width = 0, height = 0;  // pixels
};

// A picture of a mosaic: resized to width x height pixels, its corner at (x, y) of the canvas.
struct PlacedPicture {
  int width = 0, height = 0;
  int x = 0, y = 0;
  Rect shown;  // of the resized picture: what the sample shows of it; without an area: nothing
};

// A sample's mosaic.
struct Composition {
  int canvas_width = 0, canvas_height = 0;  // pixels
  std::vector<PlacedPicture> pictures;      // the later one covers the earlier one
  Rect visible;                             // of the canvas: what is seen of it; may have no area
  Motion of_canvas;                         // from the sample to the canvas
  Motion motion;                            // from the sample to the visible part
  double gain = 1;                          // how much larger the sample shows the canvas
};

// The mosaic of pictures of these sizes as stored: as many as the spec has tiles; or of one, which
// is its own canvas. Throws Error(kValue) for another count and sizes below 1.
Composition compose(const MosaicSpec& spec, std::span<const PictureSide> sizes,
                    const SampleRng& rng);

// The size that a picture of an upright mosaic is kept in: the placed one's, or smaller as stored.
PictureSide kept_size(const PlacedPicture& picture, const PictureSide& stored);

// What an upright mosaic's sample shows of a picture.
struct ShownPart {
  Rect to;          // of the sample: the pixels whose middles lie on the picture; may have no area
  Placing placing;  // of the picture in the size it is kept in, to those
};

ShownPart shown_part(const Composition& made, const PlacedPicture& picture, const PictureSide& kept,
                     int size);

// The weight of the first of two samples that are mixed: Beta(alpha, alpha).
double mixup_weight(double alpha, const SampleRng& rng);

// first * weight + second * (1 - weight) of each byte, in double, truncated, into `first`.
void mix_up(uint8_t* first, const uint8_t* second, size_t bytes, double weight);

}  // namespace fastload
