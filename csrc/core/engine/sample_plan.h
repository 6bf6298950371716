// What is the same for all samples of a loader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "decode/decode.h"
#include "engine/shared_picture.h"
#include "sample/field_plan.h"
#include "transform/mosaic.h"

namespace fastload {

struct SamplePlan {
  FieldsPlan fields;
  uint64_t seed = 0;
  DecodeLimits limits = {};
  // Crops are cut from the picture scaled to this longest side: kUnbounded, or pixels; 0: as the
  // record has it. Of the first stream's pictures.
  uint32_t decoded_side = 0;
  DecodeOnce once = DecodeOnce::kCheaper;
  // Samples are put together of several, which stand where a sample's first picture does.
  std::optional<MosaicSpec> mosaic = {};
  size_t kept_bytes = 0;  // of pictures of mosaics that are kept for others; see kept_pictures.h
  // Records that several frames of a batch's windows are of are decoded once; false: tests and
  // benchmarks. The pixels are the same.
  bool share = true;
};

}  // namespace fastload
