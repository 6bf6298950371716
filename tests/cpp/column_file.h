// A column of values made for a test, in a file that goes away.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "shard/paged_file.h"

namespace fastload::test {

using Octets = std::vector<uint8_t>;

// FORMAT.md, "Columns": a table and bytes for values of differing length (width 0), or values.
class ColumnFile {
 public:
  ColumnFile(const std::vector<Octets>& values, uint32_t width) {
    Octets data;
    if (width == 0) {
      uint64_t end = 0;
      append(data, end);
      for (const Octets& value : values) append(data, end += value.size());
    }
    const uint64_t table_size = data.size();
    for (const Octets& value : values) data.insert(data.end(), value.begin(), value.end());
    PagedHeader header{};
    std::memcpy(header.magic, "FLFIELD1", 8);
    header.major = 1;
    header.header_bytes = sizeof(header);
    header.num_records = values.size();
    header.data_offset = sizeof(header);
    header.data_size = data.size();
    header.page_bytes = 64;
    header.table_offset = sizeof(header) + (width == 0 ? 0 : data.size());
    header.bytes_offset = header.table_offset + table_size;
    header.pages_offset = sizeof(header) + data.size();
    header.spacing = width;
    Octets pages;
    for (size_t at = 0; at < data.size(); at += header.page_bytes) {
      append(pages, crc32c({data.data() + at, std::min<size_t>(64, data.size() - at)}));
    }
    header.file_size = header.pages_offset + pages.size();
    header.pages_crc = crc32c(pages);
    header.header_crc =
        crc32c({reinterpret_cast<const uint8_t*>(&header), sizeof(header) - sizeof(uint32_t)});
    path_ = (std::filesystem::temp_directory_path() / "fastload-XXXXXX").string();
    ::close(::mkstemp(path_.data()));
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    for (const Octets& part : {data, pages}) {
      file.write(reinterpret_cast<const char*>(part.data()),
                 static_cast<std::streamsize>(part.size()));
    }
  }
  ~ColumnFile() { std::filesystem::remove(path_); }
  ColumnFile(const ColumnFile&) = delete;
  ColumnFile& operator=(const ColumnFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  template <class T>
  static void append(Octets& to, const T& value) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&value);
    to.insert(to.end(), bytes, bytes + sizeof(value));
  }

  std::string path_;
};

}  // namespace fastload::test
