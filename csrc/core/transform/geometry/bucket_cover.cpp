// The picture as the bucket of aspect ratios shows it that it belongs to: resized so that it covers
// the bucket's size, and of that a part, from the middle or from anywhere: Philox block (kCrop,
// 22), words 0, 1 the top row, words 2, 3 the left column, uniform_below.
#include <algorithm>

#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"anywhere", "height", "width"};  // and more of both
constexpr uint32_t kBlock = 22;

// How far a picture's aspect ratio is from a size's, 1 where equal. Of whole numbers, so that the
// sampler, which is in Python, has the same bits.
double apart(double width, double height, double wanted_height, double wanted_width) {
  const double a = width * wanted_height, b = height * wanted_width;
  return std::max(a, b) / std::min(a, b);
}

// The side that is not the one that fits.
int other_side(int side, int fitted, int to, int least) {
  return std::max(checked_side(round_even(static_cast<double>(side) * to / fitted)), least);
}

void apply(std::span<const double> numbers, const SampleRng& rng, View& view) {
  settle(view);
  const int w = view.crop.width, h = view.crop.height;
  size_t best = 1;
  for (size_t i = 3; i + 1 < numbers.size(); i += 2) {
    const double found = apart(w, h, numbers[i], numbers[i + 1]);
    if (found < apart(w, h, numbers[best], numbers[best + 1])) best = i;
  }
  const int height = static_cast<int>(numbers[best]), width = static_cast<int>(numbers[best + 1]);
  const bool by_width = int64_t{width} * h >= int64_t{height} * w;
  by_width ? resize_to(view, width, other_side(h, w, width, height))
           : resize_to(view, other_side(w, h, height, width), height);
  const int free_x = view.window.width - width, free_y = view.window.height - height;
  int x = round_even(free_x / 2.0), y = round_even(free_y / 2.0);
  if (numbers[0] != 0) {
    const PhiloxWords a = rng.words(DrawOp::kCrop, kBlock);
    y = static_cast<int>(uniform_below(a[0], a[1], static_cast<uint32_t>(free_y + 1)));
    x = static_cast<int>(uniform_below(a[2], a[3], static_cast<uint32_t>(free_x + 1)));
  }
  show_window(view, {x, y, width, height});
}

}  // namespace

constinit const GeometryOperation kBucketCover{"bucket_cover", kParameters, apply, true};

}  // namespace fastload
