#include "io/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "io/file.h"

namespace fastload {

Mapping::Mapping(const std::string& path) {
  const File file(path);
  size_ = file.size();
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) throw_system_error("cannot map", path);
  data_ = static_cast<const uint8_t*>(address);
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
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

}  // namespace fastload
