// What is done to boxes between two steps of the geometry: they are cut off where what is left of
// the picture ends, or objects are dropped for them.
#include <string>

#include "base/error.h"
#include "transform/geometry/registry.h"

namespace fastload {
namespace {

constexpr const char* kSizes[] = {"min_size", "min_area"};

void clamp(std::span<const double>, const SampleRng&, View& view) { clip_to_view(view); }

void judge(std::span<const double> numbers, const SampleRng&, View& view) {
  if (view.judgements == View::kMostJudged) {
    throw Error(ErrorKind::kValue, "Objects are dropped between steps of the geometry at most " +
                                       std::to_string(View::kMostJudged) + " times.");
  }
  view.judged[view.judgements++] = {view.crop,       view.resized_width,       view.resized_height,
                                    view.window,     view.area,                view.centres.has_value(),
                                    numbers.front(), numbers.back()};
}

}  // namespace

constinit const GeometryOperation kClampBoxes{
    .name = "clamp_boxes", .parameters = {}, .apply = clamp, .still = true};
constinit const GeometryOperation kJudgeBoxes{
    .name = "judge_boxes", .parameters = kSizes, .apply = judge, .still = true};

}  // namespace fastload
