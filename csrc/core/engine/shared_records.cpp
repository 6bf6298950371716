#include "engine/shared_records.h"

#include <algorithm>
#include <new>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "decode/rows.h"

namespace fastload {

std::vector<uint8_t> SparePixels::take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    // Not one of a much larger picture.
    const auto fits = [&](const std::vector<uint8_t>& one) {
      return one.size() >= bytes && one.size() / 4 <= bytes;
    };
    const auto found = std::ranges::find_if(free_, fits);
    if (found != free_.end()) {
      std::vector<uint8_t> pixels = std::move(*found);
      bytes_ -= pixels.size();
      std::swap(*found, free_.back());
      free_.pop_back();
      return pixels;
    }
  }
  return std::vector<uint8_t>(bytes);
}

void SparePixels::give(std::vector<uint8_t> pixels) noexcept {
  if (pixels.empty()) return;
  const std::lock_guard lock(mutex_);
  if (bytes_ + pixels.size() > kMostBytes) return;
  try {
    free_.push_back(std::move(pixels));
    bytes_ += free_.back().size();
  } catch (const std::bad_alloc&) {
    return;  // it is let go
  }
}

void SparePixels::clear() {
  const std::lock_guard lock(mutex_);
  free_.clear();
  bytes_ = 0;
}

SharedRecords::SharedRecords(std::span<const int64_t> records, const FieldsPlan& plan,
                             SparePixels& spare)
    : plan_(plan), spare_(spare), slots_(static_cast<uint32_t>(plan.streams().size())) {
  std::unordered_map<int64_t, size_t> first;
  first.reserve(records.size());
  const auto entry_at = [&](size_t place) -> Entry& {
    if (entry_of_.empty()) entry_of_.assign(records.size(), kNone);
    if (entry_of_[place] == kNone) {
      entry_of_[place] = static_cast<uint32_t>(entries_.size());
      entries_.emplace_back(static_cast<uint32_t>(place / slots_),
                            static_cast<uint32_t>(place % slots_));
    }
    return entries_[entry_of_[place]];
  };
  for (size_t place = 0; place < records.size(); ++place) {
    if (records[place] < 0) continue;
    const auto [found, is_first] = first.try_emplace(records[place], place);
    if (is_first) continue;
    Entry& entry = entry_at(found->second);
    entry_of_[place] = entry_of_[found->second];
    ++entry.left_;
    entry.wants_whole = entry.wants_whole || wants_whole(entry, place / slots_, place % slots_);
  }
  if (any()) settled_.resize(records.size() / slots_);
}

// Whether the owner's finished pixels are not enough for a place.
bool SharedRecords::wants_whole(const Entry& entry, size_t position, size_t slot) const {
  const auto can_copy = [&](const FieldsPlan::Frame& frame) {
    return same(entry, frame) != nullptr && (position == entry.position || is_still(frame));
  };
  return !std::ranges::all_of(plan_.streams()[slot].frames, can_copy);
}

const FieldsPlan::Frame* SharedRecords::same(const Entry& entry, FieldsPlan::Frame frame) const {
  const uint32_t view = plan_.fields()[frame.field].view_at(frame.step);
  for (const FieldsPlan::Frame& other : plan_.streams()[entry.slot].frames) {
    if (other.field == frame.field && plan_.fields()[other.field].view_at(other.step) == view) {
      return &other;
    }
  }
  return nullptr;
}

bool SharedRecords::is_still(FieldsPlan::Frame frame) const {
  const FieldPlan& field = plan_.fields()[frame.field];
  return plan_.views()[field.view_at(frame.step)].geometry.is_still() &&
         !plan_.cut(frame.field).spec().works_at_end();
}

SharedRecords::Entry* SharedRecords::entry_of(uint32_t position, uint32_t slot) {
  const uint32_t number = entry_of_[size_t{position} * slots_ + slot];
  return number == kNone ? nullptr : &entries_[number];
}

SharedRecords::Entry* SharedRecords::owned(uint32_t position, uint32_t slot) {
  Entry* const entry = entry_of(position, slot);
  return entry != nullptr && entry->position == position && entry->slot == slot ? entry : nullptr;
}

SharedRecords::Entry* SharedRecords::used(uint32_t position, uint32_t slot) {
  return owned(position, slot) == nullptr ? entry_of(position, slot) : nullptr;
}

void SharedRecords::forget(Entry& entry) noexcept {
  entry.is_made = false;
  entry.has_whole = false;
  bytes_.fetch_sub(entry.pixels_.size(), std::memory_order_relaxed);
  spare_.give(std::exchange(entry.pixels_, {}));
}

void SharedRecords::begin(uint32_t position) {
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    if (Entry* const entry = owned(position, slot)) forget(*entry);
  }
}

bool SharedRecords::reserve(Entry& entry, size_t bytes) {
  if (bytes > kMostBytes - std::min(kMostBytes, bytes_.load(std::memory_order_relaxed))) {
    return false;
  }
  try {
    entry.pixels_ = spare_.take(bytes);
  } catch (const std::bad_alloc&) {
    return false;  // a sample can be made without
  }
  bytes_.fetch_add(entry.pixels_.size(), std::memory_order_relaxed);
  return true;
}

bool SharedRecords::wait(const Entry& entry, uint32_t position) {
  if (entry.position != position) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return settled_[entry.position]; });
  }
  return entry.is_made;
}

void SharedRecords::settle(uint32_t position, bool good) noexcept {
  {
    const std::lock_guard lock(mutex_);
    settled_[position] = true;
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      Entry* const entry = entry_of(position, slot);
      if (entry == nullptr) continue;
      --entry->left_;
      if (entry->left_ == 0 || (!good && owned(position, slot) != nullptr)) forget(*entry);
    }
  }
  changed_.notify_all();
}

void leave_first(std::vector<int64_t>& records) {
  std::unordered_set<int64_t> seen;
  seen.reserve(records.size());
  for (int64_t& record : records) {
    if (record >= 0 && !seen.insert(record).second) record = -1;
  }
}

}  // namespace fastload
