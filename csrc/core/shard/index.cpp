#include "shard/index.h"

#include "base/error.h"

namespace fastload {

Index::Index(const std::string& path) : file_(path, "FLINDEX1", sizeof(Record)) {}

void Index::check_id(uint64_t id) const {
  if (id < size()) return;
  throw Error(ErrorKind::kValue, "Sample id must be below " + std::to_string(size()) +
                                     ". Found: " + std::to_string(id) + " (" + path() + ").");
}

// The region is aligned to 64 bytes (checked) in a page-aligned map, so the casts are aligned.
const Record& Index::record(uint64_t id) {
  check_id(id);
  const uint64_t begin = file_.header().data_offset + id * sizeof(Record);
  return *reinterpret_cast<const Record*>(file_.checked(begin, sizeof(Record)));
}

std::span<const Record> Index::records() {
  const uint8_t* data = file_.checked(file_.header().data_offset, size() * sizeof(Record));
  return {reinterpret_cast<const Record*>(data), size()};
}

std::string_view Index::key(uint64_t id) {
  check_id(id);
  const Bytes key = file_.variable(id);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace fastload
