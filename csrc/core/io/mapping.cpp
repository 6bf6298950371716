#include "io/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/file.h"

namespace fastload {
namespace {

// Linux asks the same before mincore() tells about a file (mm/mincore.c, can_do_mincore).
bool may_ask(int descriptor, const std::string& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return false;
  return status.st_uid == ::geteuid() || ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

}  // namespace

Mapping::Mapping(const std::string& path) {
  const File file(path);
  size_ = file.size();
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) throw_system_error("cannot map", path);
  data_ = static_cast<const uint8_t*>(address);
  try {
    guard_ = GuardedRange(data_, size_, path);
  } catch (...) {
    ::munmap(address, size_);
    throw;
  }
  tells_residency_ = may_ask(file.descriptor(), path);
}

Mapping::~Mapping() {
  guard_ = GuardedRange();  // before another mapping may have the addresses
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guard_(std::move(other.guard_)),
      tells_residency_(other.tells_residency_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(guard_, other.guard_);
  std::swap(tells_residency_, other.tells_residency_);
  return *this;
}

void Mapping::advise_random() const {
  if (data_ != nullptr) ::madvise(const_cast<uint8_t*>(data_), size_, MADV_RANDOM);
}

void Mapping::will_need(size_t offset, size_t length) const {
  if (length == 0) return;
  // Hints only, so failure does no harm. The address must be a page's.
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  ::madvise(const_cast<uint8_t*>(data_) + begin, length + (offset - begin), MADV_WILLNEED);
}

bool Mapping::is_resident(size_t offset, size_t length) const {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::array<unsigned char, 64> state{};
  const size_t end = offset + length;
  for (offset = offset / page * page; offset < end; offset += state.size() * page) {
    const size_t count = std::min(state.size(), (end - offset + page - 1) / page);
    state.fill(1);
    ::mincore(const_cast<uint8_t*>(data_) + offset, count * page, state.data());
    for (size_t i = 0; i < count; ++i) {
      if ((state[i] & 1) == 0) return false;
    }
  }
  return true;
}

}  // namespace fastload
