#include "engine/transcoder.h"

#include <exception>
#include <mutex>
#include <utility>

namespace fastload {

Transcoder::Transcoder(Pool& pool, const DecodeLimits& limits, int limit, int seats)
    : Client(limit, seats, true), pool_(pool), limits_(limits) {
  pool_.attach(*this);
}

void Transcoder::offer(const std::shared_ptr<CoefficientCache>& cache, uint64_t id,
                       const Record& record, Bytes bytes) noexcept {
  if (!cache->wants(id)) return;
  if (!cache->take(id)) {  // it has waited for an epoch
    Waiting one;
    if (take(one)) put(*one.cache, one.id, one.record, one.bytes, at_once_);
    return;
  }
  try {
    if (queue(cache, id, record, bytes)) return;
  } catch (const std::exception&) {
    // No memory for a copy.
  }
  put(*cache, id, record, bytes, at_once_);
}

void Transcoder::put(CoefficientCache& cache, uint64_t id, const Record& record, Bytes bytes,
                     std::atomic<uint64_t>& count) noexcept {
  try {
    cache.put(id, record, bytes, limits_);
    count.fetch_add(1, std::memory_order_relaxed);
  } catch (const std::exception&) {
    cache.drop(id);  // no memory: the record is offered again when it is needed again
  }
}

// False: what waits takes all the memory that it may.
bool Transcoder::queue(const std::shared_ptr<CoefficientCache>& cache, uint64_t id,
                       const Record& record, Bytes bytes) {
  {
    const std::lock_guard lock(pool_.mutex());
    if (closing_) return true;
    if (bytes_ + bytes.size() > kMostBytes) return false;
    bytes_ += bytes.size();
  }
  Waiting one{cache, id, record, {}};
  try {
    one.bytes.assign(bytes.begin(), bytes.end());
    const std::lock_guard lock(pool_.mutex());
    if (closing_) return true;
    waiting_.push_back(std::move(one));
    pool_.work_added();
  } catch (...) {
    const std::lock_guard lock(pool_.mutex());
    bytes_ -= bytes.size();
    throw;
  }
  return true;
}

bool Transcoder::take(Waiting& one) {
  const std::lock_guard lock(pool_.mutex());
  if (!has_work()) return false;
  one = std::move(waiting_.front());
  waiting_.pop_front();
  bytes_ -= one.bytes.size();
  return true;
}

void Transcoder::work(int, Scratch&) noexcept {
  Waiting one;
  while (take(one)) {
    put(*one.cache, one.id, one.record, one.bytes, spare_);
    if (should_leave()) return;
  }
}

void Transcoder::close() {
  if (closed_) return;
  {
    const std::lock_guard lock(pool_.mutex());
    closing_ = true;
    dropped_.swap(waiting_);
    bytes_ = 0;
  }
  pool_.detach(*this);
  dropped_.clear();
  closed_ = true;
}

Transcoder::Counts Transcoder::counts() {
  const std::lock_guard lock(pool_.mutex());
  return {waiting_.size(), bytes_, spare_, at_once_};
}

}  // namespace fastload
