// Runs actors step by step, in every order: an exhaustive scheduler over the core's own code.
//
// DESIGN. An actor is a function on a stack of its own, and one at a time runs; at each step
// (stepped.h: an access to shared memory, half of a write, a claim) it may be left for another one,
// or for good: a kill, behind which what the kernel would take back is taken back. A schedule is
// what is done otherwise than by rule, and the rule is to go on with the one that ran last; all
// schedules with up to so many deviations are run (context bounding: Musuvathi and Qadeer, PLDI
// 2007), each from a fresh start. Nobody here waits for anybody, which the bound on steps shows, so
// an actor that is stopped is one that was left and goes on at the end.
//
// MEMORY. Steps take place one after the other, as sequential consistency has it, but for one
// thing: a deviation may hold back a store, which the others see only before the actor's next
// release, or at its end. So a missing release is found; loads are never early, so a missing
// acquire is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fastload::test {

struct Actor {
  std::function<void()> work;
  std::function<void()> dies;  // lets go of what the kernel takes from a killed process
};

enum class Otherwise : uint8_t { kGo, kKill, kHold };
struct Deviation {
  uint32_t at;  // number of the step
  Otherwise what;
  uint8_t actor;
};
using Schedule = std::vector<Deviation>;

// Defects on purpose, which are to be found.
enum class Defect { kNone, kPublishedFirst, kNoRelease, kTakenByTwo };

struct Stage {
  std::function<std::vector<Actor>()> begin;  // a fresh start
  std::function<void(size_t killed)> check;   // at the end; throws Failure
  bool one_writer = false;                    // two that write to one place at a time are a mistake
  Defect defect = Defect::kNone;
};

struct Explored {
  uint64_t schedules = 0, steps = 0, kills = 0, held = 0;
  std::vector<std::string> bad;  // the first few
};

// All schedules of a stage with at most `bound` deviations, one kill among them; ends at the first
// few bad ones.
Explored explore(const Stage& stage, size_t bound);

// Of an actor, in `work`: another step, of the test's own.
void step_here() noexcept;

}  // namespace fastload::test
