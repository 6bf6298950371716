#include "io/cold_file.h"

#include <fcntl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace fastload {
namespace {

// `offset` and `length` grown to whole blocks.
uint64_t begin_of(uint64_t offset, uint64_t block) { return offset / block * block; }
uint64_t end_of(uint64_t offset, uint64_t block) { return begin_of(offset + block - 1, block); }

}  // namespace

ColdFile::ColdFile(const std::string& path) : ColdFile(File(path), path) {}

// What is asked for is read, no more: who reads ahead knows better than the kernel what comes next.
ColdFile::ColdFile(File file, std::string path) : path_(std::move(path)), cached_(std::move(file)) {
  ::posix_fadvise(cached_.descriptor(), 0, 0, POSIX_FADV_RANDOM);
}

bool ColdFile::was_reopened() const {
  const File* direct = direct_.load(std::memory_order_acquire);
  return cached_.was_reopened() || (direct != nullptr && direct->was_reopened());
}

std::optional<bool> ColdFile::is_resident(uint64_t offset) const {
  uint8_t byte = 0;
  const iovec part{&byte, 1};
  const ssize_t got =
      ::preadv2(cached_.descriptor(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (got >= 0) return true;
  if (errno == EAGAIN) return false;
  return std::nullopt;
}

// Remote files are not read past the cache: their O_DIRECT has rules of its own on each file
// system.
const File* ColdFile::direct() {
  if (no_direct_.load(std::memory_order_relaxed)) return nullptr;
  std::call_once(direct_once_, [this] {
    try {
      if (cached_.is_remote()) return;
      direct_file_.emplace(path_, File::Access::kDirect);
      block_ = direct_file_->direct_alignment();
      direct_.store(&*direct_file_, std::memory_order_release);
    } catch (const Error&) {
      direct_file_.reset();  // tmpfs, for one, knows no O_DIRECT
    }
  });
  return direct_.load(std::memory_order_acquire);
}

// False where it must be done through the cache: a short read that is not the file's end, or a file
// system that wants another alignment.
bool ColdFile::read_direct(const File& file, uint64_t begin, size_t length, uint8_t* memory) const {
  try {
    size_t done = 0;
    while (done < length && done % block_ == 0) {
      const size_t left = static_cast<size_t>(end_of(length - done, block_));
      const size_t got = file.read_some(begin + done, memory + done, left);
      if (got == 0) return false;
      done += got;
    }
    return done >= length;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) throw;
    return false;
  }
}

const uint8_t* ColdFile::read(uint64_t offset, size_t length, uint8_t* memory, bool keep) {
  const File* past = keep ? nullptr : direct();
  if (past != nullptr) {  // and block_ is final
    const uint64_t begin = begin_of(offset, block_);
    if (read_direct(*past, begin, offset - begin + length, memory)) {
      return memory + (offset - begin);
    }
  }
  cached_.read(offset, memory, length);
  if (!keep) {
    // What the one way cannot read and the other can: next time the other at once.
    if (past != nullptr) no_direct_.store(true, std::memory_order_relaxed);
    ::posix_fadvise(cached_.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(length),
                    POSIX_FADV_DONTNEED);
  }
  return memory;
}

}  // namespace fastload
