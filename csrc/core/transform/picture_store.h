// Store for pictures of any format: gray, n channels, 16 bits, ids.
#pragma once

#include <vector>

#include "base/pixel_format.h"
#include "base/row_sink.h"
#include "transform/store.h"

namespace fastload {

// Values are computed as Store's, of 16 bits within the same bound of x / 65535; integers are kept.
// Gray of 8 bits goes through Store's vector kernels.
class PictureStore final : public RowSink {
 public:
  // Throws as channel_scales().
  PictureStore(const StoreSpec& spec, const PixelFormat& format);
  void begin(const StorePlace& place, int width, int height);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  void restart() override {}  // rows are written where they belong, again

 private:
  // Element `i` of a line's `count` values goes to `to` + its channel's plane.
  using Line = void (*)(const uint8_t* from, size_t pixels, const std::vector<ChannelScale>& scales,
                        uint8_t* to, size_t plane);
  template <typename In>
  static Line line_of(DType dtype);
  void gray_line(const uint8_t* from, uint8_t* to) const;

  StoreSpec spec_;
  PixelFormat format_;
  std::vector<ChannelScale> scales_;
  Line line_;
  StoreScale gray_;
  bool is_gray_;
  StorePlace place_;
  int width_ = 0;
  int height_ = 0;
};

}  // namespace fastload
