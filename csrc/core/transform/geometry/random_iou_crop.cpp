// torchvision's RandomIoUCrop. A round draws an option, uniform_below of words 0, 1 of its Philox
// block (kIouCrop, .), then tries crops, two blocks each, uniform_double, in float32 as torchvision
// has them: width and height of words 0, 1 and 2, 3 of the first, left and top of the second.
// Rounds and tries take blocks in turn, round k from k * (1 + 2 * trials) on. Without boxes, and
// after 800 rounds (torchvision never ends), the picture is left as it is.
#include <algorithm>
#include <vector>

#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"scale_min", "scale_max", "ratio_min",
                                       "ratio_max", "trials",    "option"};
constexpr size_t kFirstOption = 5;
constexpr uint32_t kRounds = 800;
constexpr uint32_t kBlocks = 1 << 16;

// The boxes as the steps before have left them.
std::vector<BoxXyxy> left_of(std::span<const BoxXyxy> boxes, const View& view) {
  const auto& [left, top, right, bottom] = view.area;
  const double x = view.crop.x, y = view.crop.y;
  const double width = view.crop.width, height = view.crop.height;
  std::vector<BoxXyxy> found;
  found.reserve(boxes.size());
  for (const BoxXyxy& box : boxes) {
    if (!stands(view, box)) continue;  // it was dropped
    BoxXyxy one{std::clamp(box.left - x, left, right), std::clamp(box.top - y, top, bottom),
                std::clamp(box.right - x, left, right), std::clamp(box.bottom - y, top, bottom)};
    if (mirrored_across(view)) one = {width - one.right, one.top, width - one.left, one.bottom};
    if (mirrored_down(view)) one = {one.left, height - one.bottom, one.right, height - one.top};
    found.push_back(one);
  }
  return found;
}

bool has_centre(const Rect& crop, const BoxXyxy& box) {
  const double x = 0.5 * (box.left + box.right), y = 0.5 * (box.top + box.bottom);
  return crop.x < x && x < crop.x + crop.width && crop.y < y && y < crop.y + crop.height;
}

// torchvision's box_iou, in its order.
double overlap(const Rect& crop, const BoxXyxy& box) {
  const double own = (box.right - box.left) * (box.bottom - box.top);
  const double all = static_cast<double>(crop.width) * crop.height;
  const double right = std::min<double>(box.right, crop.x + crop.width);
  const double bottom = std::min<double>(box.bottom, crop.y + crop.height);
  const double width = std::max(right - std::max<double>(box.left, crop.x), 0.0);
  const double height = std::max(bottom - std::max<double>(box.top, crop.y), 0.0);
  const double both = width * height;
  return both / (own + all - both);
}

// Whether a crop shows the middle of a box, and enough of one of those.
bool serves(const Rect& crop, const std::vector<BoxXyxy>& boxes, double least) {
  bool any = false;
  double most = 0.0;
  for (const BoxXyxy& box : boxes) {
    if (!has_centre(crop, box)) continue;
    most = any ? std::max(most, overlap(crop, box)) : overlap(crop, box);
    any = true;
  }
  return any && !(most < least);
}

// A crop without an area is no crop.
Rect draw_crop(std::span<const double> numbers, const SampleRng& rng, uint32_t block, int width,
               int height) {
  const PhiloxWords a = rng.words(DrawOp::kIouCrop, block);
  const auto part = [](int of, float share) {
    return static_cast<int>(static_cast<float>(of) * share);
  };
  const int w = part(width, float_between(a[0], a[1], numbers[0], numbers[1]));
  const int h = part(height, float_between(a[2], a[3], numbers[0], numbers[1]));
  if (w == 0 || h == 0) return {};
  const double ratio = static_cast<double>(w) / h;
  if (!(numbers[2] <= ratio && ratio <= numbers[3])) return {};
  const PhiloxWords b = rng.words(DrawOp::kIouCrop, block + 1);
  return {part(width - w, float_between(b[0], b[1], 0, 1)),
          part(height - h, float_between(b[2], b[3], 0, 1)), w, h};
}

void draw(std::span<const double> numbers, const SampleRng& rng, std::span<const BoxXyxy> boxes,
          View& view) {
  if (boxes.empty()) return;
  settle(view);
  const std::vector<BoxXyxy> own = left_of(boxes, view);
  if (own.empty()) return;
  const std::span<const double> options = numbers.subspan(kFirstOption);
  const auto trials = static_cast<uint32_t>(numbers[4]);
  const uint32_t blocks = 1 + 2 * trials;
  const uint32_t rounds = std::min(kRounds, kBlocks / blocks);
  for (uint32_t round = 0; round < rounds; ++round) {
    const PhiloxWords words = rng.words(DrawOp::kIouCrop, round * blocks);
    const auto count = static_cast<uint32_t>(options.size());
    const double least = options[uniform_below(words[0], words[1], count)];
    if (least >= 1.0) return;
    for (uint32_t trial = 0; trial < trials; ++trial) {
      const uint32_t block = round * blocks + 1 + 2 * trial;
      const Rect crop = draw_crop(numbers, rng, block, view.crop.width, view.crop.height);
      if (crop.width == 0 || !serves(crop, own, least)) continue;
      view.centred = {view.area[0] + view.crop.x, view.area[1] + view.crop.y,
                      view.area[2] + view.crop.x, view.area[3] + view.crop.y};
      crop_to(view, crop);
      view.centres = view.crop;
      return;
    }
  }
}

}  // namespace

constinit const GeometryOperation kRandomIouCrop{"random_iou_crop", kParameters, nullptr, true,
                                                 draw};

}  // namespace fastload
