// The resize with AVX-512 VBMI and VNNI. A 23-bit weight is three signed bytes, w = b0 + 2^8 b1 +
// 2^16 b2, so that vpdpbusd (four unsigned times four signed bytes, summed exactly into 32 bits)
// does four taps at once: sum = ((half + p.b2) * 2^8 + p.b1) * 2^8 + p.b0 is Pillow's integer sum,
// modulo 2^32.
#include "transform/kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/axis.h"

namespace fastload {
namespace {

constexpr int kTaps = 4;     // taps in one 32-bit lane
constexpr int kOutputs = 4;  // output pixels in one vector: a 128-bit lane has R, G, B, unused
constexpr int kGroups = 4;   // vectors whose results are packed and stored together
constexpr int kVector = 16;  // 32-bit lanes of a vector
constexpr int kBatch = ResampleKernels::kBatch;

struct Planes {
  __m512i b[3];
};

// The bytes of the weights of taps 4 * chunk .. 4 * chunk + 3 for outputs j .. j + 15, four to a
// lane.
Planes split_weights(const Axis& axis, int chunk, int j) {
  const int32_t* from = axis.weights.data() + static_cast<size_t>(chunk) * kTaps * axis.stride + j;
  const __m512i low_byte = _mm512_set1_epi32(0xFF);
  const __m512i carry = _mm512_set1_epi32(128);
  Planes planes{{_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()}};
  for (int t = kTaps - 1; t >= 0; --t) {
    __m512i w = _mm512_loadu_si512(from + static_cast<size_t>(t) * axis.stride);
    for (__m512i& plane : planes.b) {
      plane = _mm512_or_si512(_mm512_slli_epi32(plane, 8), _mm512_and_si512(w, low_byte));
      w = _mm512_srai_epi32(_mm512_add_epi32(w, carry), 8);
    }
  }
  return planes;
}

// Layout of Axis::packed for the horizontal pass: for each group of 4 outputs the byte offset of
// its source pixels (all groups first, kVector-aligned), then per group one index vector for vpermb
// and per chunk of 4 taps three vectors of weight bytes.
struct Layout {
  int groups, chunks, head, group_size;
  explicit Layout(const Axis& axis)
      : groups(axis.stride / kOutputs),
        chunks(axis.taps / kTaps),
        head((groups + kVector - 1) / kVector * kVector),
        group_size(kVector * (1 + 3 * chunks)) {}
};

// A group is narrow if one 64-byte load holds the first chunk of all its outputs.
bool pack_offsets(Axis& axis, const Layout& layout) {
  constexpr int kMostApart = (64 - 3 * kTaps) / 3;
  const __m512i spread = _mm512_setr_epi32(0x09060300, 0x0A070401, 0x0B080502, 0, 0x09060300,
                                           0x0A070401, 0x0B080502, 0, 0x09060300, 0x0A070401,
                                           0x0B080502, 0, 0x09060300, 0x0A070401, 0x0B080502, 0);
  const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  int32_t* packed = axis.packed.data();
  bool narrow = true;
  for (int g = 0; g < layout.groups; ++g) {
    const __m128i first =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(axis.first.data() + g * kOutputs));
    const __m128i swapped = _mm_min_epi32(first, _mm_shuffle_epi32(first, 0x4E));
    const __m128i least = _mm_min_epi32(swapped, _mm_shuffle_epi32(swapped, 0xB1));
    const __m128i apart = _mm_sub_epi32(first, least);
    narrow &= _mm_cmpgt_epi32_mask(apart, _mm_set1_epi32(kMostApart)) == 0;
    packed[g] = 3 * _mm_cvtsi128_si32(least);
    const __m128i bytes = _mm_mullo_epi32(apart, _mm_set1_epi32(3 * 0x01010101));
    const __m512i index =
        _mm512_add_epi8(_mm512_permutexvar_epi32(lanes, _mm512_castsi128_si512(bytes)), spread);
    _mm512_store_si512(packed + layout.head + static_cast<size_t>(g) * layout.group_size, index);
  }
  return narrow;
}

void pack_horizontal(Axis& axis) {
  const Layout layout(axis);
  axis.packed.reserve(layout.head + static_cast<size_t>(layout.groups) * layout.group_size);
  axis.wide = !pack_offsets(axis, layout);
  const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  for (int g = 0; g < layout.groups; g += kGroups) {
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      const Planes planes = split_weights(axis, chunk, g * kOutputs);
      for (int i = 0; i < kGroups; ++i) {
        int32_t* to = axis.packed.data() + layout.head +
                      static_cast<size_t>(g + i) * layout.group_size + kVector * (1 + 3 * chunk);
        const __m512i spread = _mm512_add_epi32(lanes, _mm512_set1_epi32(kOutputs * i));
        for (int p = 0; p < 3; ++p) {
          _mm512_store_si512(to + kVector * p, _mm512_permutexvar_epi32(spread, planes.b[p]));
        }
      }
    }
  }
}

// Taps 4 * chunk .. of the 4 outputs of a group, as [R R R R, G G G G, B B B B, unused] per output.
template <bool Wide>
__m512i load_pixels(const uint8_t* line, int base, __m512i index, const int32_t* first, int chunk) {
  if constexpr (!Wide) {
    return _mm512_permutexvar_epi8(index, _mm512_loadu_si512(line + base + 3 * kTaps * chunk));
  } else {
    const auto load = [&](int i) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(
          line + 3 * (static_cast<size_t>(first[i]) + kTaps * chunk)));
    };
    __m512i pixels = _mm512_castsi128_si512(load(0));
    pixels = _mm512_inserti32x4(pixels, load(1), 1);
    pixels = _mm512_inserti32x4(pixels, load(2), 2);
    pixels = _mm512_inserti32x4(pixels, load(3), 3);
    const __m512i planar =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1));
    return _mm512_shuffle_epi8(pixels, planar);
  }
}

constexpr int32_t kHalf = kRounding >> 16;  // the rounding constant, before two shifts by 8

__m512i combine(const __m512i (&sums)[3]) {
  const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(sums[2], 8), sums[1]);
  return _mm512_add_epi32(_mm512_slli_epi32(upper, 8), sums[0]);
}

// The whole sum of at most four taps: shifting between the products saves the additions.
__m512i four_taps(__m512i pixels, __m512i b0, __m512i b1, __m512i b2) {
  const __m512i high = _mm512_dpbusd_epi32(_mm512_set1_epi32(kHalf), pixels, b2);
  const __m512i middle = _mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), pixels, b1);
  return _mm512_dpbusd_epi32(_mm512_slli_epi32(middle, 8), pixels, b0);
}

// Pillow's clip8 of four vectors of sums, 128-bit lane by 128-bit lane: bytes of a, b, c, d.
__m512i clip8(const __m512i (&sums)[4]) {
  const auto pack = [&](int v) {
    return _mm512_packs_epi32(_mm512_srai_epi32(sums[v], kPrecisionBits),
                              _mm512_srai_epi32(sums[v + 1], kPrecisionBits));
  };
  return _mm512_packus_epi16(pack(0), pack(2));
}

// One group of 4 outputs on `Rows` lines; Chunks: number of chunks of four taps, 0: layout.chunks.
template <bool Wide, int Chunks, int Rows>
inline __attribute__((always_inline)) void group_sums(const Axis& axis, const Layout& layout, int g,
                                                      const uint8_t* const* in,
                                                      __m512i (&result)[kBatch][kGroups]) {
  const int32_t* packed = axis.packed.data();
  const int32_t* first = axis.first.data() + g * kOutputs;
  const int32_t* group = packed + layout.head + static_cast<size_t>(g) * layout.group_size;
  const __m512i index = _mm512_load_si512(group);
  const int base = packed[g];
  if constexpr (Chunks == 1) {
    const __m512i b0 = _mm512_load_si512(group + kVector);
    const __m512i b1 = _mm512_load_si512(group + 2 * kVector);
    const __m512i b2 = _mm512_load_si512(group + 3 * kVector);
    for (int r = 0; r < Rows; ++r) {
      const __m512i pixels = load_pixels<Wide>(in[r], base, index, first, 0);
      result[r][g % kGroups] = four_taps(pixels, b0, b1, b2);
    }
    return;
  }
  __m512i sums[Rows][3];
  for (int r = 0; r < Rows; ++r) {
    sums[r][0] = sums[r][1] = _mm512_setzero_si512();
    sums[r][2] = _mm512_set1_epi32(kHalf);
  }
  for (int chunk = 0; chunk < (Chunks > 0 ? Chunks : layout.chunks); ++chunk) {
    const int32_t* weights = group + kVector * (1 + 3 * chunk);
    for (int r = 0; r < Rows; ++r) {
      const __m512i pixels = load_pixels<Wide>(in[r], base, index, first, chunk);
      for (int p = 0; p < 3; ++p) {
        sums[r][p] =
            _mm512_dpbusd_epi32(sums[r][p], pixels, _mm512_load_si512(weights + kVector * p));
      }
    }
  }
  for (int r = 0; r < Rows; ++r) result[r][g % kGroups] = combine(sums[r]);
}

template <bool Wide, int Chunks, int Rows>
void lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out) {
  const Layout layout(axis);
  // clip8 interleaves the four groups in each 128-bit lane: this puts the pixels in order.
  alignas(64) static constexpr uint8_t kOrder[64] = {
      0, 1, 2,  16, 17, 18, 32, 33, 34, 48, 49, 50, 4,  5,  6,  20, 21, 22, 36, 37, 38, 52, 53, 54,
      8, 9, 10, 24, 25, 26, 40, 41, 42, 56, 57, 58, 12, 13, 14, 28, 29, 30, 44, 45, 46, 60, 61, 62};
  const __m512i order = _mm512_load_si512(kOrder);
  for (int g = 0; g < layout.groups; g += kGroups) {
    __m512i result[kBatch][kGroups];
    for (int i = 0; i < kGroups; ++i)
      group_sums<Wide, Chunks, Rows>(axis, layout, g + i, in, result);
    for (int r = 0; r < Rows; ++r) {
      _mm512_storeu_si512(out[r] + 3 * kOutputs * static_cast<size_t>(g),
                          _mm512_permutexvar_epi8(order, clip8(result[r])));
    }
  }
}

template <bool Wide, int Chunks, int Rows>
void all_lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  int i = 0;
  for (; i + Rows <= rows; i += Rows) lines<Wide, Chunks, Rows>(axis, in + i, out + i);
  for (; i < rows; ++i) lines<Wide, Chunks, 1>(axis, in + i, out + i);
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (axis.wide) {
    all_lines<true, 0, 2>(axis, in, out, rows);
  } else if (axis.taps == kTaps) {
    all_lines<false, 1, 4>(axis, in, out, rows);
  } else if (axis.taps == 2 * kTaps) {
    all_lines<false, 2, 2>(axis, in, out, rows);
  } else {
    all_lines<false, 0, 2>(axis, in, out, rows);
  }
}

// packed[(3 * chunk + plane) * stride + j]: the weight bytes of output line j.
void pack_vertical(Axis& axis) {
  const int chunks = axis.taps / kTaps;
  axis.packed.reserve(3 * static_cast<size_t>(chunks) * axis.stride);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int j = 0; j < axis.stride; j += kVector) {
      const Planes planes = split_weights(axis, chunk, j);
      for (int p = 0; p < 3; ++p) {
        _mm512_store_si512(
            axis.packed.data() + static_cast<size_t>(3 * chunk + p) * axis.stride + j, planes.b[p]);
      }
    }
  }
}

// 64 columns of four lines as 4 x 16 lanes of four bytes; clip8 brings them back in order.
inline void interleave(const uint8_t* const* in, size_t x, __m512i (&pixels)[4]) {
  const auto load = [&](int t) { return _mm512_loadu_si512(in[t] + x); };
  const __m512i low01 = _mm512_unpacklo_epi8(load(0), load(1));
  const __m512i high01 = _mm512_unpackhi_epi8(load(0), load(1));
  const __m512i low23 = _mm512_unpacklo_epi8(load(2), load(3));
  const __m512i high23 = _mm512_unpackhi_epi8(load(2), load(3));
  pixels[0] = _mm512_unpacklo_epi16(low01, low23);
  pixels[1] = _mm512_unpackhi_epi16(low01, low23);
  pixels[2] = _mm512_unpacklo_epi16(high01, high23);
  pixels[3] = _mm512_unpackhi_epi16(high01, high23);
}

void vertical_four_taps(const Axis& axis, int j, const uint8_t* const* in, size_t bytes,
                        uint8_t* out) {
  const int32_t* weights = axis.packed.data() + j;
  const __m512i b0 = _mm512_set1_epi32(weights[0]);
  const __m512i b1 = _mm512_set1_epi32(weights[axis.stride]);
  const __m512i b2 = _mm512_set1_epi32(weights[2 * axis.stride]);
  const uint8_t* const lines[kTaps] = {in[0], in[1], in[2], in[3]};
  for (size_t x = 0; x < bytes; x += 64) {
    __m512i pixels[4];
    interleave(lines, x, pixels);
    for (__m512i& p : pixels) p = four_taps(p, b0, b1, b2);
    _mm512_storeu_si512(out + x, clip8(pixels));
  }
}

void vertical(const Axis& axis, int j, const uint8_t* const* in, size_t bytes, uint8_t* out) {
  const int chunks = axis.taps / kTaps;
  if (chunks == 1) return vertical_four_taps(axis, j, in, bytes, out);
  for (size_t x = 0; x < bytes; x += 64) {
    __m512i sums[4][3];
    for (auto& sum : sums) {
      sum[0] = sum[1] = _mm512_setzero_si512();
      sum[2] = _mm512_set1_epi32(kHalf);
    }
    for (int chunk = 0; chunk < chunks; ++chunk) {
      __m512i pixels[4];
      interleave(in + kTaps * chunk, x, pixels);
      const int32_t* weights =
          axis.packed.data() + 3 * static_cast<size_t>(chunk) * axis.stride + j;
      for (int p = 0; p < 3; ++p) {
        const __m512i weight = _mm512_set1_epi32(weights[static_cast<size_t>(p) * axis.stride]);
        for (int i = 0; i < 4; ++i) sums[i][p] = _mm512_dpbusd_epi32(sums[i][p], pixels[i], weight);
      }
    }
    const __m512i whole[4] = {combine(sums[0]), combine(sums[1]), combine(sums[2]),
                              combine(sums[3])};
    _mm512_storeu_si512(out + x, clip8(whole));
  }
}

}  // namespace

const ResampleKernels kAvx512Resample{kTaps,         kTaps,      fill_axis_avx512, pack_horizontal,
                                      pack_vertical, horizontal, vertical};

}  // namespace fastload
#endif
