// The resize with AVX-512 VBMI and VNNI. A 23-bit weight is three signed bytes, w = b0 + 2^8 b1 +
// 2^16 b2, so that vpdpbusd (four unsigned times four signed bytes, summed exactly into 32 bits)
// does four taps at once: sum = ((half + p.b2) * 2^8 + p.b1) * 2^8 + p.b0 is Pillow's integer sum,
// modulo 2^32.
#include <algorithm>

#include "transform/kernels.h"

#if defined(__x86_64__)
#include "base/vectors.h"
#include "transform/axis.h"

namespace fastload {
namespace {

constexpr int kTaps = 4;     // taps in one 32-bit lane
constexpr int kBlock = 16;   // output pixels whose results are packed and stored together
constexpr int kVector = 16;  // 32-bit lanes of a vector
constexpr int kBatch = ResampleKernels::kBatch;

// What the lanes of a vector are, and how their source pixels are loaded.
enum Way : int {
  kDense,   // 16 output bytes, 5 1/3 pixels: one 64-byte load has the first chunk of all of them
  kSpaced,  // R, G, B, unused of 4 pixels: one load has the first chunk of these
  kApart,   // the same, by a load for each pixel
};
constexpr int vectors_of(Way way) { return way == kDense ? 3 : 4; }  // in a block

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

// Of the lanes of a vector: their output pixel in the block, and the byte of the first of their
// taps in that pixel's part of the source.
struct Lanes {
  alignas(64) int32_t pixel[4][kVector] = {};
  alignas(64) int32_t channel[4][kVector] = {};
  constexpr explicit Lanes(Way way) {
    for (int v = 0; v < vectors_of(way); ++v) {
      for (int lane = 0; lane < kVector; ++lane) {
        const int at = kVector * v + lane;
        pixel[v][lane] = way == kDense ? at / 3 : at / 4;
        channel[v][lane] = way == kDense ? at % 3 : at % 4 % 3;
      }
    }
  }
};
constexpr Lanes kDenseLanes(kDense);
constexpr Lanes kSpacedLanes(kSpaced);

// Layout of Axis::packed for the horizontal pass: for each vector the byte offset of its source
// pixels (all vectors first, kVector-aligned), then per vector one index vector for vpermb and per
// chunk of 4 taps three vectors of weight bytes.
struct Layout {
  int blocks, vectors, chunks, head, vector_size;
  Layout(const Axis& axis, Way way)
      : blocks(axis.stride / kBlock),
        vectors(blocks * vectors_of(way)),
        chunks(axis.taps / kTaps),
        head((vectors + kVector - 1) / kVector * kVector),
        vector_size(kVector * (1 + 3 * chunks)) {}
};

// Whether one 64-byte load holds the first chunk of each vector's outputs; offsets and index
// vectors.
bool pack_offsets(Axis& axis, Way way) {
  constexpr int kMostApart = (64 - 3 * kTaps) / 3;
  const Layout layout(axis, way);
  axis.packed.reserve(layout.head + static_cast<size_t>(layout.vectors) * layout.vector_size);
  const Lanes& lanes = way == kDense ? kDenseLanes : kSpacedLanes;
  int32_t* const packed = axis.packed.data();
  const __m512i taps = _mm512_set1_epi32(0x09060300);
  const __m512i each_byte =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
  bool is_near = true;
  for (int v = 0; v < layout.vectors; ++v) {
    const int in_block = v % vectors_of(way);
    const int32_t* const block = axis.first.data() + v / vectors_of(way) * kBlock;
    const int32_t* const pixel = lanes.pixel[in_block];
    const int left = block[pixel[0]];
    const int right = block[pixel[kVector - 1]];  // further left where the picture is mirrored
    const int least = std::min(left, right);
    is_near &= std::max(left, right) - least <= kMostApart;
    packed[v] = 3 * least;
    const __m512i first =
        _mm512_permutexvar_epi32(_mm512_load_si512(pixel), _mm512_loadu_si512(block));
    const __m512i apart = _mm512_sub_epi32(first, _mm512_set1_epi32(least));
    const __m512i three_times = _mm512_add_epi32(apart, _mm512_slli_epi32(apart, 1));
    const __m512i byte = _mm512_add_epi32(three_times, _mm512_load_si512(lanes.channel[in_block]));
    const __m512i index = _mm512_add_epi32(taps, _mm512_shuffle_epi8(byte, each_byte));
    _mm512_store_si512(packed + layout.head + static_cast<size_t>(v) * layout.vector_size, index);
  }
  return is_near;
}

void pack_horizontal(Axis& axis) {
  const Way way = pack_offsets(axis, kDense)    ? kDense
                  : pack_offsets(axis, kSpaced) ? kSpaced
                                                : kApart;
  axis.way = way;
  const Layout layout(axis, way);
  const Lanes& lanes = way == kDense ? kDenseLanes : kSpacedLanes;
  int32_t* to = axis.packed.data() + layout.head;
  for (int block = 0; block < layout.blocks; ++block, to += vectors_of(way) * layout.vector_size) {
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      const Planes planes = split_weights(axis, chunk, block * kBlock);
      for (int v = 0; v < vectors_of(way); ++v) {
        const __m512i spread = _mm512_load_si512(lanes.pixel[v]);
        int32_t* const weights = to + v * layout.vector_size + kVector * (1 + 3 * chunk);
        for (int p = 0; p < 3; ++p) {
          _mm512_store_si512(weights + kVector * p, _mm512_permutexvar_epi32(spread, planes.b[p]));
        }
      }
    }
  }
}

// Taps 4 * chunk .. of the outputs of a vector, four to a lane.
template <Way kWay>
__m512i load_pixels(const uint8_t* line, int base, __m512i index, const int32_t* first, int chunk) {
  if constexpr (kWay != kApart) {
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

// One vector of outputs on `Rows` lines; Chunks: number of chunks of four taps, 0: layout.chunks.
template <Way kWay, int Chunks, int Rows>
inline __attribute__((always_inline)) void vector_sums(const Axis& axis, const Layout& layout,
                                                       int v, const uint8_t* const* in,
                                                       __m512i (&result)[Rows][4]) {
  const int32_t* packed = axis.packed.data();
  const int32_t* first = axis.first.data() + v * 4;  // of a vector of four pixels
  const int32_t* vector = packed + layout.head + static_cast<size_t>(v) * layout.vector_size;
  const __m512i index = _mm512_load_si512(vector);
  const int base = packed[v];
  const int to = v % vectors_of(kWay);
  if constexpr (Chunks == 1) {
    const __m512i b0 = _mm512_load_si512(vector + kVector);
    const __m512i b1 = _mm512_load_si512(vector + 2 * kVector);
    const __m512i b2 = _mm512_load_si512(vector + 3 * kVector);
    for (int r = 0; r < Rows; ++r) {
      const __m512i pixels = load_pixels<kWay>(in[r], base, index, first, 0);
      result[r][to] = four_taps(pixels, b0, b1, b2);
    }
    return;
  }
  __m512i sums[Rows][3];
  for (int r = 0; r < Rows; ++r) {
    sums[r][0] = sums[r][1] = _mm512_setzero_si512();
    sums[r][2] = _mm512_set1_epi32(kHalf);
  }
  for (int chunk = 0; chunk < (Chunks > 0 ? Chunks : layout.chunks); ++chunk) {
    const int32_t* weights = vector + kVector * (1 + 3 * chunk);
    for (int r = 0; r < Rows; ++r) {
      const __m512i pixels = load_pixels<kWay>(in[r], base, index, first, chunk);
      for (int p = 0; p < 3; ++p) {
        sums[r][p] =
            _mm512_dpbusd_epi32(sums[r][p], pixels, _mm512_load_si512(weights + kVector * p));
      }
    }
  }
  for (int r = 0; r < Rows; ++r) result[r][to] = combine(sums[r]);
}

// clip8() interleaves the vectors in each 128-bit lane: where the block's bytes are then.
struct Order {
  alignas(64) uint8_t byte[64] = {};
  constexpr explicit Order(Way way) {
    for (int i = 0; i < 3 * kBlock; ++i) {
      const int at = way == kDense ? i : i / 3 * 4 + i % 3;  // among the lanes of all vectors
      byte[i] = static_cast<uint8_t>(at % 16 / 4 * 16 + at / 16 * 4 + at % 4);
    }
  }
};

template <Way kWay, int Chunks, int Rows>
void lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out) {
  const Layout layout(axis, kWay);
  static constexpr Order kOrder(kWay);
  const __m512i order = _mm512_load_si512(kOrder.byte);
  for (int block = 0; block < layout.blocks; ++block) {
    __m512i result[Rows][4];
    for (int v = 0; v < vectors_of(kWay); ++v) {
      vector_sums<kWay, Chunks, Rows>(axis, layout, block * vectors_of(kWay) + v, in, result);
    }
    for (int r = 0; r < Rows; ++r) {
      if constexpr (kWay == kDense) result[r][3] = result[r][2];
      _mm512_storeu_si512(out[r] + 3 * kBlock * static_cast<size_t>(block),
                          _mm512_permutexvar_epi8(order, clip8(result[r])));
    }
  }
}

// Weights are loaded once for kBatch lines.
template <Way kWay, int Chunks>
void all_lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (rows == kBatch) return lines<kWay, Chunks, kBatch>(axis, in, out);
  for (int i = 0; i < rows; ++i) lines<kWay, Chunks, 1>(axis, in + i, out + i);
}

template <Way kWay>
void near_lines(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (axis.taps == kTaps) return all_lines<kWay, 1>(axis, in, out, rows);
  if (axis.taps == 2 * kTaps) return all_lines<kWay, 2>(axis, in, out, rows);
  all_lines<kWay, 0>(axis, in, out, rows);
}

void horizontal(const Axis& axis, const uint8_t* const* in, uint8_t* const* out, int rows) {
  if (axis.way == kDense) return near_lines<kDense>(axis, in, out, rows);
  if (axis.way == kSpaced) return near_lines<kSpaced>(axis, in, out, rows);
  all_lines<kApart, 0>(axis, in, out, rows);
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

const ResampleKernels kAvx512Resample{kTaps,         kTaps,      avx512::fill_axis, pack_horizontal,
                                      pack_vertical, horizontal, vertical};

}  // namespace fastload
#endif
