#include "shard/entries.h"

#include "base/error.h"

namespace fastload {

Entries::Entries(const std::string& path, const Index& index)
    : file_(path, "FLENTRY1", 0), damaged_(std::make_shared<std::atomic<uint64_t>>(0)) {
  if (size() == index.size() && file_.header().index_digest == index.digest()) return;
  throw Error(ErrorKind::kFormat, path + " has the entry points of another dataset than " +
                                      index.path() + ". Delete it, or build it again with " +
                                      "'fastload index --entries'.");
}

Bytes Entries::get(uint64_t id, std::vector<uint8_t>& scratch) {
  if (id >= size()) {
    throw Error(ErrorKind::kValue, "Sample id must be below " + std::to_string(size()) +
                                       ". Found: " + std::to_string(id) + " (" + file_.path() +
                                       ").");
  }
  return file_.variable(id, scratch);
}

Bytes Entries::find(uint64_t id, std::vector<uint8_t>& scratch) noexcept {
  try {
    return get(id, scratch);
  } catch (const std::exception&) {
    damaged_->fetch_add(1, std::memory_order_relaxed);
    return {};
  }
}

void Entries::touch(uint64_t id) noexcept {
  constexpr size_t kPage = 4096;
  try {
    std::vector<uint8_t> scratch;
    const Bytes bytes = get(id, scratch);
    for (size_t i = 0; i < bytes.size(); i += kPage) {
      static_cast<void>(*static_cast<const volatile uint8_t*>(bytes.data() + i));
    }
    if (!bytes.empty()) static_cast<void>(*static_cast<const volatile uint8_t*>(&bytes.back()));
  } catch (const std::exception&) {
    return;  // find() will say so
  }
}

}  // namespace fastload
