// Takes the memory of a new cache file while it is filled already.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace fastload {

// A thread that reserves a file's bytes (posix_fallocate) from `progress` on, a word in the file
// that says up to where that has been done, so that another process can go on. One alone does so:
// it holds a claim behind the file's end, which the kernel takes back when it dies.
//
// Nobody waits for it. What is written where nothing has been reserved yet takes its memory then;
// without memory the write fails, and the record is not there.
class Reservation {
 public:
  // The descriptor and the word must outlive it. Without a thread to be had nothing is reserved.
  Reservation(int descriptor, uint64_t size, uint64_t& progress);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  void run() const;

  const int descriptor_;
  const uint64_t size_;
  uint64_t& progress_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace fastload
