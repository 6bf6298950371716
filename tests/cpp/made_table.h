// Files as FORMAT.md has them, index.fli and the like, whose parts a test changes before their
// checksums are made.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "shard/paged_file.h"
#include "shard/record.h"

namespace fastload::test {

using Buffer = std::vector<uint8_t>;

inline constexpr uint64_t kData = 4096, kPage = 4096;

template <class T>
Bytes bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof(value)};
}

inline void append(Buffer& to, Bytes more) { to.insert(to.end(), more.begin(), more.end()); }

inline void align(Buffer& to) { to.resize((to.size() + 63) / 64 * 64); }

// num_records + 1 offsets, then at the next multiple of 64 the values. The offsets' own place.
inline uint64_t append_table(Buffer& data, const std::vector<std::string>& values) {
  align(data);
  const uint64_t place = kData + data.size();
  uint64_t end = 0;
  append(data, bytes_of(end));
  for (const std::string& value : values) append(data, bytes_of(end += value.size()));
  align(data);
  for (const std::string& value : values) {
    append(data, {reinterpret_cast<const uint8_t*>(value.data()), value.size()});
  }
  return place;
}

inline uint64_t values_of(uint64_t table, size_t count) {
  return table + ((count + 1) * 8 + 63) / 64 * 64;
}

// A file as FORMAT.md has it, whose parts tests change before its checksums are made.
struct Made {
  PagedHeader header{};
  Buffer data;

  Made(const char* magic, size_t count) {
    std::memcpy(header.magic, magic, 8);
    header.major = 1;
    header.header_bytes = sizeof(header);
    header.num_records = count;
    header.data_offset = kData;
    header.page_bytes = kPage;
  }

  // What follows from the data.
  void lay_out() {
    header.data_size = data.size();
    header.pages_offset = kData + data.size();
    header.file_size = header.pages_offset + pages().size() * 4;
  }

  [[nodiscard]] std::vector<uint32_t> pages() const {
    std::vector<uint32_t> found;
    for (size_t begin = 0; begin < data.size(); begin += kPage) {
      found.push_back(crc32c({data.data() + begin, std::min<size_t>(kPage, data.size() - begin)}));
    }
    return found;
  }

  [[nodiscard]] Buffer file() const {
    const std::vector<uint32_t> table = pages();
    const Bytes crcs{reinterpret_cast<const uint8_t*>(table.data()), table.size() * 4};
    PagedHeader own = header;
    own.pages_crc = crc32c(crcs);
    own.header_crc = crc32c(bytes_of(own).first(sizeof(own) - 4));
    Buffer out;
    append(out, bytes_of(own));
    out.resize(kData);
    append(out, {data.data(), data.size()});
    append(out, crcs);
    return out;
  }
};

inline const std::vector<std::string> kKeys{"a/0.jpg", "", "b/longer.jpg"};

inline Record record_of(size_t id) {
  Record record{};
  record.offset = 1000 * id;
  record.length = static_cast<uint32_t>(10 + id);
  record.label = static_cast<int32_t>(id) - 1;
  return record;
}

inline Made made_index(size_t count = kKeys.size()) {
  Made made("FLINDEX1", count);
  for (size_t id = 0; id < count; ++id) append(made.data, bytes_of(record_of(id)));
  std::vector<std::string> keys = kKeys;
  keys.resize(count, "some");
  made.header.table_offset = append_table(made.data, keys);
  made.header.bytes_offset = values_of(made.header.table_offset, count);
  made.lay_out();
  return made;
}

class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "fastload-test-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string write(const std::string& name, const Buffer& bytes) {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path;
  }

 private:
  std::string path_;
};

}  // namespace fastload::test
