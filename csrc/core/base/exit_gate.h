// A gate that threads pass, until one thread closes it for good.
#pragma once

#include <chrono>

namespace fastload {

// The process's. Whoever is inside may enter again, because it is waited for; and so may the thread
// that closed the gate. After fork() only the thread that forked can be inside.
class ExitGate {
 public:
  // False: it is closed, and there is nothing to leave.
  [[nodiscard]] static bool enter() noexcept;
  static void leave() noexcept;
  // Nobody enters any more. Waits until all others have left; false: some are still inside.
  static bool close(std::chrono::duration<double> patience);
};

}  // namespace fastload
