// A file system that does what a test says.
#pragma once

#include <atomic>
#include <cstdint>

namespace fastload::test {

struct FileSystem {
  std::atomic<bool> cold{false};          // nothing is in the page cache
  std::atomic<bool> silent{false};        // preadv2 does not say what is
  std::atomic<bool> foreign{false};       // nor mincore: the files belong to somebody else
  std::atomic<bool> remote{false};        // it is NFS
  std::atomic<size_t> longest{SIZE_MAX};  // bytes that one pread gives
  std::atomic<int> stale{0};              // so many preads fail with ESTALE
  std::atomic<int64_t> bad{-1};           // preads of this byte fail with EIO
  std::atomic<int> delay_us{0};
  std::atomic<uint64_t> preads{0};
  std::atomic<uint64_t> looks{0};  // by preadv2
};
extern FileSystem file_system;  // test_read_ahead.cpp, which defines the calls that it changes

// What the file system does in one test.
struct Reset {
  Reset() { restore(); }
  ~Reset() { restore(); }
  static void restore() {
    file_system.cold = file_system.silent = file_system.remote = file_system.foreign = false;
    file_system.longest = SIZE_MAX;
    file_system.stale = 0;
    file_system.bad = -1;
    file_system.delay_us = 0;
    file_system.preads = file_system.looks = 0;
  }
};

}  // namespace fastload::test
