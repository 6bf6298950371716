// Memory that runs out when a test says so: malloc and its like, and with them operator new, fail
// in this whole program and in the libraries that it uses (libjpeg, libpng, libwebp, zlib, libc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastload::test {

// In its lifetime an allocation of any thread fails: that after `successes` others, and with
// `for_good` all that come later.
struct Failing {
  Failing(int64_t successes, bool for_good);
  ~Failing();
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
};

// Whether one has failed since the last Failing began.
bool has_failed() noexcept;
// How many have failed, ever.
uint64_t failures() noexcept;
// Blocks that were given and have not come back.
int64_t live_blocks() noexcept;

}  // namespace fastload::test
