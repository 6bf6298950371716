#include "io/range_claims.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "io/file.h"

namespace fastload {
namespace {

bool set_lock(int descriptor, short type, uint64_t begin, uint64_t end) noexcept {
  struct flock range{};  // l_pid must be 0 for F_OFD_SETLK
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(begin);
  range.l_len = static_cast<off_t>(end - begin);
  for (;;) {
    if (::fcntl(descriptor, F_OFD_SETLK, &range) == 0) return true;
    if (errno != EINTR) return errno != EAGAIN && errno != EACCES;
  }
}

}  // namespace

bool lock_range(int descriptor, uint64_t begin, uint64_t end) noexcept {
  return set_lock(descriptor, F_WRLCK, begin, end);
}

void unlock_range(int descriptor, uint64_t begin, uint64_t end) noexcept {
  set_lock(descriptor, F_UNLCK, begin, end);
}

RangeClaims::RangeClaims(const std::string& path)
    : descriptor_(path.empty() ? -1 : open_path(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)) {
  if (descriptor_ < 0 && !path.empty()) throw_system_error("cannot open", path);
}

RangeClaims::~RangeClaims() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool RangeClaims::claim(uint64_t begin, uint64_t end) noexcept {
  return descriptor_ < 0 || lock_range(descriptor_, begin, end);
}

void RangeClaims::release(uint64_t begin, uint64_t end) noexcept {
  if (descriptor_ >= 0) unlock_range(descriptor_, begin, end);
}

}  // namespace fastload
