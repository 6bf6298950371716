#include "engine/kept_pictures.h"

#include <new>

#include "base/row_sink.h"

namespace fastload {

KeptPictures::Use KeptPictures::find(uint64_t key, int width, int height) {
  if (!any()) return {};
  const std::lock_guard lock(mutex_);
  const auto place = by_key_.find(key);
  if (place == by_key_.end()) return {};
  Entry& entry = *place->second;
  if (entry.width != width || entry.height != height) return {};
  entry.users.fetch_add(1, std::memory_order_relaxed);
  used_again_.fetch_add(1, std::memory_order_relaxed);
  return Use(&entry);
}

KeptPictures::Use KeptPictures::make(int width, int height, size_t pixel_bytes) {
  constexpr size_t kAligned = 64;
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height) * pixel_bytes;
  const size_t bytes = (pixels + RowSink::kSlack + kAligned - 1) / kAligned * kAligned;
  if (bytes > most_) return {};
  const std::lock_guard lock(mutex_);
  try {
    memory_.reserve(most_);
    while (!has_room(bytes)) {
      if (!drop_oldest()) return {};
    }
    Entry& entry = entries_.emplace_back(next_, next_ + bytes);
    entry.width = width;
    entry.height = height;
    entry.pixels = memory_.data() + next_;
    next_ += bytes;
    return Use(&entry);
  } catch (const std::bad_alloc&) {
    return {};  // a sample can be made without
  }
}

// Whether so many bytes are free at next_, which goes to the beginning where the rest is too small.
bool KeptPictures::has_room(size_t bytes) {
  if (entries_.empty()) {
    next_ = 0;
    return true;
  }
  const size_t oldest = entries_.front().begin;
  if (next_ <= oldest) return bytes <= oldest - next_;  // only what lies before the oldest
  if (bytes <= most_ - next_) return true;
  if (bytes > oldest) return false;
  next_ = 0;
  return true;
}

// False: it is in use.
bool KeptPictures::drop_oldest() {
  Entry& oldest = entries_.front();
  if (oldest.users.load(std::memory_order_acquire) != 0) return false;
  if (oldest.found) by_key_.erase(oldest.key);
  entries_.pop_front();
  return true;
}

void KeptPictures::keep(uint64_t key, const Use& picture) {
  const std::lock_guard lock(mutex_);
  // Another thread may have decoded the same meanwhile.
  Entry& entry = *picture.entry_;
  entry.key = key;
  try {
    entry.found = by_key_.emplace(key, &entry).second;
  } catch (const std::bad_alloc&) {
    entry.found = false;
  }
}

void KeptPictures::clear() {
  const std::lock_guard lock(mutex_);
  by_key_.clear();
  entries_.clear();
  memory_.trim(0);
  next_ = 0;
}

bool KeptPictures::expect(uint64_t sample, size_t bytes) {
  if (!any()) return false;
  // Threads do not end in the order in which they begin: the oldest may be gone sooner.
  const size_t most = most_ / 8 * 7;
  const std::lock_guard lock(expecting_);
  if (expected_.contains(sample)) return true;
  if (bytes > most) return false;
  while (expected_bytes_ + bytes > most) {
    const auto [oldest, size] = expected_order_.front();
    expected_order_.pop_front();
    expected_.erase(oldest);
    expected_bytes_ -= size;
  }
  expected_order_.emplace_back(sample, bytes);
  expected_.insert(sample);
  expected_bytes_ += bytes;
  return false;
}

void KeptPictures::expect_none() {
  const std::lock_guard lock(expecting_);
  expected_.clear();
  expected_order_.clear();
  expected_bytes_ = 0;
}

KeptPictures::Counts KeptPictures::counts() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.end - entry.begin;
  return {used_again_.load(std::memory_order_relaxed), bytes};
}

}  // namespace fastload
