// The files that processes of a node share, over arbitrary bytes: the node cache's and the disk
// tier's table, which other processes write to and crashes leave in any state. Whatever is found is
// where this file's own, plain reading of the layout (FORMAT.md) finds it, and what was stored is
// there, or nothing is.
//
// Input: 16 control bytes (which file; see Fix; how it is opened; sample ids; lengths), then its
// parts back to back, without the zeros between them: of a cache the header, the live words, what
// follows; of a tier the header, the classes, the live words, what follows.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "cache/cache_file.h"
#include "cache/disk_tier.h"
#include "cache/pixel_cache.h"
#include "paged_input.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;

constexpr size_t kControl = 16;
constexpr uint64_t kMostBytes = uint64_t{1} << 20;  // of a tier's slots
enum FixCache : uint8_t { kFixHead = 1, kFixSizes = 2, kFixPlaces = 4, kReadOnly = 8, kAlone = 16 };

// Files of one folder in memory, for all executions.
class Folder {
 public:
  Folder() {
    const char* const memory = "/dev/shm";
    name_ = (std::filesystem::is_directory(memory) ? std::filesystem::path(memory)
                                                   : std::filesystem::temp_directory_path()) /
            "fastload-fuzz-XXXXXX";
    FUZZ_CHECK(::mkdtemp(name_.data()) != nullptr);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(name_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string path(const char* name) const { return name_ + "/" + name; }
  [[nodiscard]] int open(const char* name, int flags) const {
    const int descriptor = ::open(path(name).c_str(), flags | O_CREAT | O_CLOEXEC, 0600);
    FUZZ_CHECK(descriptor >= 0);
    return descriptor;
  }
  void set(const char* name, Bytes bytes, uint64_t size) const {
    const int descriptor = open(name, O_RDWR | O_TRUNC);
    FUZZ_CHECK(::pwrite(descriptor, bytes.data(), bytes.size(), 0) ==
               static_cast<ssize_t>(bytes.size()));
    FUZZ_CHECK(::ftruncate(descriptor, static_cast<off_t>(size)) == 0);
    ::close(descriptor);
  }
  [[nodiscard]] Buffer get(const char* name) const {
    const int descriptor = open(name, O_RDONLY);
    struct stat status {};
    FUZZ_CHECK(::fstat(descriptor, &status) == 0);
    Buffer bytes(static_cast<size_t>(status.st_size));
    FUZZ_CHECK(::pread(descriptor, bytes.data(), bytes.size(), 0) == status.st_size);
    ::close(descriptor);
    return bytes;
  }

 private:
  std::string name_;
};

const Folder& folder() {
  static const Folder one;
  return one;
}

// Puts parts at their offsets; the file ends with the last one, which takes what is left.
Buffer spread(Input& in, std::initializer_list<std::pair<uint64_t, uint64_t>> parts,
              uint64_t rest) {
  Buffer file(rest);
  for (const auto& [offset, size] : parts) {
    const Bytes bytes = in.take(size);
    std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<ptrdiff_t>(offset));
  }
  const Bytes bytes = in.rest();
  file.insert(file.end(), bytes.begin(), bytes.end());
  return file;
}

template <class T>
T value_at(const Buffer& file, uint64_t offset) {
  T value;
  FUZZ_CHECK(has(file, offset, sizeof value));
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

template <class T>
void put(Buffer& file, uint64_t offset, const T& value) {
  if (has(file, offset, sizeof value)) std::memcpy(file.data() + offset, &value, sizeof value);
}

void seal(Buffer& file, const char* magic, uint64_t header_bytes, uint8_t fixes) {
  if ((fixes & kFixHead) == 0) return;
  std::memcpy(file.data(), magic, 8);
  put(file, 8, uint16_t{1});
  put(file, 12, static_cast<uint32_t>(header_bytes));
  put32(file, header_bytes - 4, crc32c(Bytes(file).first(header_bytes - 4)));
}

void fix_cache(Buffer& file, uint8_t fixes) {
  auto header = value_at<CacheHeader>(file, 0);
  if ((fixes & kFixSizes) != 0) {
    header.file_size = file.size();
    header.num_stripes = 0;
    put(file, 0, header);
  }
  for (uint64_t id = 0;
       (fixes & kFixPlaces) != 0 && id < std::min<uint64_t>(header.num_records, 64); ++id) {
    const uint64_t at = header.table_offset + id * sizeof(CacheEntry);
    if (!has(file, at, sizeof(CacheEntry))) break;
    auto entry = value_at<CacheEntry>(file, at);
    seal_places(&entry, 1, id);
    put(file, at, entry);
  }
  // Else memory is reserved by a thread of its own, which this is not about.
  put(file, kCacheHeaderBytes + offsetof(CacheLive, reserved), ~uint64_t{0});
  seal(file, "FLCACHE1", kCacheHeaderBytes, fixes);
}

// What the layout says of a record: an empty range: it has no place.
std::pair<uint64_t, uint64_t> plain_place(const Buffer& file, uint64_t id) {
  const auto header = value_at<CacheHeader>(file, 0);
  const auto entry = value_at<CacheEntry>(file, header.table_offset + id * sizeof(CacheEntry));
  CacheEntry sealed = entry;
  seal_places(&sealed, 1, id);
  const uint64_t end = header.file_size;
  if (entry.offset == kNoRoom || sealed.place_crc != entry.place_crc ||
      entry.offset < header.data_offset || entry.offset > end ||
      entry.length > end - entry.offset) {
    return {};
  }
  return {entry.offset, entry.length};
}

void check_found(const CacheFile& cache, const Buffer& file, uint64_t id) {
  const auto header = value_at<CacheHeader>(file, 0);
  const auto entry = value_at<CacheEntry>(file, header.table_offset + id * sizeof(CacheEntry));
  const auto [offset, room] = plain_place(file, id);
  FUZZ_CHECK(cache.place(id).length == room && cache.place(id).offset == offset);
  const uint64_t length = !cache.has_shorter() ? room : entry.stored <= room ? entry.stored : 0;
  const CacheFile::Found found = cache.look(id);
  FUZZ_CHECK(found.bytes.size() == (entry.state == 1 ? length : 0));
  check_bytes(found.bytes.data(), found.bytes.size(), file, offset);
}

// What was stored is found, in its place, and no byte of another record's changed.
void check_store(CacheFile& cache, const Buffer& before, uint64_t id, size_t length) {
  const auto [offset, room] = plain_place(before, id);
  Buffer record(length);
  for (size_t i = 0; i < length; ++i) record[i] = static_cast<uint8_t>(i * 5 + 3);
  const bool wanted = cache.wants(id);
  FUZZ_CHECK(!wanted || room > 0);
  cache.store(id, record, crc32c(record));
  const Buffer after = folder().get("cache");
  FUZZ_CHECK(after.size() == before.size());
  const auto header = value_at<CacheHeader>(before, 0);
  const uint64_t table_end = header.table_offset + header.num_records * sizeof(CacheEntry);
  // A hostile place may lie in the table, and be the entry itself.
  if (wanted && cache.is_ready(id) &&
      (offset >= table_end || offset + room <= header.table_offset)) {
    const Bytes found = cache.find(id);
    FUZZ_CHECK(found.size() == length && std::equal(found.begin(), found.end(), record.begin()));
  }
  for (uint64_t at = table_end; at < after.size(); ++at) {
    FUZZ_CHECK(after[at] == before[at] || (at >= offset && at < offset + length));
  }
}

void open_cache(Input& in, uint8_t fixes, uint64_t wanted, size_t length) {
  constexpr uint64_t kRest = kCacheHeaderBytes + kCacheLiveBytes;
  Buffer file =
      spread(in, {{0, sizeof(CacheHeader)}, {kCacheHeaderBytes, sizeof(CacheLive)}}, kRest);
  fix_cache(file, fixes);
  folder().set("cache", file, file.size());
  accepted([&] {
    const int access = (fixes & kReadOnly) != 0 ? O_RDONLY : O_RDWR;
    CacheFile cache(folder().open("cache", access), folder().path("cache"));
    FUZZ_CHECK(cache.size() <= file.size() / sizeof(CacheEntry));
    FUZZ_CHECK(cache.is_writable() == ((fixes & kReadOnly) == 0));
    for (const Table table : {Table::kIndex, Table::kEntries}) {
      const Bytes copy = cache.copy(table);
      check_bytes(copy.data(), copy.size(), file, cache.copy_range(table).first);
    }
    FUZZ_CHECK(cache.count_ready() <= cache.size());
    if (cache.size() == 0) return;
    for (const uint64_t id : {wanted % cache.size(), cache.size() - 1})
      check_found(cache, file, id);
    FUZZ_CHECK(cache.look(cache.size()).bytes.empty() && !cache.wants(cache.size()));
    const uint64_t id = wanted % cache.size();
    const bool own = (length & 1) != 0;  // as long as its place
    const size_t size = own ? cache.place(id).length : length;
    if (size <= file.size()) check_store(cache, file, id, size);
    if (cache.is_ready(id)) cache.reject(id);
    FUZZ_CHECK(!cache.is_writable() || !cache.is_ready(id));
  });
}

void fix_tier(Buffer& file, uint8_t fixes) {
  auto header = value_at<TierHeader>(file, 0);
  if ((fixes & kFixSizes) != 0) {
    header.file_size = file.size();
    header.data_size %= kMostBytes;
    header.num_classes %= 5;
    uint64_t slots = 0;
    for (uint32_t i = 0; i < header.num_classes; ++i) {
      const uint64_t at = kTierClassesOffset + i * sizeof(TierClass);
      auto of = value_at<TierClass>(file, at);
      of.first_slot = slots;
      slots += of.num_slots;
      put(file, at, of);
    }
    header.num_slots = slots;
    put(file, 0, header);
  }
  seal(file, "FLTIER01", kTierHeaderBytes, fixes);
}

// A record that is found is in a slot of its length's class that says so, and so does the record.
void check_slot(const Buffer& table, uint64_t id, uint32_t length, uint64_t offset) {
  const auto header = value_at<TierHeader>(table, 0);
  const uint64_t slot = value_at<uint32_t>(table, header.places_offset + 4 * id) - uint64_t{1};
  FUZZ_CHECK(value_at<uint32_t>(table, header.slots_offset + 4 * slot) == id + 1);
  for (uint32_t i = 0; i < header.num_classes; ++i) {
    const auto of = value_at<TierClass>(table, kTierClassesOffset + i * sizeof(TierClass));
    if (slot < of.first_slot || slot - of.first_slot >= of.num_slots) continue;
    FUZZ_CHECK(length <= of.slot_bytes && offset + of.slot_bytes <= header.data_size);
    FUZZ_CHECK(offset == of.data_offset + (slot - of.first_slot) * of.slot_bytes);
    return;
  }
  FUZZ_CHECK(false);
}

void open_tier(Input& in, uint8_t fixes, uint64_t wanted, uint32_t length) {
  constexpr uint64_t kLive = 64, kRest = kTierHeaderBytes + kTierLiveBytes;
  Buffer file = spread(in,
                       {{0, sizeof(TierHeader)},
                        {kTierClassesOffset, 5 * sizeof(TierClass)},
                        {kTierHeaderBytes, 24},
                        {kTierHeaderBytes + offsetof(TierLive, next), kLive}},
                       kRest);
  fix_tier(file, fixes);
  folder().set("tier", file, file.size());
  folder().set("tier.data", {}, value_at<TierHeader>(file, 0).data_size % kMostBytes);
  accepted([&] {
    DiskTier tier(folder().open("tier", O_RDWR), folder().path("tier"), (fixes & kAlone) != 0);
    if (tier.size() == 0) return;
    const uint64_t id = wanted % tier.size();
    if (const auto found = tier.find(id, length)) {
      check_slot(folder().get("tier"), id, length, *found);
      tier.reject(id, *found);
      FUZZ_CHECK(!tier.find(id, length));
    }
    FUZZ_CHECK(!tier.find(tier.size(), length));
    const Buffer record(length, 0x5A);
    tier.store(id, record);
    if (tier.counts().stored == 0) return;
    const auto found = tier.find(id, length);
    if (!found) return;  // a hostile table's two words may be one
    check_slot(folder().get("tier"), id, length, *found);
    const Buffer slots = folder().get("tier.data");
    check_bytes(record.data(), record.size(), slots, *found);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kControl) return 0;
  Input in(Bytes(data, size));
  const bool is_tier = in.coin();
  const uint8_t fixes = in.u8();
  const auto wanted = static_cast<uint64_t>(in.u16());
  const auto length = static_cast<uint32_t>(in.u16());
  in.take(kControl - 6);
  is_tier ? open_tier(in, fixes, wanted, length % 20'000) : open_cache(in, fixes, wanted, length);
  return 0;
}
