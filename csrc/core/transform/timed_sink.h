// Stands between decoder and resampler to tell their times apart.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/row_sink.h"

namespace fastload {

class TimedSink final : public RowSink {
 public:
  explicit TimedSink(RowSink& next) : next_(next) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    const uint64_t start = now_ns();
    next_.rows(pixels, stride, y, count);
    spent_ += now_ns() - start;
  }
  void restart() override { next_.restart(); }
  [[nodiscard]] uint64_t spent() const { return spent_; }

 private:
  RowSink& next_;
  uint64_t spent_ = 0;
};

}  // namespace fastload
