// Pillow's ImageEnhance.Sharpness: the picture smoothed by a 3 x 3 filter, and the picture,
// blended. The filter leaves the outermost rows and columns as they are, and so does the blend.
#include "transform/pixels/pointwise.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

constexpr const char* kParameters[] = {"factor"};

void apply(std::span<const double> numbers, const PixelDraws&, Canvas& canvas) {
  const Picture& picture = canvas.picture();
  if (picture.width < 3 || picture.height < 3) return;
  const size_t row = size_t{3} * static_cast<size_t>(picture.width);
  uint8_t* const scratch =
      canvas.scratch(PointKernels::kSharpenRows * row + PointKernels::kSharpenSlack);
  point_kernels().sharpen(picture.pixels, row, static_cast<size_t>(picture.height),
                          static_cast<float>(numbers[0]), scratch);
}

}  // namespace

constinit const PixelOperation kSharpness{"sharpness", 7, kParameters, apply};

}  // namespace fastload
