#include "base/exit_gate.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace fastload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kClosed = uint64_t{1} << 32;  // the bits below count the threads inside
constexpr std::chrono::milliseconds kLook{1};

std::atomic<uint64_t> gate{0};
thread_local uint32_t depth = 0;       // how often this thread has entered without leaving
thread_local bool has_closed = false;  // it is not counted

void after_fork() { gate = (gate & kClosed) | (depth > 0 && !has_closed ? 1 : 0); }

[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, after_fork);

}  // namespace

bool ExitGate::enter() noexcept {
  if (depth == 0 && !has_closed && (gate.fetch_add(1) & kClosed) != 0) {
    gate.fetch_sub(1);
    return false;
  }
  ++depth;
  return true;
}

void ExitGate::leave() noexcept {
  if (--depth == 0 && !has_closed) gate.fetch_sub(1);
}

bool ExitGate::close(std::chrono::duration<double> patience) {
  if (depth > 0 && !has_closed) gate.fetch_sub(1);
  has_closed = true;
  gate.fetch_or(kClosed);
  const auto until = Clock::now() + patience;
  while ((gate & ~kClosed) > 0) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

}  // namespace fastload
