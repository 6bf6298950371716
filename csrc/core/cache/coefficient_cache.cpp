#include "cache/coefficient_cache.h"

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "decode/orientation.h"
#include "transcode/coefficients.h"

namespace fastload {
namespace {

uint64_t bit_of(uint64_t id) noexcept { return uint64_t{1} << (id % 64); }

uint32_t crc_of(Bytes bytes, const Record& record) noexcept {
  return crc32c(bytes) ^ record.crc32c;
}

// The right to a record's place among processes, which ends with the scope.
class Claim {
 public:
  Claim(CacheFile& file, uint64_t id) : file_(file), id_(id), taken_(file.claim(id, id + 1)) {}
  ~Claim() {
    if (taken_) file_.release(id_, id_ + 1);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  [[nodiscard]] bool is_taken() const { return taken_; }

 private:
  CacheFile& file_;
  const uint64_t id_;
  const bool taken_;
};

}  // namespace

CoefficientCache::CoefficientCache(CacheFile& file, uint64_t records, uint32_t index_digest,
                                   const Shown& shown)
    : file_(file), shown_(shown) {
  if (!file.has_shorter() || file.size() != records || file.index_digest() != index_digest) {
    throw Error(ErrorKind::kValue,
                file.path() + " must be a cache of the tier " + kCoefficientTier +
                    " of this dataset's " + std::to_string(records) + " records. Found: " +
                    std::to_string(file.size()) + " records of tier " + file.header().tier + ".");
  }
  checked_ = std::make_unique<std::atomic<uint64_t>[]>(records / 64 + 1);
  taken_ = std::make_unique<std::atomic<uint64_t>[]>(records / 64 + 1);
}

bool CoefficientCache::take(uint64_t id) noexcept {
  if (!file_.wants(id)) return false;
  return (taken_[id / 64].fetch_or(bit_of(id), std::memory_order_relaxed) & bit_of(id)) == 0;
}

void CoefficientCache::drop(uint64_t id) noexcept {
  taken_[id / 64].fetch_and(~bit_of(id), std::memory_order_relaxed);
}

Bytes CoefficientCache::find(uint64_t id, const Record& record) noexcept {
  const CacheFile::Found found = file_.look(id);
  std::atomic<uint64_t>& word = checked_[id / 64];
  const bool known = (word.load(std::memory_order_relaxed) & bit_of(id)) != 0;
  if (found.bytes.empty() || (!known && crc_of(found.bytes, record) != found.crc32c)) {
    // What has been stored since was not looked at.
    if (found.is_ready) file_.reject(id);
    file_.count_miss();
    return {};
  }
  if (!known) word.fetch_or(bit_of(id), std::memory_order_relaxed);
  file_.count_hit();
  return found.bytes;
}

void CoefficientCache::put(uint64_t id, const Record& record, Bytes bytes,
                           const DecodeLimits& limits) {
  if (file_.wants(id)) {
    const Claim claim(file_, id);
    if (claim.is_taken()) put_claimed(id, record, bytes, limits);
  }
  drop(id);
}

void CoefficientCache::put_claimed(uint64_t id, const Record& record, Bytes bytes,
                                   const DecodeLimits& limits) {
  if (!file_.wants(id)) return;
  const uint64_t start = now_ns();
  std::vector<uint8_t> made;
  const bool is_jpeg = static_cast<Codec>(record.codec) == Codec::kJpeg;
  if (is_jpeg && !(shown_.turned && orientation_of(bytes).turns())) {
    try {
      // The set has the file.
      made = to_coefficients(bytes, CoefficientForm::kFast, limits, CoefficientProof::kPixels);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) throw std::bad_alloc();
    }
  }
  const bool fits = !made.empty() && made.size() <= file_.place(id).length;
  // A mapped file may have lost the bytes meanwhile.
  if (crc32c(bytes) != record.crc32c) return;
  const Bytes stored = fits ? Bytes(made) : bytes;
  file_.store(id, stored, crc_of(stored, record));
  if (!file_.is_ready(id)) return;  // it could not be written, which is counted
  fits ? file_.count_transcoded(now_ns() - start) : file_.count_as_it_is(now_ns() - start);
}

}  // namespace fastload
