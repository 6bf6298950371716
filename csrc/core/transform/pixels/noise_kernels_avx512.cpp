#include "transform/pixels/noise_kernels.h"

#if defined(__x86_64__)
#include "transform/pixels/noise_loop.h"

namespace fastload {

void add_noise_avx512(uint8_t* bytes, size_t count, PhiloxKey key, const NoiseTable& table) {
  noise_loop(bytes, count, key, table);
}

}  // namespace fastload
#endif
