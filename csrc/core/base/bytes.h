// A borrowed, read-only run of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fastload {

using Bytes = std::span<const uint8_t>;

}  // namespace fastload
