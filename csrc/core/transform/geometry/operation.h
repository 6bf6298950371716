// What a step of the geometry is: a row of the registry and a function that narrows a view.
#pragma once

#include <span>

#include "base/philox.h"
#include "transform/view.h"

namespace fastload {

// A row of the registry. `apply` gets what the steps before made of the picture: a step that cuts
// from a mirrored picture (view.flip) cuts from the mirrored place, because the flip is done last.
struct GeometryOperation {
  const char* name;
  std::span<const char* const>
      parameters;  // what `numbers` are; their ranges are checked in Python
  void (*apply)(std::span<const double> numbers, const SampleRng& rng, View& view);
  bool needs_boxes = false;  // draws from the sample's boxes
};

// Python's int(round(x)): halves to even.
int round_even(double x);

// The place in the unmirrored picture of what was cut from the mirrored one.
inline void mirror(Rect& rect, int width) { rect.x = width - rect.x - rect.width; }

// The picture is resized to width x height and shown whole.
void resize_to(View& view, int width, int height);

// Of the resized picture this is shown.
void show_window(View& view, Rect window);

}  // namespace fastload
