#include "cache/reservation.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "base/thread.h"
#include "io/range_claims.h"

namespace fastload {
namespace {

// Those who write wait meanwhile, because the kernel locks the file: some 2 ms.
constexpr uint64_t kStep = 4 << 20;
constexpr int kRest = 3;  // times as long as a step takes: a quarter of a core, some 500 MB/s

}  // namespace

Reservation::Reservation(std::vector<Segment> segments, uint64_t& progress)
    : segments_(std::move(segments)), progress_(progress) {
  try {
    thread_ = start_thread("fastload-take", [this] { run(); });
  } catch (const std::exception&) {
    // See above: whoever writes takes the memory.
  }
}

Reservation::~Reservation() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void Reservation::run() const {
  const int descriptor = segments_.front().descriptor;
  const uint64_t end = segments_.back().end;
  if (!lock_range(descriptor, end, end + 1)) return;  // another process does it
  reserve();
  unlock_range(descriptor, end, end + 1);
}

void Reservation::reserve() const {
  const std::atomic_ref done(progress_);
  uint64_t begin = done.load();
  for (const Segment& segment : segments_) {
    while (begin < segment.end) {
      if (stopping_) return;
      struct stat found{};  // of a file that somebody has cut nothing is taken, which would mend it
      if (::fstat(segment.descriptor, &found) != 0 ||
          static_cast<uint64_t>(found.st_size) != segment.end - segment.begin) {
        return;
      }
      const uint64_t length = std::min(kStep, segment.end - begin);
      const auto began = std::chrono::steady_clock::now();
      const int error =
          ::posix_fallocate(segment.descriptor, static_cast<off_t>(begin - segment.begin),
                            static_cast<off_t>(length));
      if (error == EINTR) continue;
      if (error != 0) return;  // no memory is left: what has some is used
      begin += length;
      done.store(begin, std::memory_order_relaxed);
      std::this_thread::sleep_for(kRest * (std::chrono::steady_clock::now() - began));
    }
  }
}

}  // namespace fastload
