#include "decode/jpeg/idct.h"

#include "decode/jpeg/parser.h"

namespace fastload {

CoefPlaces IdctKernel::places() const {
  CoefPlaces places;
  for (size_t k = 1; k <= 64; ++k) places.set(static_cast<int>(k), place_of[kZigzag[k - 1]]);
  return places;
}

}  // namespace fastload
