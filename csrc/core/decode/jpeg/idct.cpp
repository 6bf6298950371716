#include "decode/jpeg/idct.h"

#include "decode/jpeg/parser.h"

namespace fastload {
const std::array<int32_t, 14> kIdctPairsOfRows{
    idct_pair(8192, 8192),    idct_pair(8192, -8192),  idct_pair(10703, 4433),
    idct_pair(4433, -10704),  idct_pair(-4433, 10704), idct_pair(-10703, -4433),
    idct_pair(11363, 9633),   idct_pair(6437, 2260),   idct_pair(9633, -2259),
    idct_pair(-11362, -6436), idct_pair(6437, -11362), idct_pair(2261, 9633),
    idct_pair(2260, -6436),   idct_pair(9633, -11363),
};

alignas(16) const std::array<std::array<int32_t, 4>, 4> kIdctPairsOfColumns{{
    {idct_pair(8192, 10703), idct_pair(8192, 4433), idct_pair(8192, -4433),
     idct_pair(8192, -10703)},
    {idct_pair(8192, 4433), idct_pair(-8192, -10704), idct_pair(-8192, 10704),
     idct_pair(8192, -4433)},
    {idct_pair(11363, 9633), idct_pair(9633, -2259), idct_pair(6437, -11362),
     idct_pair(2260, -6436)},
    {idct_pair(6437, 2260), idct_pair(-11362, -6436), idct_pair(2261, 9633),
     idct_pair(9633, -11363)},
}};

CoefPlaces IdctKernel::places() const {
  CoefPlaces places;
  for (size_t k = 1; k <= 64; ++k) places.set(static_cast<int>(k), place_of[kZigzag[k - 1]]);
  return places;
}

}  // namespace fastload
