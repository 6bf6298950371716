#include "sampler/packing.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

constexpr unsigned kNumberBits = 12;  // of a sample in its window
static_assert(kPackWindow == size_t{1} << kNumberBits);

uint64_t key_of(int32_t room, size_t pack) {
  return static_cast<uint64_t>(static_cast<uint32_t>(room)) << 32 | pack;
}

}  // namespace

void Packer::sort(const PackBounds& bounds, size_t count) {
  order_.resize(count);
  least_ = bounds.most;
  for (size_t i = 0; i < count; ++i) {
    for (size_t bound = 0; bound < bounds.count; ++bound) {
      const int32_t amount = bounds.amounts[bound][i];
      least_[bound] = std::min(least_[bound], amount);
      if (amount >= 0 && amount <= bounds.most[bound]) continue;
      throw Error(ErrorKind::kValue, "An amount of a sample must be from 0 to " +
                                         std::to_string(bounds.most[bound]) +
                                         ". Found: " + std::to_string(amount) + ", number " +
                                         std::to_string(i) + " of its window.");
    }
    const auto left = static_cast<uint64_t>(bounds.most[0] - bounds.amounts[0][i]);
    order_[i] = left << kNumberBits | i;
  }
  std::sort(order_.begin(), order_.end());
}

bool Packer::takes(const PackBounds& bounds, size_t pack, size_t sample) const noexcept {
  for (size_t bound = 1; bound < bounds.count; ++bound) {
    if (rooms_[pack][bound] < bounds.amounts[bound][sample]) return false;
  }
  return true;
}

void Packer::place(const PackBounds& bounds, size_t sample) {
  const int32_t amount = bounds.amounts[0][sample];
  // Those with room come before `found`: the one with the least room and, of equals, the oldest
  // is the last of them.
  auto found = std::partition_point(open_.begin(), open_.end(),
                                    [&](uint64_t key) { return key >= key_of(amount, 0); });
  size_t pack = rooms_.size();
  while (found != open_.begin()) {
    --found;
    const auto number = static_cast<size_t>(*found & 0xFFFFFFFF);
    if (takes(bounds, number, sample)) {
      pack = number;
      break;
    }
  }
  if (pack == rooms_.size()) {
    rooms_.push_back(bounds.most);
    sizes_.push_back(0);
    open_.push_back(0);
    found = open_.end() - 1;
  }
  for (size_t bound = 0; bound < bounds.count; ++bound) {
    rooms_[pack][bound] -= bounds.amounts[bound][sample];
  }
  packs_[sample] = static_cast<uint16_t>(pack);
  ++sizes_[pack];
  for (size_t bound = 0; bound < bounds.count; ++bound) {
    if (rooms_[pack][bound] < least_[bound]) {  // no sample of this window fits any more
      open_.erase(found);
      return;
    }
  }
  const uint64_t key = key_of(rooms_[pack][0], pack);
  if (found + 1 == open_.end() && *found == 0) {  // a new pack: towards the front
    const auto at =
        std::partition_point(open_.begin(), found, [&](uint64_t one) { return one > key; });
    std::copy_backward(at, found, found + 1);
    *at = key;
    return;
  }
  const auto end =
      std::partition_point(found + 1, open_.end(), [&](uint64_t one) { return one > key; });
  std::copy(found + 1, end, found);
  *(end - 1) = key;
}

size_t Packer::pack(const PackBounds& bounds, size_t count) {
  if (count > kPackWindow) {
    throw Error(ErrorKind::kValue, "A window has at most " + std::to_string(kPackWindow) +
                                       " samples. Found: " + std::to_string(count) + ".");
  }
  sort(bounds, count);
  packs_.resize(count);
  open_.clear();
  rooms_.clear();
  sizes_.clear();
  if (count == 0) return 0;
  constexpr uint64_t kNumber = kPackWindow - 1;
  for (const uint64_t key : order_) place(bounds, key & kNumber);
  return rooms_.size();
}

void Packer::list(std::vector<uint32_t>& members, std::vector<uint32_t>& ends) const {
  std::vector<uint32_t> next(sizes_.size());
  ends.resize(sizes_.size());
  uint32_t end = 0;
  for (size_t pack = 0; pack < sizes_.size(); ++pack) {
    next[pack] = end;
    end += sizes_[pack];
    ends[pack] = end;
  }
  members.resize(packs_.size());
  for (size_t i = 0; i < packs_.size(); ++i) {
    members[next[packs_[i]]++] = static_cast<uint32_t>(i);
  }
}

size_t Packer::largest() const noexcept {
  return sizes_.empty() ? 0 : *std::max_element(sizes_.begin(), sizes_.end());
}

std::vector<PackCounts> count_packs(const PackBounds& bounds,
                                    const std::optional<ShuffleKeys>& keys, size_t first,
                                    size_t last) {
  const size_t n = bounds.amounts[0].size();
  const size_t windows = (n + kPackWindow - 1) / kPackWindow;
  if (first > last || last > windows) {
    throw Error(ErrorKind::kValue, "Windows must be from 0 to " + std::to_string(windows) +
                                       ". Found: " + std::to_string(first) + " to " +
                                       std::to_string(last) + ".");
  }
  Packer packer;
  std::vector<PackCounts> counts;
  counts.reserve(last - first);
  std::array<std::vector<int32_t>, kPackBounds> gathered;
  PackBounds window = bounds;
  std::vector<uint64_t> ids;
  std::optional<Shuffle> shuffle;
  if (keys && n != 0) shuffle.emplace(n, *keys);
  for (size_t number = first; number < last; ++number) {
    const size_t begin = number * kPackWindow;
    const size_t count = std::min(kPackWindow, n - begin);
    if (shuffle) {
      ids.resize(count);
      shuffle->ids(begin, ids);
    }
    for (size_t bound = 0; bound < bounds.count; ++bound) {
      if (!shuffle) {
        window.amounts[bound] = bounds.amounts[bound].subspan(begin, count);
        continue;
      }
      gathered[bound].resize(count);
      for (size_t i = 0; i < count; ++i) gathered[bound][i] = bounds.amounts[bound][ids[i]];
      window.amounts[bound] = gathered[bound];
    }
    const size_t packs = packer.pack(window, count);
    counts.push_back({static_cast<uint32_t>(packs), static_cast<uint32_t>(packer.largest())});
  }
  return counts;
}

}  // namespace fastload
