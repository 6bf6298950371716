// A number of an operation: the same for all samples, or drawn for each.
#pragma once

#include <string_view>
#include <vector>

#include "transform/pixels/operation.h"

namespace fastload {

class PixelNumber {
 public:
  enum class Kind : uint8_t {
    kConstant,  // (value)
    kUniform,   // (low, high): uniform in [low, high)
    kAmong,     // (values...): each as likely as the others
    // timm's magnitudes (timm/data/auto_augment.py, AugmentOp and the *_level_to_arg functions):
    // (mean, std, top, per, scale, truncate, sign, offset, low, high). A magnitude is normal, or
    // uniform in [0, mean) where std is infinite, and clamped to [0, top]; it is divided by `per`,
    // times `scale`, cut to a whole number if `truncate`, negated in half of all cases if `sign`,
    // and, `offset` added, clamped to [low, high].
    kLevel,
  };

  PixelNumber(double value) : kind_(Kind::kConstant), values_{value} {}
  // Throws Error(kValue) for another count of values than the kind has, and for an unknown name.
  PixelNumber(std::string_view kind, std::vector<double> values);

  [[nodiscard]] bool is_drawn() const { return kind_ != Kind::kConstant; }
  // Of a constant.
  [[nodiscard]] double constant() const { return values_[0]; }
  // As this sample has it; `place` is its place among the operation's numbers.
  [[nodiscard]] double draw(const PixelDraws& draws, uint32_t place) const;

 private:
  Kind kind_;
  std::vector<double> values_;
};

}  // namespace fastload
