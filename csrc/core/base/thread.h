// Starts the core's threads.
#pragma once

#include <functional>
#include <thread>

namespace fastload {

// A thread named `name` (at most 15 characters) that runs `run`. It has what the C and C++
// libraries take for a thread when it first needs it; later they would end the process where there
// is no memory. It blocks all signals but those for its own faults: signals belong to the
// interpreter's main thread. Throws std::bad_alloc and std::system_error; then no thread is left.
std::thread start_thread(const char* name, std::function<void()> run);

}  // namespace fastload
