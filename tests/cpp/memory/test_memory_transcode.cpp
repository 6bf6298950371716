// What packing and the cache of coefficients make of files, without memory: a lack is never the
// file's fault, or a file would be packed otherwise, or left out.
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>

#include "../check.h"
#include "../made_set.h"
#include "base/crc32c.h"
#include "pack/baseline.h"
#include "pack/disk.h"
#include "pack/entries_of.h"
#include "pack/ingest.h"
#include "pictures.h"
#include "transcode/coefficients.h"

namespace fastload::test {
namespace {

TEST(coefficient_records_are_made_without_memory) {
  Picture restarting = small_picture();
  restarting.restart = 3;
  for (const Made& file :
       {jpeg(small_picture()), jpeg(small_picture(0)), progressive(), jpeg(restarting)}) {
    for (const CoefficientForm form : {CoefficientForm::kFast, CoefficientForm::kSmall}) {
      for (const CoefficientProof proof : {CoefficientProof::kFile, CoefficientProof::kPixels}) {
        fail_everywhere("JPEG to coefficients",
                        [&] { return to_coefficients(file, form, {}, proof); });
      }
      const Made record = to_coefficients(file, form);
      fail_everywhere("coefficients to JPEG", [&] { return to_jpeg(record); });
    }
  }
}

TEST(baseline_files_are_made_without_memory) {
  const Made file = progressive();
  fail_everywhere("progressive JPEG to baseline", [&] { return to_baseline(file); });
  // More output than there is room for at first.
  Picture large = small_picture(0x11);
  large.width = 400;
  large.height = 300;
  large.quality = 98;
  Rewriting how;
  how.is_progressive = true;
  const Made other = rewritten(jpeg(large), how);
  fail_everywhere("large progressive JPEG to baseline", [&] { return to_baseline(other); });
}

// Bytes of what was found out of each record.
Made as_bytes(std::span<const Record> records, const Failures& failures) {
  const auto* const first = reinterpret_cast<const uint8_t*>(records.data());
  Made bytes(first, first + records.size_bytes());
  for (const auto& [id, text] : failures) {
    bytes.push_back(static_cast<uint8_t>(id));
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  return bytes;
}

// Files of a folder, back to back, and what they are.
struct Files {
  Files() : set({jpeg(small_picture()), png(PNG_FORMAT_RGB), {1, 2, 3}, progressive()}) {
    for (size_t i = 0; i < set.size(); ++i) {
      std::vector<uint8_t> scratch;
      const Bytes bytes = set.reader().read(i, scratch);
      const std::string name = "file" + std::to_string(i);
      std::ofstream(set.path(name), std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
      all.insert(all.end(), bytes.begin(), bytes.end());
      names += name;
      ends.push_back(names.size());
      records.push_back(set.record(i));
    }
  }
  MadeSet set;
  Made all;
  std::string names;
  std::vector<uint64_t> ends;
  std::vector<Record> records;
};

TEST(files_are_taken_in_without_memory) {
  Files files;
  const std::string folder = std::filesystem::path(files.set.path("x")).parent_path();
  const Bytes names{reinterpret_cast<const uint8_t*>(files.names.data()), files.names.size()};
  fail_everywhere("files read", [&] {
    Made buffer(files.all.size() + 100);
    std::vector<Record> records(files.records.size());
    const IngestResult result = ingest(folder, names, files.ends, buffer, records, {});
    buffer.resize(result.used);
    const Made found = as_bytes(records, result.failures);
    buffer.insert(buffer.end(), found.begin(), found.end());
    return buffer;
  });
  fail_everywhere("records described", [&] {
    std::vector<Record> records = files.records;
    const Failures failures = describe(files.all, records, {});
    return as_bytes(records, failures);
  });
  fail_everywhere("records of a file described", [&] {
    std::vector<Record> records = files.records;
    const Failures failures = describe_file(files.set.path("shard"), records, {});
    return as_bytes(records, failures);
  });
  files.records[1].crc32c ^= 1;
  fail_everywhere("a file verified", [&] {
    return as_bytes(files.records, verify_file(files.set.path("shard"), files.records));
  });
}

TEST(entry_points_are_made_without_memory) {
  Picture large = small_picture();
  large.width = 1600;
  large.height = 900;
  large.quality = 97;
  const Made file = jpeg(large);
  CHECK(file.size() > kLeastForParts);
  MadeSet set({file, jpeg(small_picture()), png(PNG_FORMAT_RGB)});
  std::vector<uint64_t> ids(set.size());
  std::iota(ids.begin(), ids.end(), 0);
  fail_everywhere("entry points of records", [&] {
    PackedEntries made = entries_of(set.reader(), ids, EntryPoints::kRow);
    for (const uint32_t size : made.sizes) made.packed.push_back(static_cast<uint8_t>(size));
    return std::move(made.packed);
  });
}

}  // namespace
}  // namespace fastload::test
