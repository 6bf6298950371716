#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fastload {

void throw_system_error(const std::string& what, const std::string& path) {
  const int error = errno;
  throw Error(error == ENOMEM ? ErrorKind::kMemory : ErrorKind::kIo,
              what + " " + path + ": " + std::strerror(error));
}

int open_at(int folder, const std::string& path, int flags, unsigned mode) noexcept {
  int descriptor = -1;
  do {
    descriptor = ::openat(folder, path.c_str(), flags, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

int open_path(const std::string& path, int flags, unsigned mode) noexcept {
  return open_at(AT_FDCWD, path, flags, mode);
}

ssize_t read_up_to(int descriptor, std::span<uint8_t> out, uint64_t offset) noexcept {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor, out.data() + done, out.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

namespace {

// O_NONBLOCK: a FIFO in a file's place must fail, not wait for a writer.
int open_descriptor(const std::string& path, File::Access access) {
  const int flags =
      O_RDONLY | O_CLOEXEC | O_NONBLOCK | (access == File::Access::kDirect ? O_DIRECT : 0);
  const int descriptor = open_path(path, flags);
  if (descriptor < 0) throw_system_error("cannot open", path);
  return descriptor;
}

uint32_t file_system(int descriptor) {
  struct statfs status{};
  return ::fstatfs(descriptor, &status) == 0 ? static_cast<uint32_t>(status.f_type) : 0;
}

}  // namespace

File::File(const std::string& path, Access access)
    : path_(path), access_(access), descriptor_(open_descriptor(path, access)) {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) return;
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    ::close(descriptor_);
    throw Error(ErrorKind::kIo, path + " is no regular file, but a " +
                                    (S_ISFIFO(status.st_mode) ? "FIFO" : "device") +
                                    ". Put the file there that belongs there.");
  }
  opened_size_ = static_cast<uint64_t>(status.st_size);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      access_(other.access_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      opened_size_(other.opened_size_),
      reopened_(other.was_reopened()) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(access_, other.access_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(opened_size_, other.opened_size_);
  reopened_ = other.reopened_.exchange(reopened_);
  return *this;
}

uint64_t File::size() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) throw_system_error("cannot stat", path_);
  return static_cast<uint64_t>(status.st_size);
}

bool File::is_remote() const {
  // f_type values of statfs(2): NFS, SMB, CIFS, SMB2, FUSE, Lustre, Ceph, AFS, 9P, GPFS; 0:
  // unknown.
  constexpr std::array<uint32_t, 11> kRemote{0,          0x6969,     0x517B,     0xFF534D42,
                                             0xFE534D42, 0x65735546, 0x0BD00BD0, 0x00C36400,
                                             0x5346414F, 0x01021997, 0x47504653};
  const uint32_t type = file_system(descriptor_);
  return std::find(kRemote.begin(), kRemote.end(), type) != kRemote.end();
}

bool File::is_in_memory() const {
  const uint32_t type = file_system(descriptor_);
  return type == 0x01021994 || type == 0x858458F6;  // tmpfs, ramfs
}

size_t File::direct_alignment() const {
#ifdef STATX_DIOALIGN
  struct statx status{};
  if (::statx(descriptor_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0 && std::has_single_bit(status.stx_dio_offset_align)) {
    return std::min<size_t>(status.stx_dio_offset_align, kAlignment);
  }
#endif
  return kAlignment;
}

// dup3() puts the new file behind the old descriptor in one step, so that other threads may be
// reading meanwhile.
void File::reopen() const {
  const File fresh(path_, access_);
  if (fresh.opened_size_ != opened_size_) {
    throw Error(ErrorKind::kTruncated, path_ + " was replaced: it has " +
                                           std::to_string(fresh.opened_size_) + " bytes, before " +
                                           std::to_string(opened_size_) +
                                           ". Restore the file, or open the dataset again.");
  }
  reopened_.store(true, std::memory_order_release);
  if (::dup3(fresh.descriptor_, descriptor_, O_CLOEXEC) < 0) {
    throw_system_error("cannot open again", path_);
  }
}

size_t File::read_some(uint64_t offset, uint8_t* out, size_t length) const {
  bool may_reopen = true;
  for (;;) {
    const ssize_t got = ::pread(descriptor_, out, length, static_cast<off_t>(offset));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == ESTALE && std::exchange(may_reopen, false)) {
      reopen();
    } else if (errno != EINTR) {
      throw_system_error("cannot read", path_);
    }
  }
}

void File::read(uint64_t offset, uint8_t* out, size_t length) const {
  for (size_t done = 0; done < length;) {
    const size_t got = read_some(offset + done, out + done, length - done);
    if (got == 0) {
      throw Error(ErrorKind::kTruncated, path_ + " ends at byte " + std::to_string(offset + done) +
                                             ", wanted bytes up to " +
                                             std::to_string(offset + length) + ".");
    }
    done += got;
  }
}

}  // namespace fastload
