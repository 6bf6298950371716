// Put before the core's cache sources when they are compiled for fastload_schedule_tests: each
// access to shared memory by std::atomic_ref, each pwrite and each lock of a range becomes a step
// of scheduler.h. The sources are the product's as they are, and the product knows nothing of this.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace fastload::test {

// Each is called before what it says, and returns when the scheduler lets the actor go on.
void step_load(const void* at) noexcept;
// False: the store is being held back; the actor alone sees it.
bool step_store(void* at, const void* value, size_t size, std::memory_order order) noexcept;
void step_change(const void* at, std::memory_order order) noexcept;
void stepped_change_ended() noexcept;
void step_claim() noexcept;
// Defect::kTakenByTwo: a word is changed whatever it is.
bool takes_anyway() noexcept;
// What the actor itself has stored there, and which is being held back.
bool held_back(const void* at, void* value, size_t size) noexcept;
ssize_t write_in_steps(int descriptor, const void* bytes, size_t size, off_t offset) noexcept;

}  // namespace fastload::test

namespace std {

template <class T>
class stepped_ref {  // NOLINT: named and placed so that `std::atomic_ref` can become it
 public:
  explicit stepped_ref(T& at) noexcept : at_(&at) {}
  T load(memory_order = memory_order_seq_cst) const noexcept {
    fastload::test::step_load(at_);
    T value;
    if (fastload::test::held_back(at_, &value, sizeof(T))) return value;
    return atomic_ref<T>(*at_).load();
  }
  void store(T value, memory_order order = memory_order_seq_cst) const noexcept {
    if (fastload::test::step_store(at_, &value, sizeof(T), order)) atomic_ref<T>(*at_).store(value);
  }
  T exchange(T value, memory_order order = memory_order_seq_cst) const noexcept {
    fastload::test::step_change(at_, order);
    const T before = atomic_ref<T>(*at_).exchange(value);
    fastload::test::stepped_change_ended();
    return before;
  }
  T fetch_add(T value, memory_order order = memory_order_seq_cst) const noexcept {
    fastload::test::step_change(at_, order);
    return atomic_ref<T>(*at_).fetch_add(value);
  }
  bool compare_exchange_strong(T& expected, T desired,
                               memory_order order = memory_order_seq_cst) const noexcept {
    fastload::test::step_change(at_, order);
    if (fastload::test::takes_anyway()) expected = atomic_ref<T>(*at_).load();
    const bool done = atomic_ref<T>(*at_).compare_exchange_strong(expected, desired);
    fastload::test::stepped_change_ended();
    return done;
  }

 private:
  T* at_;
};

}  // namespace std

inline ssize_t stepped_pwrite(int descriptor, const void* bytes, size_t size,
                              off_t offset) noexcept {
  return fastload::test::write_in_steps(descriptor, bytes, size, offset);
}
template <class... Arguments>
int stepped_fcntl(int descriptor, int call, Arguments... arguments) noexcept {
  if (call == F_OFD_SETLK) fastload::test::step_claim();
  return ::fcntl(descriptor, call, arguments...);
}

#define atomic_ref stepped_ref
#define pwrite stepped_pwrite
#define fcntl stepped_fcntl
