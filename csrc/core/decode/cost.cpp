#include "decode/cost.h"

#include <algorithm>
#include <cstdint>

namespace fastload {
namespace {

// Fitted to 500 photographs of ImageNet, with and without entry points, with AVX-512. Two random
// crops of each, decoded as these say, took 0.2% more than by the better way of each
// (benchmarks/bench_views.py has the whole loader). Only proportions matter.
constexpr double kOpen = 5000;   // tables, first row
constexpr double kByte = 3.3;    // of entropy-coded data
constexpr double kPixel = 0.75;  // inverse DCT, upsampling, colour
constexpr int kMcu = 16;         // rows that come together, at most

// The part of the encoded bytes that has to be read.
double reach(const ImageInfo& info, Rect roi, const EntryPoints& entries) {
  const auto width = static_cast<int>(info.width), height = static_cast<int>(info.height);
  if ((info.flags & ImageInfo::kProgressive) != 0) return 1.0;  // scans are of the whole picture
  const int bottom = std::min(height, (roi.y + roi.height + kMcu - 1) / kMcu * kMcu);
  if (entries.packed.empty()) return static_cast<double>(bottom) / height;
  const int top = roi.y / kMcu * kMcu;
  double across = 1.0;
  if (entries.spacing != EntryPoints::kRow) {
    const int step = entries.spacing;
    const int left = roi.x / step * step;
    const int right = std::min(width, (roi.x + roi.width + step - 1) / step * step);
    across = static_cast<double>(right - left) / width;
  }
  return across * (bottom - top) / height;
}

}  // namespace

double decode_cost(const ImageInfo& info, size_t bytes, Rect roi, const EntryPoints& entries) {
  const bool in_memory = info.codec == Codec::kRaw || (info.flags & ImageInfo::kNeedsFallback) != 0;
  if (in_memory) return 0.0;
  const double area = static_cast<double>(roi.width) * roi.height;
  return kOpen + kByte * static_cast<double>(bytes) * reach(info, roi, entries) + kPixel * area;
}

}  // namespace fastload
