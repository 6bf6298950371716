// Several views of one picture from one decode: what they need together is decoded into a thread's
// memory, and each is cut from there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/geometry.h"
#include "base/row_sink.h"
#include "decode/decode.h"

namespace fastload {

// When the views of a picture are decoded together. The pixels are the same.
enum class DecodeOnce : uint8_t {
  kCheaper,  // where decode_cost() says that it pays
  kAlways,   // tests and benchmarks
  kNever,    // likewise
};
inline constexpr std::array<const char*, 3> kDecodeOnce{"cheaper", "always", "never"};

// The smallest rectangle around some, at least one.
Rect around(std::span<const Rect> parts);

// Whether the rectangle around `parts` is cheaper to decode and to keep than they are to decode one
// by one. The picture, of `bytes`, is open; `pixel_bytes` of a decoded pixel.
bool pays_once(const ImageInfo& info, size_t bytes, std::span<const Rect> parts,
               const EntryPoints& entries, size_t pixel_bytes);

class SharedPicture final : public RowSink {
 public:
  // `pixels` is nobody else's meanwhile; it grows to the largest area.
  explicit SharedPicture(std::vector<uint8_t>& pixels) : pixels_(pixels) {}

  // Takes the rows of `area` of a picture, in its coordinates.
  void begin(Rect area, size_t pixel_bytes);
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override;
  // Throws Error(kDecode): the picture is damaged, and what another decoder makes of it depends on
  // the part that it is asked for.
  void restart() override;
  // Hands the rows of a part of the area to the sink, as Decoder::decode() would.
  void give(Rect part, RowSink& sink) const;
  // Lets go of memory that only a huge picture needs.
  void trim();

 private:
  std::vector<uint8_t>& pixels_;
  Rect area_;
  size_t pixel_bytes_ = 0;
  size_t stride_ = 0;
};

}  // namespace fastload
