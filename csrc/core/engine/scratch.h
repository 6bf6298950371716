// What a thread keeps between samples, whichever loader they are for.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/decode.h"
#include "transform/buffer.h"
#include "transform/cut.h"
#include "transform/nearest.h"
#include "transform/pixels/stage.h"
#include "transform/resample.h"
#include "vision/cutter.h"

namespace fastload {

// Of samples that are put together of several pictures.
struct ComposeScratch {
  NearestSampler nearest;        // of tiles
  Resampler placer;              // likewise
  Buffer<uint8_t> canvas, warp;  // likewise
  Buffer<uint8_t> made[2];       // what was put together, and what is mixed into it
};

// Memory grows with the largest picture seen, not with the number of loaders.
struct Scratch {
  Decoder decoder;
  Resampler resampler;
  PixelStage pixels;
  Cutter cutter{resampler, pixels};
  std::vector<uint8_t> record;   // encoded bytes from remote file systems
  std::vector<uint8_t> entries;  // entry points of which not all stay in memory
  std::vector<uint8_t> bounded;  // a picture that a crop is cut from; see bounded.h
  std::vector<uint8_t> shared;   // a part of a picture that several views are cut from
  ComposeScratch compose;
  VisionCutter vision;
};

}  // namespace fastload
