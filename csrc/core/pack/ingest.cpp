#include "pack/ingest.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "base/crc32c.h"
#include "base/error.h"
#include "io/file.h"
#include "pack/source_file.h"

namespace fastload {
namespace {

// Codec, size and flags by the image's own header. Throws Error(kDecode, kLimit).
void describe_image(Bytes bytes, Record& record, const DecodeLimits& limits,
                    const Shown& shown) {
  if (sniff(bytes) == Codec::kUnknown) {
    throw Error(ErrorKind::kDecode,
                "not an image: not " + sniffed_titles() + " by its first bytes");
  }
  const ImageInfo info = shown_info(bytes, probe(bytes), shown);
  const uint64_t pixels = uint64_t{info.width} * info.height;
  if (info.width > limits.max_side || info.height > limits.max_side || pixels > limits.max_pixels) {
    throw Error(ErrorKind::kLimit, "image of " + std::to_string(info.width) + " x " +
                                       std::to_string(info.height) + " pixels; the limits are " +
                                       std::to_string(limits.max_pixels) + " pixels and " +
                                       std::to_string(limits.max_side) + " a side");
  }
  record.width = static_cast<uint16_t>(info.width);
  record.height = static_cast<uint16_t>(info.height);
  record.codec = static_cast<uint8_t>(info.codec);
  record.channels = info.channels;
  record.flags = info.flags;
}

void describe_record(Bytes bytes, Record& record, const DecodeLimits& limits,
                     const Shown& shown) {
  const bool is_raw = record.codec == static_cast<uint8_t>(Codec::kRaw);
  if (!is_raw) describe_image(bytes, record, limits, shown);
  record.crc32c = crc32c(bytes);
}

// Opened only to resolve names below it.
class Folder {
 public:
  explicit Folder(const std::string& path)
      : descriptor_(open_path(path, O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw_system_error("cannot open", path);
  }
  ~Folder() { close(descriptor_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string hex32(uint32_t value) {
  char text[11];
  std::snprintf(text, sizeof(text), "0x%08x", value);
  return text;
}

// The record's bytes, in `scratch`. Throws Error(kIo, kTruncated, kLimit, kDecode).
Bytes read_range(const File& file, const Record& record, std::vector<uint8_t>& scratch) {
  if (record.length == 0) throw Error(ErrorKind::kDecode, "empty record");
  if (record.length > kMaxRecordBytes || record.offset > uint64_t{1} << 62) {
    throw Error(ErrorKind::kLimit, "record of " + std::to_string(record.length) +
                                       " bytes at offset " + std::to_string(record.offset) +
                                       "; the limit is " + std::to_string(kMaxRecordBytes));
  }
  scratch.resize(record.length);
  file.read(record.offset, scratch.data(), record.length);
  return scratch;
}

}  // namespace

IngestResult ingest(const std::string& root, Bytes names, std::span<const uint64_t> ends,
                    std::span<uint8_t> buffer, std::span<Record> records,
                    const DecodeLimits& limits, const Shown& shown) {
  if (ends.size() != records.size()) throw Error(ErrorKind::kValue, "as many records as names");
  const Folder folder(root);
  IngestResult result;
  uint64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] < begin || ends[i] > names.size()) throw Error(ErrorKind::kValue, "ends must rise");
    const std::string name(reinterpret_cast<const char*>(names.data()) + begin, ends[i] - begin);
    begin = ends[i];
    Record& record = records[i];
    record.length = 0;
    try {
      const SourceFile file(folder.descriptor(), name);
      const uint64_t size = file.read_whole(buffer.subspan(result.used), kMaxRecordBytes);
      if (size > buffer.size() - result.used) {
        result.needed = size;
        break;
      }
      describe_record(buffer.subspan(result.used, size), record, limits, shown);
      record.offset = result.used;
      record.length = static_cast<uint32_t>(size);
      result.used += size;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) throw;  // not the file's fault
      result.failures.emplace_back(i, error.what());
    }
    result.done = i + 1;
  }
  return result;
}

Failures describe(Bytes bytes, std::span<Record> records, const DecodeLimits& limits,
                  const Shown& shown) {
  Failures failures;
  for (size_t i = 0; i < records.size(); ++i) {
    Record& record = records[i];
    try {
      if (record.offset > bytes.size() || record.length > bytes.size() - record.offset) {
        throw Error(ErrorKind::kValue, "record outside the buffer");
      }
      if (record.length == 0) throw Error(ErrorKind::kDecode, "empty record");
      describe_record(bytes.subspan(record.offset, record.length), record, limits, shown);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) throw;
      record.length = 0;
      failures.emplace_back(i, error.what());
    }
  }
  return failures;
}

Failures describe_file(const std::string& path, std::span<Record> records,
                       const DecodeLimits& limits, const Shown& shown) {
  const File file(path);
  std::vector<uint8_t> scratch;
  Failures failures;
  for (size_t i = 0; i < records.size(); ++i) {
    Record& record = records[i];
    try {
      describe_record(read_range(file, record, scratch), record, limits, shown);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) throw;
      record.length = 0;
      failures.emplace_back(i, error.what());
    }
  }
  return failures;
}

Failures verify_file(const std::string& path, std::span<const Record> records) {
  const File file(path);
  std::vector<uint8_t> scratch;
  Failures failures;
  for (size_t i = 0; i < records.size(); ++i) {
    try {
      const uint32_t found = crc32c(read_range(file, records[i], scratch));
      if (found == records[i].crc32c) continue;
      failures.emplace_back(
          i, "CRC-32C is " + hex32(found) + ", the index says " + hex32(records[i].crc32c));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) throw;
      failures.emplace_back(i, error.what());
    }
  }
  return failures;
}

}  // namespace fastload
