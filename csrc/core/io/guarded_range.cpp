#include "io/guarded_range.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace fastload {

namespace guarded {
std::atomic<uint64_t> losses{0};
}  // namespace guarded

// A registered range. Slots are never freed, so that the handler may look at any of them.
struct GuardedRange::Slot {
  enum State : uint32_t { kFree, kChanging, kUsed };
  static constexpr size_t kPathBytes = 512;

  std::atomic<uint32_t> state{kFree};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<uintptr_t> lost_from{0};  // address; end: nothing
  std::atomic<bool> writable{false};
  std::array<char, kPathBytes> path{};  // its end, where it is longer
};

namespace {

using Slot = GuardedRange::Slot;

struct Block {
  std::array<Slot, 64> slots;
  std::atomic<Block*> next{nullptr};
};
Block first_block;

struct sigaction before;  // the handler that was there
std::atomic<int> installed{0};
uintptr_t page_size = 4096;

// The used slot that holds an address; nullptr: none. Async-signal-safe.
Slot* find_slot(uintptr_t address) noexcept {
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    for (Slot& slot : block->slots) {
      if (slot.state.load() == Slot::kUsed && address >= slot.begin && address < slot.end) {
        return &slot;
      }
    }
  }
  return nullptr;
}

// True if less of the range is left than was known.
bool note(Slot& slot, uintptr_t from) noexcept {
  uintptr_t lost = slot.lost_from.load();
  while (from < lost) {
    if (slot.lost_from.compare_exchange_weak(lost, from)) return true;
  }
  return false;
}

// Async-signal-safe: mmap() is a system call.
bool replace_rest(Slot& slot, uintptr_t address) noexcept {
  const uintptr_t from = address / page_size * page_size;
  note(slot, from);
  guarded::losses.fetch_add(1);
  const int access = slot.writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const uintptr_t end = (slot.end + page_size - 1) / page_size * page_size;
  void* const zeros = ::mmap(reinterpret_cast<void*>(from), end - from, access,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return zeros != MAP_FAILED;
}

void pass_on(int number, siginfo_t* info, void* context) noexcept {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else if (info->si_code <= 0 && before.sa_handler == SIG_IGN) {
    return;  // sent by somebody, and ignored
  } else {
    // The fault comes again when this returns, and ends the process; what was sent is sent again.
    std::signal(number, SIG_DFL);
    if (info->si_code <= 0) ::raise(number);
  }
}

// Whether the last byte of a range cannot be read, which the system is asked, so that it is no
// fault.
bool has_lost_tail(const Slot& slot) noexcept {
  uint8_t byte = 0;
  const iovec to{&byte, 1};
  const iovec from{reinterpret_cast<void*>(slot.end.load() - 1), 1};
  return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) < 0 && errno == EFAULT;
}

// Whether a file was cut and nobody has met that yet. Async-signal-safe.
bool is_any_cut() noexcept {
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    for (const Slot& slot : block->slots) {
      if (slot.state.load() == Slot::kUsed && has_lost_tail(slot)) return true;
    }
  }
  return false;
}

// A handler that was installed after this one, Python's faulthandler, hands its signal on by
// raise(), which has no address. When both have returned, the read comes again, and the fault with
// it: to this handler then, as that one has put it back. Where another thread has met the cut
// meanwhile, it has been counted.
bool comes_again(const siginfo_t& info) noexcept {
  return info.si_code == SI_TKILL && info.si_pid == ::getpid() &&
         (loss_count() != 0 || is_any_cut());
}

void on_fault(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Slot* const slot = info->si_code > 0 ? find_slot(address) : nullptr;
  const bool settled = slot != nullptr ? replace_rest(*slot, address) : comes_again(*info);
  if (!settled) pass_on(number, info, context);
  errno = error;
}

void install() noexcept {
  int none = 0;
  if (installed.load() != 0 || !installed.compare_exchange_strong(none, 1)) return;
  page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, nullptr, &before);  // known before the new one may need it
  ::sigaction(SIGBUS, &action, nullptr);
}

Slot& take_slot() {
  for (Block* block = &first_block;;) {
    for (Slot& slot : block->slots) {
      uint32_t state = Slot::kFree;
      if (slot.state.compare_exchange_strong(state, Slot::kChanging)) return slot;
    }
    Block* next = block->next.load();
    if (next == nullptr) {
      auto* const fresh = new Block;
      if (!block->next.compare_exchange_strong(next, fresh)) delete fresh;
      next = block->next.load();
    }
    block = next;
  }
}

}  // namespace

namespace guarded {

bool is_lost_slow(const void* begin, size_t size) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const Slot* const slot = find_slot(first);
  return slot != nullptr && first + size > slot->lost_from.load();
}

}  // namespace guarded

void mark_lost(Bytes bytes) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  Slot* const slot = find_slot(first);
  if (slot != nullptr && note(*slot, first)) guarded::losses.fetch_add(1);
}

std::vector<std::string> lost_files() {
  std::vector<std::string> paths;
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    for (const Slot& slot : block->slots) {
      if (slot.state.load() == Slot::kUsed && slot.lost_from < slot.end) {
        paths.emplace_back(slot.path.data());
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

GuardedRange::GuardedRange(const void* begin, size_t size, const std::string& path, bool writable) {
  if (size == 0) return;
  install();
  Slot& slot = take_slot();
  const size_t skipped = path.size() < Slot::kPathBytes ? 0 : path.size() + 1 - Slot::kPathBytes;
  std::memcpy(slot.path.data(), path.c_str() + skipped, path.size() + 1 - skipped);
  slot.begin = reinterpret_cast<uintptr_t>(begin);
  slot.end = slot.begin + size;
  slot.lost_from = slot.end.load();
  slot.writable = writable;
  slot.state = Slot::kUsed;
  slot_ = &slot;
}

GuardedRange::~GuardedRange() {
  if (slot_ != nullptr) slot_->state = Slot::kFree;
}

GuardedRange::GuardedRange(GuardedRange&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)) {}

GuardedRange& GuardedRange::operator=(GuardedRange&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

bool GuardedRange::is_damaged() const noexcept {
  return slot_ != nullptr && slot_->lost_from < slot_->end;
}

}  // namespace fastload
