#if defined(__x86_64__)

#include "decode/jpeg/entropy_loop.h"

namespace fastload {

bool decode_run_avx2(const uint8_t* data, size_t& position, BlockTargets& targets, size_t begin,
                     size_t end, const uint8_t* places) {
  return decode_run(data, position, targets, begin, end, places);
}

}  // namespace fastload

#endif
