// Operations on a sample's pixels, between resize and store: in cache, in the decoding thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/philox.h"
#include "base/row_sink.h"
#include "transform/buffer.h"
#include "transform/pixels/operation.h"

namespace fastload {

// The operations of a plan, in order.
class PixelSpec {
 public:
  // One more, which happens with this probability. Throws Error(kValue) for a name that the
  // registry does not have, another count of numbers than its parameters, or too many uses of it.
  void add(std::string_view name, double probability, std::vector<double> numbers);

  struct Use {
    const PixelOperation* operation;
    double probability;
    std::vector<double> numbers;
    uint32_t use;  // how many of the same operation come before

    [[nodiscard]] PixelDraws draws(const SampleRng& rng) const {
      return {rng, operation->number, use};
    }
    [[nodiscard]] bool happens(const SampleRng& rng) const;
  };
  [[nodiscard]] const std::vector<Use>& uses() const { return uses_; }

  // Whether anything happens to this sample's pixels.
  [[nodiscard]] bool happens(const SampleRng& rng) const;
  void apply(const SampleRng& rng, const Picture& picture) const;

 private:
  std::vector<Use> uses_;
};

// One per thread; keeps its memory, which grows with the largest picture.
class PixelStage final : public RowSink {
 public:
  // Starts a picture of width x height pixels on its way to `out`, and returns where its rows go:
  // to `out` itself, where nothing happens to them. `spec` must live until end().
  RowSink& begin(const PixelSpec& spec, const SampleRng& rng, int width, int height, RowSink& out);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // rows are put where they belong, again
  // All rows are there: the operations, then the rows for `out`.
  void end();

 private:
  const PixelSpec* spec_ = nullptr;  // nullptr: nothing happens
  SampleRng rng_;
  RowSink* out_ = nullptr;
  Picture picture_;
  Buffer<uint8_t> memory_;
};

}  // namespace fastload
