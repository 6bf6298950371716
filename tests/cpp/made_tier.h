// A disk tier made for a test, for the records of a MadeSet.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "cache/disk_tier.h"
#include "check.h"
#include "made_set.h"

namespace fastload::test {

// A tier with slots of 4 KiB and of 8 KiB.
class MadeTier {
 public:
  MadeTier(MadeSet& set, uint64_t small, uint64_t large) : path_(set.path("tier")) {
    TierHeader header{};
    std::memcpy(header.magic, "FLTIER01", 8);
    header.major = 1;
    header.header_bytes = kTierHeaderBytes;
    header.num_records = set.size();
    header.num_slots = small + large;
    header.places_offset = kTierHeaderBytes + kTierLiveBytes;
    header.slots_offset = header.places_offset + 4 * set.size();
    header.file_size = header.slots_offset + 4 * header.num_slots;
    header.data_size = 4096 * small + 8192 * large;
    header.index_digest = set.index().digest();
    header.num_classes = 2;
    const TierClass classes[2] = {{4096, 0, small, 0}, {8192, small, large, 4096 * small}};
    std::vector<uint8_t> file(header.file_size);
    std::memcpy(file.data(), &header, sizeof(header));
    std::memcpy(file.data() + kTierClassesOffset, classes, sizeof(classes));
    const uint32_t crc = crc32c({file.data(), kTierHeaderBytes - 4});
    std::memcpy(file.data() + kTierHeaderBytes - 4, &crc, 4);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()),
               static_cast<std::streamsize>(file.size()));
    std::ofstream(path_ + ".data");
    CHECK_EQ(::truncate((path_ + ".data").c_str(), static_cast<off_t>(header.data_size)), 0);
  }
  [[nodiscard]] std::shared_ptr<DiskTier> attach(bool alone) const {
    return std::make_shared<DiskTier>(::open(path_.c_str(), O_RDWR | O_CLOEXEC), path_, alone);
  }
  // Other bytes in the slots from `offset` on, or in the table.
  void scribble(uint64_t offset, const std::vector<uint8_t>& bytes, bool table = false) const {
    std::fstream file(table ? path_ : path_ + ".data",
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::string path_;
};

}  // namespace fastload::test
