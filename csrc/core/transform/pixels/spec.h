// What happens to samples' pixels: operations, and groups of them, and what is drawn of it for one
// sample.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "transform/pixels/number.h"
#include "transform/pixels/operation.h"

namespace fastload {

// A node as it is given. A leaf is an operation of the registry with its numbers; a group has nodes
// of its own:
//   all     one after the other
//   choice  one of them; the numbers are their weights
//   order   all of them, in an order that is drawn for each sample
//   some    as many as the first number says, none twice; the other numbers are their weights
//   augmix, mix_and_blend, blend_in_turn
//           what each of them makes of the picture, mixed with it; the number is the alpha of the
//           weights. torchvision's mix, timm's, and timm's blended one; see mix.h
struct PixelNode {
  std::string name;
  double probability = 1.0;  // with which it happens at all
  std::vector<PixelNumber> numbers;
  std::vector<PixelNode> parts;
};

// The operations that were drawn for one sample, in order. Keeps its memory.
class DrawnPixels {
 public:
  struct Step {
    const PixelOperation* operation;
    PixelDraws draws;
    size_t first;  // of its numbers
  };
  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  [[nodiscard]] std::span<const double> numbers(const Step& step) const {
    return {numbers_.data() + step.first, step.operation->parameters.size()};
  }
  // Where those that move pixels take them, in a picture of that size; `to` is emptied first.
  void motions(int width, int height, std::vector<Motion>& to) const;
  // How many of the steps, the first ones, need a whole picture where a part of it is wanted.
  [[nodiscard]] size_t whole_steps() const;
  void apply(Canvas& canvas) const { apply(canvas, 0, steps_.size()); }
  // Steps [begin, end) only.
  void apply(Canvas& canvas, size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      const Step& step = steps_[i];
      step.operation->apply(numbers(step), step.draws, canvas);
    }
  }

 private:
  friend class PixelSpec;
  std::vector<Step> steps_;
  std::vector<double> numbers_;
};

// The nodes of a transform, in order. A copy shares them.
class PixelSpec {
 public:
  PixelSpec() = default;
  // Throws Error(kValue) for a name that is neither an operation nor a group, for another count of
  // numbers than it takes, for an operation with parts and a group without, Error(kLimit) for too
  // many uses of one name.
  // What stands in `before` has been counted: no use of either draws what one of the other does.
  explicit PixelSpec(std::vector<PixelNode> nodes, const PixelSpec& before = {});

  [[nodiscard]] bool empty() const { return uses_ == nullptr; }
  [[nodiscard]] size_t size() const;
  // The first operation that moves pixels, which masks and points must follow; nullptr: none does.
  [[nodiscard]] const PixelOperation* moving() const;
  // The first of those within a mix, which nothing can follow: each of its pictures is elsewhere.
  [[nodiscard]] const PixelOperation* moving_in_mix() const;
  // What happens to this sample.
  void draw(const SampleRng& rng, DrawnPixels& drawn) const;

  // A node, checked, with the numbers that its draws have.
  struct Use;

 private:
  std::shared_ptr<const std::vector<Use>> uses_;
};

}  // namespace fastload
