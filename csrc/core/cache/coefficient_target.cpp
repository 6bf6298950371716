#include "cache/coefficient_target.h"

#include "base/crc32c.h"

namespace fastload {

void CoefficientTarget::put(uint64_t id, const Record& record, Bytes bytes) {
  cache_.put_claimed(id, record, bytes, limits_);
  if (!file_.is_ready(id) && crc32c(bytes) != record.crc32c) throw_lost(id);
  file_.check_stored(id);
}

}  // namespace fastload
