// What the picture processors of vision-language models do with a picture of a given size:
// which resizes, onto which canvas, into which tiles or patches, and how many tokens the text then
// has for it. Sizes alone, no pixels. The rules are those of the classes of transformers 5.23 that
// work with Pillow (image_processing_pil_*.py), expression by expression in double, so that floors
// and ceilings fall alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/geometry.h"
#include "transform/store.h"
#include "transform/view.h"

namespace fastload {

enum class VisionFamily : uint8_t {
  kQwen2Vl = 0,         // Qwen2-VL, 2.5, 3: patches in blocks that are merged
  kSiglip2 = 1,         // NaFlex: patches row by row
  kIdefics3 = 2,        // and SmolVLM: tiles, then the whole
  kLlavaOneVision = 3,  // the whole, then tiles of a canvas; of several pictures the whole alone
  kInternVl = 4,        // tiles, then the whole
  kGemma3 = 5,          // the whole, then crops
  kPaliGemma = 6,       // the whole
};

// Made by vision_rule() (numbers.h). What a family does not use is as it was.
struct VisionRule {
  VisionFamily family = VisionFamily::kQwen2Vl;
  int patch = 14;                // side of a patch in pixels
  int merge = 2;                 // patches along the side of a block that becomes one token
  int temporal = 2;              // how often a picture's patch stands in its row
  int64_t min_pixels = 3136;     // of the resized picture
  int64_t max_pixels = 1003520;  // of the resized picture
  int64_t first_max_pixels = 0;  // LLaMA-Factory resizes to so many before; 0: it does not
  int max_patches = 256;         // of a picture
  int longest_edge = 1456;       // of the resized picture, before it is made of whole tiles
  int tile = 384;                // side of a tile
  int min_tiles = 1;             // of a picture
  int max_tiles = 12;            // of a picture; LLaVA: the M of anyres_max_M, for tokens only
  int tokens = 256;              // of a tile
  bool crop_to_patches = true;   // whether there are tiles
  bool pan_and_scan = false;     // whether there are crops
  int pan_min_crop = 256;        // least side of a crop
  int pan_max_crops = 4;         // of a picture
  double pan_min_ratio = 1.2;    // of the sides of a picture that has crops
  std::pair<int, int> size{224, 224};          // height, width of the only result
  std::vector<std::pair<int, int>> pinpoints;  // height, width of canvases
  Filter filter = Filter::kBicubic;
  std::array<double, 3> mean{0.5, 0.5, 0.5};
  std::array<double, 3> std{0.5, 0.5, 0.5};
  double rescale = 1.0 / 255.0;

  // A patch or tile: height, width.
  [[nodiscard]] std::pair<int, int> unit() const;
  // Whether rows are patches.
  [[nodiscard]] bool has_patches() const { return family <= VisionFamily::kSiglip2; }
  // A row's shape. uint8 rows have no repetition: (C, 1, p, p) is in them, flat.
  [[nodiscard]] std::vector<size_t> row_shape(DType dtype) const;
  [[nodiscard]] size_t row_bytes(DType dtype) const;
};

// One picture made of another.
struct VisionStep {
  static constexpr int kSource = -1;
  static constexpr int64_t kNotCut = -1;

  int from = kSource;  // the step whose result it is made of
  Rect part;           // resized: what of that. Placed: where all of that is in the result
  int width = 0;       // of the result
  int height = 0;
  bool resized = true;    // else placed on a canvas
  bool coloured = false;  // a canvas of the mean's colour; else black
  Filter filter = Filter::kBilinear;
  int64_t first_row = kNotCut;  // where the rows begin that the result is cut into
};

// What becomes of a picture.
struct VisionSizes {
  int source_height = 0;  // of the picture
  int source_width = 0;
  int height = 0;  // of the picture that is cut into patches or tiles
  int width = 0;
  int64_t rows = 0;     // patches or tiles
  int grid_height = 0;  // patches, rows of tiles, or crops, down and across; 0, 0: not tiled
  int grid_width = 0;
  int64_t tokens = 0;             // of the picture in the text
  std::vector<VisionStep> steps;  // each after that which it is made from
};

// A picture of width x height pixels, one of so many in its sample. Throws Error(kValue) where the
// rule has no answer.
VisionSizes plan(const VisionRule& rule, int width, int height, int pictures_in_sample = 1);

// Where plan_many() puts what it finds: a row, two and a row for each picture.
struct VisionColumns {
  int64_t* rows = nullptr;
  int32_t* grids = nullptr;
  int64_t* tokens = nullptr;
};

// plan() of many: widths and heights in turn, and, unless nullptr, how many pictures each one's
// sample has. What plan() throws names the picture's position; without `strict` such a picture has
// zeros.
void plan_many(const VisionRule& rule, std::span<const int32_t> sizes, const int32_t* pictures,
               bool strict, const VisionColumns& columns);

// A pixel of the canvas that several pictures of LLaVA-OneVision are put on.
std::vector<uint8_t> canvas_colour(const VisionRule& rule);

}  // namespace fastload
