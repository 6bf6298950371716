#include "everywhere.h"

#include <cstdio>
#include <mutex>
#include <new>
#include <string>

#include "../check.h"
#include "base/error.h"
#include "failing.h"

namespace fastload::test {
namespace {

constexpr int64_t kNoFailure = int64_t{1} << 40;

struct Tally {
  uint64_t things = 0, singly = 0, from_there_on = 0;
  ~Tally() {
    if (things == 0) return;
    std::printf(
        "all: %llu things, %llu allocations failed in turn, and all from each of %llu on: %llu "
        "calls failed\n",
        static_cast<unsigned long long>(things), static_cast<unsigned long long>(singly),
        static_cast<unsigned long long>(from_there_on),
        static_cast<unsigned long long>(failures()));
    std::fflush(stdout);
  }
};

Tally& tally() {
  static Tally all;
  return all;
}

void say(const char* what, uint64_t singly, uint64_t from_there_on) {
  std::printf("  %s: %llu allocations failed in turn, and all from each of %llu on\n", what,
              static_cast<unsigned long long>(singly),
              static_cast<unsigned long long>(from_there_on));
  ++tally().things;
  tally().singly += singly;
  tally().from_there_on += from_there_on;
}

[[noreturn]] void found(const char* what, int64_t point, bool for_good, const std::string& why) {
  throw Failure(std::string(what) + ": with " +
                (for_good ? "all from allocation " : "allocation ") + std::to_string(point) +
                (for_good ? " on" : "") + " failing: " + why);
}

// Whether the run threw for lack of memory.
bool threw(const char* what, const std::function<Made()>& make, int64_t point, bool for_good,
           Made& made) {
  std::string why;
  try {
    const Failing failing(point, for_good);
    made = make();
    return false;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kMemory) return true;
    why = error.what();
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    why = error.what();
  }
  found(what, point, for_good, "another error than one about memory: " + why);
}

// The C library loads what unwinds its own frames, and keeps it, when an exception first passes
// one.
void load_unwinder() {
  std::once_flag once;
  try {
    std::call_once(once, [] { throw std::bad_alloc(); });
  } catch (const std::bad_alloc&) {
  }
}

class Trial {
 public:
  Trial(const char* what, const std::function<Made()>& make, const std::function<void()>& before)
      : what_(what), make_(make), before_(before) {
    load_unwinder();
    static_cast<void>(run());  // what is made once
    wanted_ = run();
    if (run() != wanted_) throw Failure(std::string(what) + ": no two runs give the same");
  }

  // From now on no block may be left behind.
  void count_blocks() {
    static_cast<void>(run());
    blocks_ = live_blocks();
  }
  // Whether an allocation failed.
  bool at(int64_t point, bool for_good) {
    before_();
    Made made;
    const bool thrown = threw(what_, make_, point, for_good, made);
    const bool lacked = has_failed();
    if (!thrown && made != wanted_) found(what_, point, for_good, "it gave something else");
    made = Made();
    if (run() != wanted_) found(what_, point, for_good, "the next run gave something else");
    const int64_t more = live_blocks() - blocks_;
    if (more != 0) found(what_, point, for_good, std::to_string(more) + " blocks were left behind");
    return lacked;
  }

 private:
  Made run() {
    before_();
    return make_();
  }

  const char* what_;
  const std::function<Made()>& make_;
  const std::function<void()>& before_;
  Made wanted_;
  int64_t blocks_ = 0;
};

}  // namespace

void fail_everywhere(const char* what, const std::function<Made()>& make,
                     const std::function<void()>& before) {
  Trial trial(what, make, before);
  uint64_t failed[2] = {0, 0};
  trial.count_blocks();
  for (const bool for_good : {false, true}) {
    for (int64_t point = 0; trial.at(point, for_good); ++point) ++failed[for_good ? 1 : 0];
  }
  if (failed[0] == 0) throw Failure(std::string(what) + ": takes no memory at all");
  say(what, failed[0], failed[1]);
}

void fail_in_turn(const char* what,
                  const std::function<void(int64_t successes, bool for_good)>& run) {
  uint64_t failed[2] = {0, 0};
  run(kNoFailure, false);  // what is made once
  for (const bool for_good : {false, true}) {
    for (int64_t point = 0;; ++point) {
      run(point, for_good);
      if (!has_failed()) break;
      ++failed[for_good ? 1 : 0];
    }
  }
  if (failed[0] == 0) throw Failure(std::string(what) + ": takes no memory at all");
  say(what, failed[0], failed[1]);
}

}  // namespace fastload::test
