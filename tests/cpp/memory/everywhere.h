// Something tried with each of its allocations failing: the first, the second, ... alone, then all
// from the first on, all from the second on, ... until a run needs no more than succeed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fastload::test {

using Made = std::vector<uint8_t>;

// `make` throws std::bad_alloc or Error(kMemory) where memory lacks, and nothing else; a run that
// does not throw gives the same bytes; a run right after gives them, too, and has left no block
// behind that the runs before had not. `what` names it in the count that the program prints;
// `before` comes before each run, with memory.
void fail_everywhere(
    const char* what, const std::function<Made()>& make,
    const std::function<void()>& before = [] {});

// For what has threads, where chance decides whose allocation fails: calls `run` with each in turn,
// alone or with all after it; `run` makes its own Failing and judges. Ends when none has failed.
void fail_in_turn(const char* what,
                  const std::function<void(int64_t successes, bool for_good)>& run);

}  // namespace fastload::test
