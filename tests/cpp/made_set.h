// A dataset made for a test: one shard of random bytes and its index.fli, in a folder that goes
// away.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "decode/decode.h"
#include "shard/index.h"
#include "shard/reader.h"

namespace fastload::test {

class MadeSet {
 public:
  // `count` records of 1 to `longest` bytes, with up to `gap` other bytes between them.
  MadeSet(size_t count, size_t longest, size_t gap) {
    make_folder();
    fill(count, longest, gap);
    finish();
  }
  // These records, back to back; pictures are described.
  explicit MadeSet(const std::vector<std::vector<uint8_t>>& records) {
    make_folder();
    for (const std::vector<uint8_t>& bytes : records) {
      add(bytes);
      describe(bytes, records_.back());
    }
    finish();
  }
  ~MadeSet() {
    reader_.reset();
    index_.reset();
    std::filesystem::remove_all(folder_);
  }
  MadeSet(const MadeSet&) = delete;
  MadeSet& operator=(const MadeSet&) = delete;

  // A new reader, which has opened nothing and checked nothing.
  void open() {
    reader_ = std::make_unique<Reader>(
        *index_, std::vector<ShardFile>{{path("shard"), static_cast<uint64_t>(shard_.size())}});
  }
  // A reader of the same shards that uses a cache.
  void use(std::shared_ptr<KeptRecords> cache) {
    reader_ = std::make_unique<Reader>(*reader_, *index_, std::move(cache));
  }
  Reader& reader() { return *reader_; }
  Index& index() { return *index_; }
  [[nodiscard]] size_t size() const { return records_.size(); }
  [[nodiscard]] const Record& record(size_t id) const { return records_[id]; }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] bool equals(size_t id, Bytes bytes) const {
    return bytes.size() == records_[id].length &&
           std::memcmp(bytes.data(), shard_.data() + records_[id].offset, bytes.size()) == 0;
  }
  // Puts another file with the same size in the shard's place.
  void replace() {
    std::vector<uint8_t> other(shard_.size(), 1);
    write("other", other.data(), other.size());
    std::filesystem::rename(path("other"), path("shard"));
  }
  // Changes a byte of the shard.
  void scribble(uint64_t offset) {
    std::fstream file(path("shard"), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(~shard_[offset]));
  }

 private:
  void make_folder() {
    std::string name = "fastload-test-XXXXXX";
    name = (std::filesystem::temp_directory_path() / name).string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }

  void add(const std::vector<uint8_t>& bytes) {
    Record record{};
    record.offset = shard_.size();
    record.length = static_cast<uint32_t>(bytes.size());
    record.label = static_cast<int32_t>(records_.size());
    record.crc32c = crc32c({bytes.data(), bytes.size()});
    shard_.insert(shard_.end(), bytes.begin(), bytes.end());
    records_.push_back(record);
  }

  static void describe(const std::vector<uint8_t>& bytes, Record& record) {
    if (sniff(bytes) == Codec::kUnknown) return;
    const ImageInfo info = probe(bytes);
    record.codec = static_cast<uint8_t>(info.codec);
    record.width = static_cast<uint16_t>(info.width);
    record.height = static_cast<uint16_t>(info.height);
    record.channels = info.channels;
    record.flags = info.flags;
  }

  void fill(size_t count, size_t longest, size_t gap) {
    std::mt19937 random(7);
    for (size_t i = 0; i < count; ++i) {
      shard_.resize(shard_.size() + random() % (gap + 1));
      std::vector<uint8_t> bytes(1 + random() % longest);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 11);
      add(bytes);
    }
  }

  void finish() {
    write("shard", shard_.data(), shard_.size());
    write_index();
    index_ = std::make_unique<Index>(path("index"));
    open();
  }

  void write_index() const {
    PagedHeader header{};
    std::memcpy(header.magic, "FLINDEX1", 8);
    header.major = 1;
    header.header_bytes = sizeof(header);
    header.num_records = records_.size();
    header.data_offset = sizeof(header);
    header.page_bytes = 4096;
    std::vector<uint8_t> data(records_.size() * sizeof(Record) + (records_.size() + 1) * 8);
    std::memcpy(data.data(), records_.data(), records_.size() * sizeof(Record));
    header.data_size = data.size();
    header.table_offset = sizeof(header) + records_.size() * sizeof(Record);
    header.bytes_offset = sizeof(header) + data.size();
    header.pages_offset = header.bytes_offset;
    std::vector<uint32_t> pages;
    for (size_t begin = 0; begin < data.size(); begin += header.page_bytes) {
      pages.push_back(
          crc32c({data.data() + begin, std::min<size_t>(header.page_bytes, data.size() - begin)}));
    }
    const Bytes table{reinterpret_cast<const uint8_t*>(pages.data()), pages.size() * 4};
    header.file_size = header.pages_offset + table.size();
    header.pages_crc = crc32c(table);
    header.header_crc =
        crc32c({reinterpret_cast<const uint8_t*>(&header), sizeof(header) - sizeof(uint32_t)});
    std::ofstream file(path("index"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file.write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size()));
    file.write(reinterpret_cast<const char*>(table.data()),
               static_cast<std::streamsize>(table.size()));
  }

  void write(const std::string& name, const uint8_t* data, size_t size) const {
    std::ofstream(path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }

  std::string folder_;
  std::vector<uint8_t> shard_;
  std::vector<Record> records_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Reader> reader_;
};

}  // namespace fastload::test
