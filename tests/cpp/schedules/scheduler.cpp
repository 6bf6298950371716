#include "scheduler.h"

#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <sstream>

#include "stepped.h"
#undef atomic_ref
#undef pwrite
#undef fcntl

#if defined(__SANITIZE_ADDRESS__)
#define FASTLOAD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FASTLOAD_ASAN 1
#endif
#endif
#ifdef FASTLOAD_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef FASTLOAD_ASAN
// What is on the stack of an actor that was killed is never given back.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace fastload::test {
namespace {

constexpr size_t kStack = 256 << 10;
constexpr size_t kMostSteps = 3000;  // more, and somebody waits
constexpr size_t kMostBad = 5;
constexpr size_t kMostActors = 4;

struct HeldStore {
  void* at;
  size_t size;
  uint64_t value;
};

struct Write {
  int descriptor = -1;
  std::vector<uint8_t> bytes;
  off_t offset = 0;
};

struct Fiber {
  std::unique_ptr<uint8_t[]> stack = std::make_unique<uint8_t[]>(kStack);
  ucontext_t context{};
  const Actor* actor = nullptr;
  bool lives = false;
  bool at_store = false;              // its next step is a store that may be held back
  bool holds = false;                 // and it is
  std::vector<HeldStore> held;        // oldest first
  std::vector<Write> postponed;       // Defect::kPublishedFirst
  std::pair<off_t, off_t> writing{};  // a range of a file
  void* fake_stack = nullptr;
};

class Scheduler {
 public:
  Explored explore(const Stage& stage, size_t bound);

  // For the fiber that runs.
  [[nodiscard]] Fiber* running() const { return running_; }
  void wait(bool at_store = false) {
    running_->at_store = at_store;
    running_->holds = false;
    leave(*running_);
  }
  [[nodiscard]] const Stage& stage() const { return *stage_; }
  void commit(Fiber& fiber) {
    for (const HeldStore& one : fiber.held) std::memcpy(one.at, &one.value, one.size);
    fiber.held.clear();
  }
  void mistake(const std::string& what) {
    if (mistake_.empty()) mistake_ = what;
  }
  [[nodiscard]] bool is_written_by_another(off_t begin, off_t end) const {
    for (size_t i = 0; i < count_; ++i) {
      const Fiber& fiber = fibers_[i];
      if (&fiber == running_ || !fiber.lives) continue;
      if (fiber.writing.first < end && begin < fiber.writing.second) return true;
    }
    return false;
  }

 private:
  struct Step {
    uint8_t actor;
    bool at_store;
    uint8_t living;  // a bit for each
  };

  static void enter(unsigned number);
  void enter_fiber(Fiber& fiber);
  void leave(Fiber& fiber);
  void run(const Schedule& schedule, Explored& explored);
  static void prepare(Fiber& fiber, unsigned number);
  void start(std::vector<Actor>& actors);
  void kill(Fiber& fiber);
  void deviate(const Schedule& schedule, size_t& next, size_t& current, size_t& killed,
               Explored& explored);
  [[nodiscard]] size_t living_after(size_t current) const;
  void add_children(const Schedule& schedule, std::vector<Schedule>& waiting) const;

  const Stage* stage_ = nullptr;
  Fiber fibers_[kMostActors];
  size_t count_ = 0;
  Fiber* running_ = nullptr;
  ucontext_t main_{};
  std::vector<Step> trace_;
  std::string mistake_;
  const void* main_stack_ = nullptr;
  size_t main_size_ = 0;
};

Scheduler& scheduler() {
  static Scheduler one;
  return one;
}

void Scheduler::enter(unsigned number) {
  Scheduler& self = scheduler();
  Fiber& fiber = self.fibers_[number];
#ifdef FASTLOAD_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self.main_stack_, &self.main_size_);
#endif
  try {
    fiber.actor->work();
  } catch (const std::exception& error) {
    self.mistake("actor " + std::to_string(number) + ": " + error.what());
  }
  fiber.lives = false;
  self.leave(fiber);
}

void Scheduler::enter_fiber(Fiber& fiber) {
  running_ = &fiber;
#ifdef FASTLOAD_ASAN
  void* mine = nullptr;
  __sanitizer_start_switch_fiber(&mine, fiber.stack.get(), kStack);
#endif
  ::swapcontext(&main_, &fiber.context);
#ifdef FASTLOAD_ASAN
  __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#endif
  running_ = nullptr;
}

void Scheduler::leave(Fiber& fiber) {
#ifdef FASTLOAD_ASAN
  __sanitizer_start_switch_fiber(fiber.lives ? &fiber.fake_stack : nullptr, main_stack_,
                                 main_size_);
#endif
  ::swapcontext(&fiber.context, &main_);
#ifdef FASTLOAD_ASAN
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &main_stack_, &main_size_);
#endif
}

// A fresh stack, with nothing on it but the call of enter().
void Scheduler::prepare(Fiber& fiber, unsigned number) {
#ifdef FASTLOAD_ASAN
  __asan_unpoison_memory_region(fiber.stack.get(), kStack);  // of one that was killed
#endif
  fiber.lives = true;
  fiber.at_store = fiber.holds = false;
  fiber.held.clear();
  fiber.postponed.clear();
  fiber.writing = {};
  ::getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  ::makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Scheduler::enter), 1, number);
}

void Scheduler::start(std::vector<Actor>& actors) {
  count_ = actors.size();
  for (size_t i = 0; i < count_; ++i) {
    fibers_[i].actor = &actors[i];
    prepare(fibers_[i], static_cast<unsigned>(i));
    enter_fiber(fibers_[i]);  // up to its first step
  }
}

// What it had stored reaches memory all the same.
void Scheduler::kill(Fiber& fiber) {
  commit(fiber);
  fiber.lives = false;
  fiber.writing = {};
  fiber.actor->dies();
}

size_t Scheduler::living_after(size_t current) const {
  for (size_t i = 0; i < count_; ++i) {
    if (fibers_[(current + i) % count_].lives) return (current + i) % count_;
  }
  return count_;
}

void Scheduler::deviate(const Schedule& schedule, size_t& next, size_t& current, size_t& killed,
                        Explored& explored) {
  for (; next < schedule.size() && schedule[next].at == trace_.size(); ++next) {
    Fiber& fiber = fibers_[schedule[next].actor];
    if (!fiber.lives) continue;
    switch (schedule[next].what) {
      case Otherwise::kGo:
        current = schedule[next].actor;
        break;
      case Otherwise::kHold:
        fiber.holds = fiber.at_store;
        ++explored.held;
        break;
      case Otherwise::kKill:
        kill(fiber);
        ++killed;
        ++explored.kills;
    }
  }
}

void Scheduler::run(const Schedule& schedule, Explored& explored) {
  mistake_.clear();
  trace_.clear();
  std::vector<Actor> actors = stage_->begin();
  start(actors);
  size_t next = 0, current = 0, killed = 0;
  while (mistake_.empty()) {
    current = living_after(current);
    if (current == count_) break;
    deviate(schedule, next, current, killed, explored);
    current = living_after(current);
    if (current == count_) break;
    Fiber& fiber = fibers_[current];
    uint8_t living = 0;
    for (size_t i = 0; i < count_; ++i) living |= static_cast<uint8_t>(fibers_[i].lives << i);
    trace_.push_back({static_cast<uint8_t>(current), fiber.at_store, living});
    if (trace_.size() > kMostSteps) mistake("no end");
    enter_fiber(fiber);
    if (!fiber.lives) commit(fiber);
  }
  ++explored.schedules;
  explored.steps += trace_.size();
  try {
    if (mistake_.empty()) stage_->check(killed);
  } catch (const std::exception& error) {
    mistake(error.what());
  }
  if (mistake_.empty()) return;
  std::ostringstream text;
  for (const Deviation& one : schedule) {
    constexpr const char* kWords[] = {"go", "kill", "hold"};
    text << "at " << one.at << " " << kWords[static_cast<size_t>(one.what)] << " " << int{one.actor}
         << "; ";
  }
  explored.bad.push_back(text.str() + mistake_);
}

void Scheduler::add_children(const Schedule& schedule, std::vector<Schedule>& waiting) const {
  bool killed = false;
  for (const Deviation& one : schedule) killed = killed || one.what == Otherwise::kKill;
  const auto add = [&](uint32_t at, Otherwise what, size_t actor) {
    waiting.push_back(schedule);
    waiting.back().push_back({at, what, static_cast<uint8_t>(actor)});
  };
  // Behind a store that is held back the same step may be left.
  const bool holds = !schedule.empty() && schedule.back().what == Otherwise::kHold;
  const size_t begin = schedule.empty() ? 0 : schedule.back().at + (holds ? 0 : 1);
  for (size_t i = begin; i < trace_.size(); ++i) {
    const Step& step = trace_[i];
    const auto at = static_cast<uint32_t>(i);
    if (step.at_store && !(holds && i == begin)) add(at, Otherwise::kHold, step.actor);
    if (!killed) add(at, Otherwise::kKill, step.actor);
    for (size_t other = 0; other < count_; ++other) {
      if (other != step.actor && (step.living >> other & 1) != 0) add(at, Otherwise::kGo, other);
    }
  }
}

Explored Scheduler::explore(const Stage& stage, size_t bound) {
  stage_ = &stage;
  Explored explored;
  std::vector<Schedule> waiting{Schedule{}};
  while (!waiting.empty() && explored.bad.size() < kMostBad) {
    const Schedule schedule = std::move(waiting.back());
    waiting.pop_back();
    const size_t bad = explored.bad.size();
    run(schedule, explored);
    if (explored.bad.size() == bad && schedule.size() < bound) add_children(schedule, waiting);
  }
  return explored;
}

bool is_release(std::memory_order order) {
  return scheduler().stage().defect != Defect::kNoRelease && order != std::memory_order_relaxed &&
         order != std::memory_order_acquire && order != std::memory_order_consume;
}

}  // namespace

Explored explore(const Stage& stage, size_t bound) { return scheduler().explore(stage, bound); }

void step_here() noexcept {
  if (scheduler().running() != nullptr) scheduler().wait();
}

void step_load(const void*) noexcept { step_here(); }

void step_claim() noexcept { step_here(); }

bool takes_anyway() noexcept {
  return scheduler().running() != nullptr && scheduler().stage().defect == Defect::kTakenByTwo;
}

bool step_store(void* at, const void* value, size_t size, std::memory_order order) noexcept {
  Fiber* const fiber = scheduler().running();
  if (fiber == nullptr) return true;
  scheduler().wait(true);
  if (is_release(order)) scheduler().commit(*fiber);
  if (!fiber->holds) {
    // Stores to one place keep their order.
    for (HeldStore& one : fiber->held) {
      if (one.at == at) std::memcpy(&one.value, value, size);
    }
    return true;
  }
  HeldStore held{at, size, 0};
  std::memcpy(&held.value, value, size);
  fiber->held.push_back(held);
  return false;
}

void step_change(const void*, std::memory_order order) noexcept {
  Fiber* const fiber = scheduler().running();
  if (fiber == nullptr) return;
  scheduler().wait();
  if (is_release(order)) scheduler().commit(*fiber);
}

// Here the words are published: what should have been there before is written now.
void stepped_change_ended() noexcept {
  Fiber* const fiber = scheduler().running();
  if (fiber == nullptr) return;
  std::vector<Write> postponed = std::move(fiber->postponed);
  fiber->postponed.clear();
  for (const Write& one : postponed) {
    scheduler().wait();
    static_cast<void>(::pwrite(one.descriptor, one.bytes.data(), one.bytes.size(), one.offset));
  }
}

bool held_back(const void* at, void* value, size_t size) noexcept {
  const Fiber* const fiber = scheduler().running();
  if (fiber == nullptr) return false;
  for (size_t i = fiber->held.size(); i-- > 0;) {
    if (fiber->held[i].at != at) continue;
    std::memcpy(value, &fiber->held[i].value, size);
    return true;
  }
  return false;
}

ssize_t write_in_steps(int descriptor, const void* bytes, size_t size, off_t offset) noexcept {
  Fiber* const fiber = scheduler().running();
  if (fiber == nullptr) return ::pwrite(descriptor, bytes, size, offset);
  const auto* const data = static_cast<const uint8_t*>(bytes);
  if (scheduler().stage().defect == Defect::kPublishedFirst) {
    fiber->postponed.push_back({descriptor, {data, data + size}, offset});
    return static_cast<ssize_t>(size);
  }
  const std::pair<off_t, off_t> range{offset, offset + static_cast<off_t>(size)};
  const size_t half = size / 2;
  scheduler().wait();
  if (scheduler().stage().one_writer &&
      scheduler().is_written_by_another(range.first, range.second)) {
    scheduler().mistake("two actors write to one place at a time");
  }
  fiber->writing = range;
  if (half > 0 && ::pwrite(descriptor, data, half, offset) != static_cast<ssize_t>(half)) return -1;
  scheduler().wait();
  const ssize_t rest =
      ::pwrite(descriptor, data + half, size - half, offset + static_cast<off_t>(half));
  fiber->writing = {};
  return rest < 0 ? rest : static_cast<ssize_t>(half) + rest;
}

}  // namespace fastload::test
