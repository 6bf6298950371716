// Kernels that are compiled once for each SIMD level (*_vector.cpp): a function of the same name in a
// namespace of each level's name.
//
//   FASTLOAD_KERNEL(void box_blur(const Box& box, const Picture& picture, uint8_t* scratch));
//   FASTLOAD_KERNEL_AT(level, box_blur)(box, picture, scratch);
//
// In the *_vector.cpp, base/highway.h comes last of the includes, and the function is defined in
// `namespace fastload::FASTLOAD_LEVEL`.
#pragma once

#include "base/cpu.h"

namespace fastload {

#if defined(__x86_64__)

#define FASTLOAD_KERNEL(...) \
  namespace scalar {         \
  __VA_ARGS__;               \
  }                          \
  namespace sse4 {           \
  __VA_ARGS__;               \
  }                          \
  namespace avx2 {           \
  __VA_ARGS__;               \
  }                          \
  namespace avx512 {         \
  __VA_ARGS__;               \
  }                          \
  static_assert(true)

#define FASTLOAD_KERNEL_AT(level, name)                                        \
  ::fastload::kernel_at(level, ::fastload::scalar::name, ::fastload::sse4::name, \
                        ::fastload::avx2::name, ::fastload::avx512::name)

template <typename Kernel>
Kernel& kernel_at(SimdLevel level, Kernel& scalar, Kernel& sse4, Kernel& avx2, Kernel& avx512) {
  if (level == SimdLevel::kAvx512) return avx512;
  if (level == SimdLevel::kAvx2) return avx2;
  return level == SimdLevel::kSse4 ? sse4 : scalar;
}

#elif defined(__aarch64__)

#define FASTLOAD_KERNEL(...) \
  namespace scalar {         \
  __VA_ARGS__;               \
  }                          \
  namespace neon {           \
  __VA_ARGS__;               \
  }                          \
  static_assert(true)

#define FASTLOAD_KERNEL_AT(level, name) \
  ::fastload::kernel_at(level, ::fastload::scalar::name, ::fastload::neon::name)

template <typename Kernel>
Kernel& kernel_at(SimdLevel level, Kernel& scalar, Kernel& neon) {
  return level == SimdLevel::kScalar ? scalar : neon;
}

#else

#define FASTLOAD_KERNEL(...) \
  namespace scalar {         \
  __VA_ARGS__;               \
  }                          \
  static_assert(true)

#define FASTLOAD_KERNEL_AT(level, name) (static_cast<void>(level), ::fastload::scalar::name)

#endif

}  // namespace fastload
