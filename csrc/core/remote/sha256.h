// SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for signatures of a few hundred bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace fastload {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::string_view data);
Sha256 hmac_sha256(std::string_view key, std::string_view data);

// A digest as the key or data of another.
inline std::string_view as_text(const Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}
// In small hexadecimal digits.
std::string hex(const Sha256& digest);

}  // namespace fastload
