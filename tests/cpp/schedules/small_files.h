// The smallest cache file and the smallest disk tier: a few records of a few bytes, made anew for
// each schedule.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "cache/cache_file.h"
#include "cache/disk_tier.h"
#include "check.h"

namespace fastload::test {

inline constexpr size_t kRecords = 3;
inline constexpr uint32_t kBytes = 12;  // of a record; as pixels 2 x 2

// The bytes of a record.
inline std::vector<uint8_t> record_bytes(uint64_t id) {
  std::vector<uint8_t> bytes(kBytes);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<uint8_t>(16 * (id + 1) + i);
  return bytes;
}
inline uint32_t record_crc(uint64_t id) { return crc32c(record_bytes(id)); }

class SmallFolder {
 public:
  SmallFolder() {
    const bool memory = std::filesystem::is_directory("/dev/shm");
    std::string name = memory ? "/dev/shm/fastload-steps-XXXXXX"
                              : (std::filesystem::temp_directory_path() / "steps-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail(__FILE__, __LINE__, "mkdtemp");
    path_ = name;
  }
  ~SmallFolder() { std::filesystem::remove_all(path_); }
  SmallFolder(const SmallFolder&) = delete;
  SmallFolder& operator=(const SmallFolder&) = delete;
  [[nodiscard]] std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Writes a whole file; it has no other bytes before and behind.
inline void write_file(const std::string& path, const std::vector<uint8_t>& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const ssize_t done = ::write(file, bytes.data(), bytes.size());
  ::close(file);
  CHECK_EQ(done, static_cast<ssize_t>(bytes.size()));
}

class SmallCache {
 public:
  static constexpr uint64_t kTable = kCacheHeaderBytes + kCacheLiveBytes, kCopy = kTable + 4096,
                            kData = kCopy + 4096, kSize = kData + kRecords * kBytes;

  explicit SmallCache(const std::string& tier) : image_(kSize) {
    CacheHeader header{};
    std::memcpy(header.magic, "FLCACHE1", 8);
    header.major = 1;
    header.header_bytes = kCacheHeaderBytes;
    header.file_size = kSize;
    header.num_records = header.room_records = kRecords;
    header.table_offset = kTable;
    header.index_offset = kCopy;
    header.index_size = 8;
    header.entries_offset = header.data_offset = kData;
    header.data_size = kRecords * kBytes;
    std::memcpy(header.tier, tier.data(), tier.size());
    std::vector<CacheEntry> entries(kRecords);
    for (size_t i = 0; i < kRecords; ++i) {
      entries[i].offset = kData + i * kBytes;
      entries[i].length = kBytes;
      entries[i].width = entries[i].height = 2;
    }
    seal_places(entries.data(), kRecords, 0);
    std::memcpy(image_.data(), &header, sizeof(header));
    const uint32_t crc = crc32c({image_.data(), kCacheHeaderBytes - 4});
    std::memcpy(image_.data() + kCacheHeaderBytes - 4, &crc, sizeof(crc));
    std::memcpy(image_.data() + kTable, entries.data(), kRecords * sizeof(CacheEntry));
    CacheLive live{};
    live.reserved = kSize;  // no thread takes memory
    std::memcpy(image_.data() + kCacheHeaderBytes, &live, sizeof(live));
  }
  // As it was made; nobody is attached.
  void reset() const { write_file(path(), image_); }
  // With a record that is ready, and is not what it should be.
  void reset_damaged(uint64_t id) const {
    std::vector<uint8_t> image = image_;
    CacheEntry entry{};
    uint8_t* const at = image.data() + kTable + id * sizeof(entry);
    std::memcpy(&entry, at, sizeof(entry));
    entry.state = 1;
    entry.crc32c = record_crc(id);
    std::memcpy(at, &entry, sizeof(entry));
    write_file(path(), image);
  }
  // As another process does.
  [[nodiscard]] std::shared_ptr<CacheFile> attach() const {
    return std::make_shared<CacheFile>(::open(path().c_str(), O_RDWR | O_CLOEXEC), path());
  }
  [[nodiscard]] std::string path() const { return folder_.file("cache"); }

 private:
  SmallFolder folder_;
  std::vector<uint8_t> image_;
};

// With fewer slots than records.
class SmallTier {
 public:
  static constexpr uint64_t kSlots = 2, kPlaces = kTierHeaderBytes + kTierLiveBytes,
                            kWords = kPlaces + 4 * kRecords;

  SmallTier() : image_(kWords + 4 * kSlots) {
    TierHeader header{};
    std::memcpy(header.magic, "FLTIER01", 8);
    header.major = 1;
    header.header_bytes = kTierHeaderBytes;
    header.num_records = kRecords;
    header.num_slots = kSlots;
    header.places_offset = kPlaces;
    header.slots_offset = kWords;
    header.file_size = image_.size();
    header.data_size = 4096 * kSlots;
    header.num_classes = 1;
    const TierClass of{4096, 0, kSlots, 0};
    std::memcpy(image_.data(), &header, sizeof(header));
    std::memcpy(image_.data() + kTierClassesOffset, &of, sizeof(of));
    const uint32_t crc = crc32c({image_.data(), kTierHeaderBytes - 4});
    std::memcpy(image_.data() + kTierHeaderBytes - 4, &crc, 4);
  }
  void reset() const {
    write_file(path(), image_);
    write_file(path() + ".data", {});
    CHECK_EQ(::truncate((path() + ".data").c_str(), 4096 * kSlots), 0);
  }
  [[nodiscard]] std::shared_ptr<DiskTier> attach(bool alone) const {
    return std::make_shared<DiskTier>(::open(path().c_str(), O_RDWR | O_CLOEXEC), path(), alone);
  }
  // The words of the slots.
  [[nodiscard]] std::vector<uint32_t> words() const {
    std::vector<uint32_t> words(kSlots);
    const int file = ::open(path().c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t got = ::pread(file, words.data(), 4 * kSlots, kWords);
    ::close(file);
    CHECK_EQ(got, static_cast<ssize_t>(4 * kSlots));
    return words;
  }
  [[nodiscard]] std::string path() const { return folder_.file("tier"); }

 private:
  SmallFolder folder_;
  std::vector<uint8_t> image_;
};

}  // namespace fastload::test
