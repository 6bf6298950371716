#include "transform/pixels/noise_kernels.h"

#include "transform/pixels/noise_loop.h"

namespace fastload {

AddNoise add_noise(SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return add_noise_avx512;
  if (level == SimdLevel::kAvx2) return add_noise_avx2;
#endif
  (void)level;
  return [](uint8_t* bytes, size_t count, PhiloxKey key, const NoiseTable& table) {
    noise_loop(bytes, count, key, table);
  };
}

}  // namespace fastload
