#if defined(__x86_64__)

#include "decode/jpeg_entropy_loop.h"

namespace fastload {

bool decode_run_avx2(const uint8_t* data, size_t& position, const BlockTarget* block,
                     const BlockTarget* end, const uint8_t* places, DeferredValue* deferred) {
  return decode_run(data, position, block, end, places, deferred);
}

}  // namespace fastload

#endif
