#include "io/file_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "io/file.h"

namespace fastload {
namespace {

// A file without a name, `size` bytes of which are sure to have room; -1 where that cannot be. Not
// in /tmp, which is often memory itself.
int temporary_file(size_t size) {
  const char* const chosen = std::getenv("TMPDIR");
  const int descriptor =
      open_path(chosen != nullptr ? chosen : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) return -1;
  int error = 0;
  do {
    error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(size));
  } while (error == EINTR);
  if (error == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

}  // namespace

FileBytes::FileBytes(std::unique_ptr<ByteSource> source)
    : source_(std::move(source)), size_(source_->size()), data_(source_->mapping().data()) {
  if (size_ == 0) return;
  if (data_ != nullptr) {
    source_->expect_scattered();
    return;
  }
  reserve();
  if (size_ > kWhole) return;
  try {
    need(0, size_);
  } catch (...) {
    ::munmap(own_, size_);
    throw;
  }
  whole_ = true;
}

FileBytes::~FileBytes() {
  if (own_ != nullptr) ::munmap(own_, size_);
}

void FileBytes::reserve() {
  const int spool = size_ > kInMemory ? temporary_file(size_) : -1;
  const int flags = spool >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, spool, 0);
  if (spool >= 0) ::close(spool);
  if (memory == MAP_FAILED) throw_system_error("no memory for a copy of", source_->name());
  bounded_ = size_ > kInMemory && spool < 0;
  own_ = static_cast<uint8_t*>(memory);
  data_ = own_;
}

bool FileBytes::keep(size_t length) noexcept {
  if (!bounded_) return true;
  size_t kept = kept_.load(std::memory_order_relaxed);
  while (kept + length <= kInMemory) {
    if (kept_.compare_exchange_weak(kept, kept + length, std::memory_order_relaxed)) return true;
  }
  return false;
}

void FileBytes::need(size_t offset, size_t length) {
  if (own_ == nullptr) {
    source_->will_need(offset, length);
  } else if (!whole_) {
    source_->read(offset, length, own_ + offset, true);
  }
}

}  // namespace fastload
