// Tests of all schedules. FASTLOAD_SCHEDULE_BOUND=N raises their bounds by N.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "check.h"
#include "scheduler.h"

namespace fastload::test {

// Runs what is to be right, and tells how much that was.
inline void run_all(const char* name, const Stage& stage, size_t bound) {
  const char* const more = std::getenv("FASTLOAD_SCHEDULE_BOUND");
  bound += more == nullptr ? 0 : static_cast<size_t>(std::atoi(more));
  const Explored found = explore(stage, bound);
  std::printf("%s: bound %zu, %llu schedules, %llu steps, %llu kills, %llu stores held back\n",
              name, bound, static_cast<unsigned long long>(found.schedules),
              static_cast<unsigned long long>(found.steps),
              static_cast<unsigned long long>(found.kills),
              static_cast<unsigned long long>(found.held));
  if (!found.bad.empty()) fail(__FILE__, __LINE__, std::string(name) + ": " + found.bad.front());
  CHECK(found.schedules > 100);
}

inline void must_find(Stage stage, Defect defect) {
  stage.defect = defect;
  CHECK(!explore(stage, 2).bad.empty());
}

}  // namespace fastload::test
