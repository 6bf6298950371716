#include "pack/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/file.h"

namespace fastload {
namespace {

class WritableFile {
 public:
  explicit WritableFile(const std::string& path)
      : descriptor_(open_path(path, O_WRONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw_system_error("cannot open", path);
  }
  ~WritableFile() { close(descriptor_); }
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

bool reserve(const std::string& path, uint64_t bytes) {
  const WritableFile file(path);
  while (fallocate(file.descriptor(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO) {
      throw_system_error("cannot reserve " + std::to_string(bytes) + " bytes for", path);
    }
    return false;  // EOPNOTSUPP, ENOSYS: network and old file systems
  }
  return true;
}

void trim(const std::string& path) {
  const WritableFile file(path);
  struct stat status{};
  if (fstat(file.descriptor(), &status) != 0) throw_system_error("cannot trim", path);
  while (ftruncate(file.descriptor(), status.st_size) != 0) {
    if (errno != EINTR) throw_system_error("cannot trim", path);
  }
}

}  // namespace fastload
