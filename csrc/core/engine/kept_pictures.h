// Pictures of mosaics that are kept whole, in the size that mosaics take them in: samples that
// follow are put together of them, too.
//
// DESIGN. A kept picture is a function of its record, so it makes no difference to any pixel
// whether one is there: who does not find it decodes it, and nobody waits for somebody else.
// Pictures lie one behind the other in one piece of memory; at its end it goes on at the beginning,
// where the oldest make room, for a sample's others come from the last batches. Where the oldest is
// in use just then, the new one is not kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "transform/buffer.h"

namespace fastload {

// Safe to use from many threads.
class KeptPictures {
 private:
  struct Entry {
    Entry(size_t begin, size_t end) : begin(begin), end(end) {}
    const size_t begin, end;  // in the memory
    uint64_t key = 0;
    bool found = false;          // by its key
    int width = 0, height = 0;   // pixels
    uint8_t* pixels = nullptr;   // rows without gaps
    std::atomic<int> users = 1;  // who reads or writes
  };

 public:
  // A picture in use, which stays as long as this. Must not outlive the object.
  class Use {
   public:
    Use() = default;
    explicit Use(Entry* entry) : entry_(entry) {}
    Use(Use&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
    Use& operator=(Use&& other) noexcept {
      std::swap(entry_, other.entry_);
      return *this;
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (entry_ != nullptr) entry_->users.fetch_sub(1, std::memory_order_release);
    }
    explicit operator bool() const { return entry_ != nullptr; }
    [[nodiscard]] int width() const { return entry_->width; }
    [[nodiscard]] uint8_t* pixels() const { return entry_->pixels; }

   private:
    friend class KeptPictures;
    Entry* entry_ = nullptr;
  };

  // `most`: bytes; 0: nothing is kept.
  explicit KeptPictures(size_t most) : most_(most) {}

  [[nodiscard]] bool any() const { return most_ != 0; }
  // The picture of that key and size, for reading; nothing where it is not there.
  Use find(uint64_t key, int width, int height);
  // One to be filled, for keep(); nothing where there is no room, or no memory. What is not given
  // to keep() is lost.
  Use make(int width, int height, size_t pixel_bytes);
  // The picture, which nobody writes any more, can be found from now on.
  void keep(uint64_t key, const Use& picture);
  // A picture of another kind was used again.
  void count_again() { used_again_.fetch_add(1, std::memory_order_relaxed); }
  // Lets go of all. Nothing is in use.
  void clear();

  // For reading ahead: whether a sample's pictures can be expected when it is its turn, samples
  // being asked for in the order in which they are decoded. From now on they can be; `bytes`: of
  // all of them.
  bool expect(uint64_t sample, size_t bytes);
  // What was asked for is not decoded.
  void expect_none();

  struct Counts {
    uint64_t used_again = 0;  // pictures
    uint64_t bytes = 0;       // now
  };
  [[nodiscard]] Counts counts() const;

 private:
  [[nodiscard]] bool has_room(size_t bytes);
  bool drop_oldest();

  const size_t most_;
  mutable std::mutex mutex_;  // guards the following
  Buffer<uint8_t> memory_;
  std::deque<Entry> entries_;  // the oldest first
  std::unordered_map<uint64_t, Entry*> by_key_;
  size_t next_ = 0;       // where the next one begins
  std::mutex expecting_;  // guards the following
  std::unordered_set<uint64_t> expected_;
  std::deque<std::pair<uint64_t, size_t>> expected_order_;  // samples and their bytes
  size_t expected_bytes_ = 0;
  std::atomic<uint64_t> used_again_{0};
};

}  // namespace fastload
