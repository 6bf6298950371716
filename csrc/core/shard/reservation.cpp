#include "shard/reservation.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/blocked_signals.h"
#include "io/range_claims.h"

namespace fastload {
namespace {

// Those who write wait meanwhile, because the kernel locks the file: some 2 ms.
constexpr uint64_t kStep = 4 << 20;

}  // namespace

Reservation::Reservation(int descriptor, uint64_t size, uint64_t& progress)
    : descriptor_(descriptor), size_(size), progress_(progress) {
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "fastload-take");
  } catch (const std::system_error&) {
    // See above: whoever writes takes the memory.
  }
}

Reservation::~Reservation() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void Reservation::run() const {
  if (!lock_range(descriptor_, size_, size_ + 1)) return;  // another process does it
  const std::atomic_ref done(progress_);
  for (uint64_t begin = done.load(); begin < size_ && !stopping_;) {
    const uint64_t length = std::min(kStep, size_ - begin);
    const int error =
        ::posix_fallocate(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(length));
    if (error == EINTR) continue;
    if (error != 0) break;  // no memory is left: what has some is used
    begin += length;
    done.store(begin, std::memory_order_relaxed);
  }
  unlock_range(descriptor_, size_, size_ + 1);
}

}  // namespace fastload
