// base/exit_gate.h, in processes of their own: a gate that is closed stays closed.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/exit_gate.h"
#include "check.h"

using fastload::ExitGate;
using namespace std::chrono_literals;

namespace {

bool holds_in_a_child(const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

bool enters() {
  if (!ExitGate::enter()) return false;
  ExitGate::leave();
  return true;
}

bool others_enter() {
  bool found = false;
  std::thread([&] { found = enters(); }).join();
  return found;
}

}  // namespace

TEST(it_is_open_until_one_thread_closes_it_which_may_still_enter) {
  CHECK(holds_in_a_child([] {
    return enters() && others_enter() && ExitGate::close(60s) && enters() && !others_enter() &&
           ExitGate::close(60s);
  }));
}

TEST(those_inside_are_waited_for_and_may_enter_again) {
  CHECK(holds_in_a_child([] {
    std::atomic<int> step{0};
    std::thread inside([&] {
      if (!ExitGate::enter()) return;
      step = 1;
      while (step < 2) std::this_thread::yield();
      if (enters()) step = 3;
      ExitGate::leave();
      if (enters()) step = 4;
    });
    while (step < 1) std::this_thread::yield();
    const bool waited = !ExitGate::close(10ms);
    step = 2;
    const bool left = ExitGate::close(60s);
    inside.join();
    return waited && left && step == 3;
  }));
}

TEST(who_closes_it_from_within_does_not_wait_for_itself) {
  CHECK(holds_in_a_child([] {
    const bool entered = ExitGate::enter();
    const bool closed = ExitGate::close(60s);
    ExitGate::leave();
    return entered && closed && enters() && ExitGate::close(60s);
  }));
}

TEST(after_a_fork_only_the_thread_that_forked_is_inside) {
  CHECK(holds_in_a_child([] {
    std::atomic<int> step{0};
    std::thread other([&] {
      if (!ExitGate::enter()) return;
      step = 1;
      while (step < 2) std::this_thread::yield();
      ExitGate::leave();
    });
    while (step < 1) std::this_thread::yield();
    const bool outside = holds_in_a_child([] { return enters() && ExitGate::close(60s); });
    const bool inside = ExitGate::enter() && holds_in_a_child([] {
                          std::atomic<bool> closed{false};
                          std::thread closer([&] { closed = ExitGate::close(10ms); });
                          closer.join();
                          return !closed;
                        });
    step = 2;
    other.join();
    return outside && inside;
  }));
}
