// Starts the core's threads.
#pragma once

#include <functional>
#include <thread>

namespace fastload {

// Starts a thread named `name` (at most 15 characters) that runs `run`. Its thread-local data are
// there before `run` begins: else the dynamic loader takes them when they are first used, and ends
// the process where there is no memory. It blocks all signals but those for its own faults, since
// signals belong to the interpreter's main thread. Throws std::bad_alloc and std::system_error;
// then no thread is left.
std::thread start_thread(const char* name, std::function<void()> run);

}  // namespace fastload
