#include "transform/pixels/number.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/error.h"
#include "transform/pixels/normal.h"

namespace fastload {
namespace {

constexpr size_t kLevelValues = 10;

}  // namespace

PixelNumber::PixelNumber(std::string_view kind, std::vector<double> values)
    : kind_(Kind::kConstant), values_(std::move(values)) {
  struct Row {
    std::string_view name;
    Kind kind;
    size_t least, most;
  };
  constexpr std::array<Row, 4> kRows{{{"constant", Kind::kConstant, 1, 1},
                                      {"uniform", Kind::kUniform, 2, 2},
                                      {"among", Kind::kAmong, 1, 4096},
                                      {"level", Kind::kLevel, kLevelValues, kLevelValues}}};
  for (const Row& row : kRows) {
    if (row.name != kind) continue;
    if (values_.size() >= row.least && values_.size() <= row.most) {
      kind_ = row.kind;
      return;
    }
    throw Error(ErrorKind::kValue,
                "A number that is " + std::string(kind) + " has " + std::to_string(row.least) +
                    (row.least == row.most ? "" : " to " + std::to_string(row.most)) +
                    " values. Found: " + std::to_string(values_.size()) + ".");
  }
  throw Error(ErrorKind::kValue, "A number must be constant, uniform, among or level. Found: " +
                                     std::string(kind) + ".");
}

double PixelNumber::draw(const PixelDraws& draws, uint32_t place) const {
  if (kind_ == Kind::kConstant) return values_[0];
  const PhiloxWords words = draws.words(1 + 2 * place);
  const double u = uniform_double(words[0], words[1]);
  if (kind_ == Kind::kUniform) return values_[0] + u * (values_[1] - values_[0]);
  if (kind_ == Kind::kAmong) {
    return values_[uniform_below(words[0], words[1], static_cast<uint32_t>(values_.size()))];
  }
  const double mean = values_[0];
  const double std = values_[1];
  double level = std::isinf(std) ? u * mean : std > 0 ? mean + std * standard_normal(words) : mean;
  level = std::clamp(level, 0.0, values_[2]) / values_[3] * values_[4];
  if (values_[5] != 0) level = std::trunc(level);
  if (values_[6] != 0 && draws.uniform(2 + 2 * place) < 0.5) level = -level;
  return std::clamp(level + values_[7], values_[8], values_[9]);
}

}  // namespace fastload
