#include "pack/source_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "io/file.h"

namespace fastload {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::kIo, what + ": " + std::strerror(errno));
}

struct stat status_of(int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) fail("cannot stat the file");
  return status;
}

bool same_version(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

uint64_t checked_size(const struct stat& status, uint64_t max_bytes) {
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::kIo, "not a regular file");
  if (status.st_size == 0) throw Error(ErrorKind::kDecode, "empty file");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > max_bytes) {
    throw Error(ErrorKind::kLimit, "file of " + std::to_string(size) + " bytes; the limit is " +
                                       std::to_string(max_bytes));
  }
  return size;
}

}  // namespace

// O_NONBLOCK: a FIFO among the files must fail, not wait for a writer.
SourceFile::SourceFile(int folder, const std::string& name)
    : descriptor_(open_at(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail("cannot open the file");
}

SourceFile::~SourceFile() { close(descriptor_); }

uint64_t SourceFile::read(std::span<uint8_t> room) const {
  uint64_t done = 0;
  while (done < room.size()) {
    const ssize_t got = ::read(descriptor_, room.data() + done, room.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read the file");
    if (got == 0) break;
    done += static_cast<uint64_t>(got);
  }
  return done;
}

uint64_t SourceFile::read_whole(std::span<uint8_t> room, uint64_t max_bytes) const {
  struct stat before = status_of(descriptor_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const uint64_t size = checked_size(before, max_bytes);
    if (size > room.size()) return size;
    if (attempt > 0 && lseek(descriptor_, 0, SEEK_SET) != 0) fail("cannot seek in the file");
    const uint64_t got = read(room.first(size));
    const struct stat after = status_of(descriptor_);
    if (got == size && same_version(before, after)) return size;
    before = after;
  }
  throw Error(ErrorKind::kIo, "the file changes while it is read");
}

}  // namespace fastload
