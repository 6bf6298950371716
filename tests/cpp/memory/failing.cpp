// The allocator's functions, defined in the program: shared libraries come to them, too, because
// what a program defines comes first. Under a sanitizer they hand on to its own ones, whose names
// begin with __interceptor_, else to glibc's. operator new goes through malloc, not to the
// sanitizer's, so that one counter sees all; a block that is freed the wrong way is still found,
// by its size and its neighbours.
#include "failing.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

#ifdef SANITIZED
#define BELOW(name) __interceptor_##name
#else
#define BELOW(name) __libc_##name
#endif

extern "C" {
void* BELOW(malloc)(size_t size);
void* BELOW(calloc)(size_t count, size_t size);
void* BELOW(realloc)(void* memory, size_t size);
void BELOW(free)(void* memory);
void* BELOW(memalign)(size_t alignment, size_t size);
}

namespace {

constexpr int64_t kNever = -1;
// Constant from the beginning: the first malloc comes before any constructor.
constinit std::atomic<int64_t> left{kNever};  // allocations that succeed before one fails
constinit std::atomic<bool> lasting{false};   // all after it fail, too
constinit std::atomic<bool> failed{false};
constinit std::atomic<uint64_t> count{0};
constinit std::atomic<int64_t> live{0};

// This thread's allocations do not fail: they are the sanitizer's.
constinit thread_local bool spared = false;

bool fails() noexcept {
  if (left.load() == kNever || spared) return false;
  const int64_t before = left.fetch_sub(1);
  if (before > 0) return false;
  if (before != 0 && !lasting) {
    left = kNever;
    return false;
  }
  failed = true;
  ++count;
  left = lasting ? 0 : kNever;
  errno = ENOMEM;
  return true;
}

void* counted(void* memory) noexcept {
  if (memory != nullptr) live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* aligned(size_t alignment, size_t size) noexcept {
  return fails() ? nullptr : counted(BELOW(memalign)(alignment, size));
}

void* allocate(size_t size, size_t alignment) {
  size = std::max<size_t>(size, 1);
  void* const memory =
      alignment <= alignof(std::max_align_t) ? std::malloc(size) : aligned(alignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

#define OURS __attribute__((visibility("default"), used))

extern "C" {
OURS void* malloc(size_t size) noexcept { return fails() ? nullptr : counted(BELOW(malloc)(size)); }
OURS void* calloc(size_t many, size_t size) noexcept {
  return fails() ? nullptr : counted(BELOW(calloc)(many, size));
}
OURS void* realloc(void* memory, size_t size) noexcept {
  if (memory == nullptr) return malloc(size);
  if (size != 0 && fails()) return nullptr;
  if (size == 0) live.fetch_sub(1, std::memory_order_relaxed);
  return BELOW(realloc)(memory, size);
}
OURS void free(void* memory) noexcept {
  if (memory != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  BELOW(free)(memory);
}
OURS void* memalign(size_t alignment, size_t size) noexcept { return aligned(alignment, size); }
OURS void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return aligned(alignment, size);
}
OURS int posix_memalign(void** to, size_t alignment, size_t size) noexcept {
  void* const memory = aligned(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *to = memory;
  return 0;
}
#ifdef SANITIZED
// What the C library loads when an exception first passes frames of its own (std::call_once's). The
// sanitizer knows the loader's blocks by who called malloc, and that is this file.
OURS const char* __lsan_default_suppressions() { return "leak:_dl_map_object_deps\n"; }

// The sanitizer asks for a new thread's stack, for which glibc takes memory, and ends the process
// where it gets no answer.
OURS int pthread_getattr_np(pthread_t thread, pthread_attr_t* attributes) noexcept {
  const bool before = std::exchange(spared, true);
  static const auto real =
      reinterpret_cast<decltype(&pthread_getattr_np)>(::dlsym(RTLD_NEXT, "pthread_getattr_np"));
  const int result = real(thread, attributes);
  spared = before;
  return result;
}
#endif
}

void* operator new(size_t size) { return allocate(size, 1); }
void* operator new[](size_t size) { return allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace fastload::test {

Failing::Failing(int64_t successes, bool for_good) {
  failed = false;
  lasting = for_good;
  left = successes;
}
Failing::~Failing() { left = kNever; }

bool has_failed() noexcept { return failed; }
uint64_t failures() noexcept { return count; }
int64_t live_blocks() noexcept { return live; }

}  // namespace fastload::test
