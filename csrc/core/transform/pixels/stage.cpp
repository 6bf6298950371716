#include "transform/pixels/stage.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "transform/pixels/registry.h"

namespace fastload {

void PixelSpec::add(std::string_view name, double probability, std::vector<double> numbers) {
  const PixelOperation& operation = pixel_operation(name);
  if (numbers.size() != operation.parameters.size()) {
    throw Error(ErrorKind::kValue, std::string(name) + " takes " +
                                       std::to_string(operation.parameters.size()) +
                                       " numbers. Found: " + std::to_string(numbers.size()) + ".");
  }
  const auto before = std::count_if(uses_.begin(), uses_.end(),
                                    [&](const Use& use) { return use.operation == &operation; });
  if (before >= PixelDraws::kMostUses) {
    throw Error(ErrorKind::kLimit, std::string(name) + " may be used " +
                                       std::to_string(PixelDraws::kMostUses) +
                                       " times in a transform. Found: more.");
  }
  uses_.push_back({&operation, probability, std::move(numbers), static_cast<uint32_t>(before)});
}

bool PixelSpec::Use::happens(const SampleRng& rng) const {
  return probability >= 1.0 || (probability > 0.0 && draws(rng).uniform(0) < probability);
}

bool PixelSpec::happens(const SampleRng& rng) const {
  return std::any_of(uses_.begin(), uses_.end(), [&](const Use& use) { return use.happens(rng); });
}

void PixelSpec::apply(const SampleRng& rng, const Picture& picture) const {
  for (const Use& use : uses_) {
    if (use.happens(rng)) use.operation->apply(use.numbers, use.draws(rng), picture);
  }
}

RowSink& PixelStage::begin(const PixelSpec& spec, const SampleRng& rng, int width, int height,
                           RowSink& out) {
  spec_ = spec.happens(rng) ? &spec : nullptr;
  if (spec_ == nullptr) return out;
  rng_ = rng;
  out_ = &out;
  picture_ = {nullptr, width, height};
  memory_.reserve(picture_.bytes() + kSlack);
  picture_.pixels = memory_.data();
  return *this;
}

void PixelStage::rows(const uint8_t* pixels, size_t stride, int y, int count) {
  const size_t row = size_t{3} * static_cast<size_t>(picture_.width);
  for (int i = 0; i < count; ++i) {
    std::memcpy(picture_.pixels + row * static_cast<size_t>(y + i),
                pixels + stride * static_cast<size_t>(i), row);
  }
}

void PixelStage::end() {
  if (spec_ == nullptr) return;
  spec_->apply(rng_, picture_);
  out_->rows(picture_.pixels, size_t{3} * static_cast<size_t>(picture_.width), 0, picture_.height);
}

}  // namespace fastload
