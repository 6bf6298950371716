// A packed dataset of raw 2x2 pictures in a temporary folder: sample i has the pixels i % 256 and
// the label i.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "decode/decode.h"
#include "shard/index.h"
#include "shard/reader.h"

namespace fastload::test {

inline constexpr size_t kTinyBytes = 2 * 2 * 3;

class TinyDataset {
 public:
  explicit TinyDataset(uint64_t count) {
    std::string name = (std::filesystem::temp_directory_path() / "fastload-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    write_shard(count);
    write_index(count);
    index_ = std::make_unique<Index>(folder_ + "/index.fli");
    reader_ = std::make_unique<Reader>(
        *index_, std::vector<ShardFile>{{folder_ + "/data.bin", count * kTinyBytes}});
  }
  ~TinyDataset() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] Reader* reader() const { return reader_.get(); }

 private:
  static std::vector<uint8_t> pixels(uint64_t i) {
    return std::vector<uint8_t>(kTinyBytes, static_cast<uint8_t>(i));
  }

  static void write(std::ofstream& file, const void* data, size_t size) {
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  }

  void write_shard(uint64_t count) const {
    std::ofstream file(folder_ + "/data.bin", std::ios::binary);
    for (uint64_t i = 0; i < count; ++i) write(file, pixels(i).data(), kTinyBytes);
  }

  // One page: records, then the table of empty keys.
  void write_index(uint64_t count) const {
    std::vector<Record> records(count);
    for (uint64_t i = 0; i < count; ++i) {
      records[i].offset = i * kTinyBytes;
      records[i].length = kTinyBytes;
      records[i].crc32c = crc32c(pixels(i));
      records[i].label = static_cast<int32_t>(i);
      records[i].width = records[i].height = 2;
      records[i].codec = static_cast<uint8_t>(Codec::kRaw);
    }
    constexpr uint64_t kData = 4096;
    const uint64_t table = count * sizeof(Record), size = table + (count + 1) * 8;
    std::vector<uint8_t> data(size);
    std::copy_n(reinterpret_cast<const uint8_t*>(records.data()), table, data.data());
    const uint32_t page_crc = crc32c(data);
    PagedHeader header{};
    std::copy_n("FLINDEX1", 8, header.magic);
    header.major = 1;
    header.header_bytes = sizeof(header);
    header.num_records = count;
    header.data_offset = kData;
    header.data_size = size;
    header.page_bytes = 131072;
    header.table_offset = kData + table;
    header.bytes_offset = header.pages_offset = kData + size;
    header.file_size = kData + size + sizeof(page_crc);
    const auto* crc_bytes = reinterpret_cast<const uint8_t*>(&page_crc);
    header.pages_crc = crc32c({crc_bytes, sizeof(page_crc)});
    header.header_crc = crc32c({reinterpret_cast<const uint8_t*>(&header), sizeof(header) - 4});
    std::ofstream file(folder_ + "/index.fli", std::ios::binary);
    write(file, &header, sizeof(header));
    write(file, std::vector<char>(kData - sizeof(header)).data(), kData - sizeof(header));
    write(file, data.data(), size);
    write(file, &page_crc, sizeof(page_crc));
  }

  std::string folder_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Reader> reader_;
};

}  // namespace fastload::test
