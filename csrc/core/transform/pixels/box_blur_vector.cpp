// The loops of box_blur over Sums<V>, the operations on the sums of kBytes bytes at a time. Sums are
// whole numbers, so their order changes nothing.
#include <cstring>
#include <utility>

#include "transform/pixels/box_blur_kernels.h"
// Behind the others:
#include "base/highway.h"

namespace fastload::FASTLOAD_LEVEL {
namespace {

// Sums of 32 bits: any reach.
struct WideSums {
  static constexpr hn::ScalableTag<uint32_t> kWide{};
  static constexpr hn::Rebind<uint8_t, hn::ScalableTag<uint32_t>> kBytes{};
  using Sum = hn::Vec<hn::ScalableTag<uint32_t>>;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(kWide));

  static Sum load(const uint8_t* from) { return hn::PromoteTo(kWide, hn::LoadU(kBytes, from)); }
  static Sum add(Sum a, Sum b) { return hn::Add(a, b); }
  static Sum sub(Sum a, Sum b) { return hn::Sub(a, b); }
  static Sum both(const uint8_t* a, const uint8_t* b) { return add(load(a), load(b)); }

  struct Weights {
    Sum inner, outer;
    explicit Weights(const Box& box)
        : inner(hn::Set(kWide, box.inner)), outer(hn::Set(kWide, box.outer)) {}
    void store(uint8_t* to, Sum sum, Sum far) const {
      const Sum bulk = hn::Add(hn::Mul(sum, inner), hn::Mul(far, outer));
      const Sum rounded = hn::ShiftRight<24>(hn::Add(bulk, hn::Set(kWide, 1U << 23)));
      hn::StoreU(hn::U8FromU32(rounded), kBytes, to);
    }
  };
};

// Sums of 16 bits, to kNarrowReach, of the even and the odd bytes. A weight is 2^12 high + low, so
// that pairs of 16 bits are multiplied and added up at once.
struct NarrowSums {
  static constexpr hn::ScalableTag<uint8_t> kBytes{};
  static constexpr hn::ScalableTag<int16_t> kNarrow{};
  static constexpr hn::ScalableTag<int32_t> kWide{};
  using Half = hn::Vec<hn::ScalableTag<int16_t>>;
  using Product = hn::Vec<hn::ScalableTag<int32_t>>;
  struct Sum {
    Half even, odd;
  };
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(kBytes));

  static Sum load(const uint8_t* from) {
    const auto pairs = hn::BitCast(hn::RebindToUnsigned<decltype(kNarrow)>(), hn::LoadU(kBytes, from));
    return {hn::And(hn::BitCast(kNarrow, pairs), hn::Set(kNarrow, 0xFF)),
            hn::BitCast(kNarrow, hn::ShiftRight<8>(pairs))};
  }
  static Sum add(Sum a, Sum b) { return {hn::Add(a.even, b.even), hn::Add(a.odd, b.odd)}; }
  static Sum sub(Sum a, Sum b) { return {hn::Sub(a.even, b.even), hn::Sub(a.odd, b.odd)}; }
  static Sum both(const uint8_t* a, const uint8_t* b) { return add(load(a), load(b)); }

  struct Weights {
    Half high, low;
    explicit Weights(const Box& box)
        : high(pairs_of(box.inner >> 12, box.outer >> 12)),
          low(pairs_of(box.inner & 0xFFF, box.outer & 0xFFF)) {}
    static Half pairs_of(uint32_t inner, uint32_t outer) {
      return hn::BitCast(kNarrow, hn::Set(kWide, static_cast<int32_t>(inner | outer << 16)));
    }
    [[nodiscard]] Product of(Half pairs) const {
      const Product upper = add_pair_products(kWide, hn::Set(kWide, 1 << 11), pairs, high);
      const Product sums = add_pair_products(kWide, hn::ShiftLeft<12>(upper), pairs, low);
      // Without a sign: half of the sums have the highest bit.
      const hn::RebindToUnsigned<decltype(kWide)> bits;
      return hn::BitCast(kWide, hn::ShiftRight<24>(hn::BitCast(bits, sums)));
    }
    [[nodiscard]] Half of(Half sum, Half far) const {
      return hn::ReorderDemote2To(kNarrow, of(hn::InterleaveLower(kNarrow, sum, far)),
                                  of(hn::InterleaveUpper(kNarrow, sum, far)));
    }
    void store(uint8_t* to, Sum sum, Sum far) const {
      const Half even = of(sum.even, far.even);
      const Half odd = of(sum.odd, far.odd);
      hn::StoreU(hn::BitCast(kBytes, hn::Or(even, hn::ShiftLeft<8>(odd))), kBytes, to);
    }
  };
};

template <typename V>
struct BoxBlur {
  using Sum = typename V::Sum;

  const Box& box;
  const typename V::Weights weights;

  explicit BoxBlur(const Box& b) : box(b), weights(b) {}

  // Puts the first and the last pixel around `line`.
  void surround(uint8_t* line, int width) const {
    uint8_t* last = line + 3 * (static_cast<ptrdiff_t>(width) - 1);
    for (ptrdiff_t i = 1; i <= box.reach + 1; ++i) {
      std::memcpy(line - 3 * i, line, 3);
      std::memcpy(last + 3 * i, last, 3);
    }
  }

  // Neighbours are added one by one: radii are a few pixels.
  void line(const uint8_t* from, uint8_t* to, int width) const {
    const ptrdiff_t end = 3 * static_cast<ptrdiff_t>(box.reach);
    for (ptrdiff_t i = 0; i < 3 * static_cast<ptrdiff_t>(width); i += V::kLanes) {
      Sum sum = V::load(from + i);
      for (ptrdiff_t k = 3; k <= end; k += 3) {
        sum = V::add(sum, V::both(from + i - k, from + i + k));
      }
      const Sum far = V::both(from + i - end - 3, from + i + end + 3);
      weights.store(to + i, sum, far);
    }
  }

  // Several rows take turns: what a pass has just written is not to be read at other offsets yet.
  void rows(const Picture& picture, uint8_t* scratch) const {
    const size_t bytes = size_t{3} * static_cast<size_t>(picture.width);
    const size_t line_bytes = box_blur_line(box, picture.width);
    uint8_t* one = scratch + 3 * (static_cast<size_t>(box.reach) + 1);
    uint8_t* other = one + kBoxRows * line_bytes;
    for (int y = 0; y < picture.height; y += kBoxRows) {
      uint8_t* const first = picture.pixels + bytes * static_cast<size_t>(y);
      const int left = picture.height - y;
      const auto count = static_cast<size_t>(left < kBoxRows ? left : kBoxRows);
      for (size_t i = 0; i < count; ++i)
        std::memcpy(one + line_bytes * i, first + bytes * i, bytes);
      for (int pass = 0; pass < kBoxPasses; ++pass) {
        for (size_t i = 0; i < count; ++i) surround(one + line_bytes * i, picture.width);
        for (size_t i = 0; i < count; ++i) {
          line(one + line_bytes * i, other + line_bytes * i, picture.width);
        }
        std::swap(one, other);
      }
      for (size_t i = 0; i < count; ++i)
        std::memcpy(first + bytes * i, one + line_bytes * i, bytes);
    }
  }

  // One pass down a strip: rows of `from` lie `from_stride` apart, those of `to` `to_stride`.
  void strip(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride, int height,
             int bytes) const {
    constexpr int kVectors = kBoxStrip / V::kLanes;
    const auto row = [&](int y) {
      const int inside = y < 0 ? 0 : y < height ? y : height - 1;
      return from + from_stride * static_cast<size_t>(inside);
    };
    Sum sums[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = V::load(row(-box.reach) + v * V::kLanes);
      for (int y = 1 - box.reach; y <= box.reach; ++y) {
        sums[v] = V::add(sums[v], V::load(row(y) + v * V::kLanes));
      }
    }
    alignas(64) uint8_t part[kBoxStrip];
    for (int y = 0; y < height; ++y, to += to_stride) {
      const uint8_t* before = row(y - box.reach - 1);
      const uint8_t* leaves = row(y - box.reach);
      const uint8_t* comes = row(y + box.reach + 1);
      uint8_t* const line = bytes == kBoxStrip ? to : part;
      for (int v = 0; v < kVectors; ++v) {
        const int at = v * V::kLanes;
        const Sum next = V::load(comes + at);
        weights.store(line + at, sums[v], V::both(before + at, comes + at));
        sums[v] = V::sub(V::add(sums[v], next), V::load(leaves + at));
      }
      if (line == part) std::memcpy(to, part, static_cast<size_t>(bytes));
    }
  }

  void columns(const Picture& picture, uint8_t* scratch) const {
    const size_t row = size_t{3} * static_cast<size_t>(picture.width);
    uint8_t* one = scratch;
    uint8_t* other = scratch + size_t{kBoxStrip} * static_cast<size_t>(picture.height);
    for (size_t x = 0; x < row; x += kBoxStrip) {
      uint8_t* at = picture.pixels + x;
      const int bytes = row - x < kBoxStrip ? static_cast<int>(row - x) : kBoxStrip;
      strip(at, row, one, kBoxStrip, picture.height, kBoxStrip);
      strip(one, kBoxStrip, other, kBoxStrip, picture.height, kBoxStrip);
      strip(other, kBoxStrip, at, row, picture.height, bytes);
    }
  }
};

template <typename V>
void blur(const Box& box, const Picture& picture, uint8_t* scratch) {
  const BoxBlur<V> blurred(box);
  blurred.rows(picture, scratch);
  blurred.columns(picture, scratch);
}

}  // namespace

void box_blur(const Box& box, const Picture& picture, uint8_t* scratch) {
  box.reach <= kNarrowReach ? blur<NarrowSums>(box, picture, scratch)
                            : blur<WideSums>(box, picture, scratch);
}

}  // namespace fastload::FASTLOAD_LEVEL
