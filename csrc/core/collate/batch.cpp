#include "collate/batch.h"

#include <algorithm>
#include <string>

namespace fastload {

uint32_t partners_each(size_t partners, size_t n) {
  if (partners == 0) return 0;
  if (n == 0 || partners % n != 0) {
    throw Error(ErrorKind::kValue, "Samples of a batch of " + std::to_string(n) +
                                       " have equally many partners. Found: " +
                                       std::to_string(partners) + " partners.");
  }
  return static_cast<uint32_t>(partners / n);
}

void check_frames(std::span<const int64_t> partners, std::span<const int64_t> ids,
                  const FieldsPlan& plan) {
  if (!plan.has_windows() || ids.empty()) return;
  const size_t each = partners_each(partners.size(), ids.size());
  if (each < plan.partners()) {
    throw Error(ErrorKind::kValue, "The windows are of " + std::to_string(plan.partners()) +
                                       " partners of each sample. Found: " + std::to_string(each) +
                                       ".");
  }
  for (size_t i = 0; i < partners.size(); ++i) {
    if (ids[i / each] < 0 || partners[i] >= 0) continue;
    throw Error(ErrorKind::kValue, "Each frame of a window is a sample's. Found: partner " +
                                       std::to_string(i % each) + " of sample " +
                                       std::to_string(ids[i / each]) + " is " +
                                       std::to_string(partners[i]) + ".");
  }
}

Batch::Batch(BatchRequest request, const FieldsPlan& plan)
    : request_(std::move(request)), plan_(plan), left_(0) {
  const size_t n = request_.ids.size();
  if (n > (1u << 30)) {
    throw Error(ErrorKind::kValue,
                "A batch must have at most 2^30 samples. Found: " + std::to_string(n));
  }
  const size_t fields = plan_.fields().size();
  if (request_.places.size() != fields || (!request_.draws.empty() && request_.draws.size() != n)) {
    throw Error(ErrorKind::kValue, "A batch of " + std::to_string(n) + " samples has places of " +
                                       std::to_string(fields) + " fields and " + std::to_string(n) +
                                       " draws. Found: " + std::to_string(request_.places.size()) +
                                       " places, " + std::to_string(request_.draws.size()) +
                                       " draws.");
  }
  for (size_t i = 0; i < fields; ++i) check_place(request_.places[i], plan_.fields()[i], n, i);
  partner_count_ = partners_each(request_.partners.size(), n);
  check_frames(request_.partners, request_.ids, plan_);
  left_.store(static_cast<uint32_t>(n), std::memory_order_relaxed);
}

Batch::Range Batch::claim(uint32_t count) {
  uint32_t first = next_.load(std::memory_order_relaxed);
  while (first < size()) {
    const uint32_t last = std::min(size(), first + count);
    if (next_.compare_exchange_weak(first, last, std::memory_order_relaxed)) return {first, last};
  }
  return {size(), size()};
}

bool Batch::finish(uint32_t count) {
  // On x86 this is a locked instruction, which also orders the stores past the caches
  // (store_avx512.cpp).
  return left_.fetch_sub(count, std::memory_order_acq_rel) == count;
}

bool Batch::abandon() {
  const Range rest = claim(size());
  return rest.first < rest.last && finish(rest.last - rest.first);
}

void Batch::blank(uint32_t position) noexcept {
  for (size_t i = 0; i < request_.places.size(); ++i) {
    fill_blank(request_.places[i], plan_.fields()[i], position);
  }
}

void Batch::add_fault(SampleFault fault) {
  const std::lock_guard lock(faults_mutex_);
  faults_.push_back(std::move(fault));
}

void Batch::starve(uint32_t position) noexcept {
  if (id(position) == kElsewhere) return;
  blank(position);
  if (id(position) < 0) return;
  uint32_t first = starved_.load(std::memory_order_relaxed);
  while (position < first && !starved_.compare_exchange_weak(first, position)) {
  }
}

std::vector<SampleFault> Batch::take_faults() {
  const std::lock_guard lock(faults_mutex_);
  if (const uint32_t at = starved_.exchange(kNone); at != kNone) {
    faults_.push_back({at, id(at), ErrorKind::kMemory, "there was no memory to decode it"});
  }
  std::sort(faults_.begin(), faults_.end(),
            [](const auto& a, const auto& b) { return a.position < b.position; });
  return std::move(faults_);
}

}  // namespace fastload
