// What a cache file counts, and what it says of a record that could not be stored.
#include <algorithm>
#include <atomic>
#include <string>
#include <system_error>

#include "base/error.h"
#include "cache/cache_file.h"

namespace fastload {

void CacheFile::check_stored(uint64_t id) const {
  if (is_ready(id)) return;
  const int error = write_error_;
  const std::string reason =
      error == 0 ? ". Is the file writable, and of this set?"
                 : ": " + std::generic_category().message(error) +
                       ". Others have taken the memory: 'df' and 'fastload cache ls' show what is "
                       "held.";
  throw Error(ErrorKind::kIo,
              "sample " + std::to_string(id) + " cannot be written to " + path_ + reason);
}

CacheFile::Tally& CacheFile::tally() noexcept {
  static std::atomic<size_t> threads{0};
  thread_local const size_t mine = threads.fetch_add(1, std::memory_order_relaxed);
  return tallies_[mine % tallies_.size()];
}

CacheFile::Counts CacheFile::counts() const {
  Counts counts;
  for (const Tally& tally : tallies_) {
    counts.hits += tally.hits;
    counts.misses += tally.misses;
  }
  counts.stored = stored_;
  counts.damaged = damaged_;
  counts.failed = failed_;
  counts.transcoded = transcoded_;
  counts.as_they_are = as_they_are_;
  counts.transcode_ns = transcode_ns_;
  counts.ready_records = std::atomic_ref(live().ready_records).load();
  counts.ready_bytes = std::atomic_ref(live().ready_bytes).load();
  counts.reserved_bytes = std::min(header_.file_size, std::atomic_ref(live().reserved).load());
  return counts;
}

uint64_t CacheFile::count_ready() const noexcept {
  uint64_t ready = 0;
  for (uint64_t id = 0; id < size(); ++id) ready += is_ready(id) ? 1 : 0;
  return ready;
}

}  // namespace fastload
