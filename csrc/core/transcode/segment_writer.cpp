#include "transcode/segment_writer.h"

namespace fastload {

MaskClasses::MaskClasses(const SegmentCoding& coding) : lengths(coding.mask_lengths) {
  for (size_t bits = 0; bits < 64; ++bits) {
    size_t best = kMaskClasses;
    for (size_t i = 0; i < kMaskClasses; ++i) {
      if (lengths[i] < bits) continue;
      if (best == kMaskClasses || lengths[i] < lengths[best]) best = i;
    }
    of[bits] = static_cast<uint8_t>(best);
  }
}

}  // namespace fastload
