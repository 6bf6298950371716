// Takes the memory of a new cache file while it is filled already.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace fastload {

// Bytes [begin, end) of a cache, and the file that holds them.
struct Segment {
  uint64_t begin, end;
  int descriptor;
};

// A thread that reserves a cache's bytes (posix_fallocate) from `progress` on, a word in the cache
// that says up to where that has been done, so that another process can go on. One alone does so:
// it holds a claim behind the cache's end, which the kernel takes back when it dies.
//
// Nobody waits for it. What is written where nothing has been reserved yet takes its memory then;
// without memory the write fails, and the record is not there.
class Reservation {
 public:
  // Segments in ascending order, without gaps. Claims are made with the first one's descriptor. The
  // descriptors and the word must outlive it. Without a thread to be had nothing is reserved.
  Reservation(std::vector<Segment> segments, uint64_t& progress);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

 private:
  void run() const;
  void reserve() const;

  const std::vector<Segment> segments_;
  uint64_t& progress_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace fastload
