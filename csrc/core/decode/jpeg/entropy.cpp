#include "decode/jpeg/entropy.h"

#include "decode/jpeg/entropy_loop.h"

namespace fastload {

bool decode_run_scalar(const uint8_t* data, size_t& position, BlockTargets& targets, size_t begin,
                       size_t end, const uint8_t* places) {
  return decode_run(data, position, targets, begin, end, places);
}

DecodeRun decode_run_for(SimdLevel level) {
#if defined(__x86_64__)
  if (level >= SimdLevel::kAvx2) return decode_run_avx2;
#endif
  static_cast<void>(level);
  return decode_run_scalar;
}

}  // namespace fastload
