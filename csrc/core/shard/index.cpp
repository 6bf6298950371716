#include "shard/index.h"

#include "base/error.h"

namespace fastload {

Index::Index(const std::string& path) : file_(path, "FLINDEX1", sizeof(Record)) {}

void Index::check_id(uint64_t id) const {
  if (id < size()) return;
  throw Error(ErrorKind::kValue, "Sample id must be below " + std::to_string(size()) +
                                     ". Found: " + std::to_string(id) + " (" + path() + ").");
}

Record Index::record(uint64_t id) {
  check_id(id);
  return file_.value<Record>(file_.header().data_offset + id * sizeof(Record));
}

// The region is aligned to 64 bytes (checked) in a page-aligned map, so the cast is aligned.
std::span<const Record> Index::records(std::vector<Record>& own) {
  const uint64_t begin = file_.header().data_offset, length = size() * sizeof(Record);
  if (const uint8_t* const found = file_.find(begin, length); found != nullptr) {
    return {reinterpret_cast<const Record*>(found), size()};
  }
  own.resize(size());
  file_.read(begin, length, reinterpret_cast<uint8_t*>(own.data()));
  return own;
}

std::string Index::key(uint64_t id) {
  check_id(id);
  std::vector<uint8_t> scratch;
  for (;;) {
    const Bytes key = file_.variable(id, scratch);
    std::string copy(reinterpret_cast<const char*>(key.data()), key.size());
    if (file_.is_there(key)) return copy;
  }
}

}  // namespace fastload
