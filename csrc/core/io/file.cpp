#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fastload {

void throw_system_error(const std::string& what, const std::string& path) {
  throw Error(ErrorKind::kIo, what + " " + path + ": " + std::strerror(errno));
}

File::File(const std::string& path) : path_(path) {
  do {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw_system_error("cannot open", path);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

uint64_t File::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw_system_error("cannot stat", path_);
  return static_cast<uint64_t>(status.st_size);
}

bool File::is_remote() const {
  // f_type values of statfs(2): NFS, SMB, CIFS, SMB2, FUSE, Lustre, Ceph, AFS, 9P, GPFS.
  constexpr std::array<uint32_t, 10> kRemote{0x6969,     0x517B,     0xFF534D42, 0xFE534D42,
                                             0x65735546, 0x0BD00BD0, 0x00C36400, 0x5346414F,
                                             0x01021997, 0x47504653};
  struct statfs status {};
  if (::fstatfs(descriptor_, &status) != 0) return true;
  const auto type = static_cast<uint32_t>(status.f_type);
  return std::find(kRemote.begin(), kRemote.end(), type) != kRemote.end();
}

void File::read(uint64_t offset, uint8_t* out, size_t length) const {
  size_t done = 0;
  while (done < length) {
    const ssize_t got =
        ::pread(descriptor_, out + done, length - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("cannot read", path_);
    if (got == 0) {
      throw Error(ErrorKind::kTruncated, path_ + " ends at byte " + std::to_string(offset + done) +
                                             ", wanted bytes up to " +
                                             std::to_string(offset + length) + ".");
    }
    done += static_cast<size_t>(got);
  }
}

}  // namespace fastload
