// shard/: entries.fli, its entry points and its records' parts: what breaks a rule is refused, and
// what is damaged counts as not there.
#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "check.h"
#include "made_table.h"
#include "shard/entries.h"
#include "shard/index.h"

namespace {

using namespace fastload;
using namespace fastload::test;
using Change = std::function<void(PagedHeader&)>;

constexpr uint32_t kPart = 4096;

// Of a record: where its scan begins, an MCU's size, components, and the parts' checksums.
std::string parts_of(const Buffer& record) {
  std::string out{"\x01\x02\x03\x04\x10\x08\x03\x00", 8};
  for (size_t begin = 0; begin < record.size(); begin += kPart) {
    const uint32_t crc =
        crc32c({record.data() + begin, std::min<size_t>(kPart, record.size() - begin)});
    out.append(reinterpret_cast<const char*>(&crc), 4);
  }
  return out;
}

Buffer a_record(size_t size) {
  Buffer bytes(size);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(bytes[i] + i / 256);
  return bytes;
}

Made made_entries(const std::vector<std::string>& entries, const std::vector<std::string>& parts,
                  const Index& index) {
  Made made("FLENTRY1", entries.size());
  made.header.table_offset = append_table(made.data, entries);
  made.header.bytes_offset = values_of(made.header.table_offset, entries.size());
  made.header.index_digest = index.digest();
  made.header.spacing = 16;
  if (!parts.empty()) {
    made.header.minor = 1;
    made.header.part_bytes = kPart;
    made.header.parts_offset = append_table(made.data, parts);
  }
  made.lay_out();
  return made;
}

const std::vector<std::string> kEntries{"first", "", "third one"};

struct Set {
  Folder folder;
  Index index{folder.write("index.fli", made_index().file())};
  Buffer record = a_record(3 * kPart + 100);
  Made made = made_entries(kEntries, {"", parts_of(record), ""}, index);

  std::string path() { return folder.write("entries.fli", made.file()); }
  void open() { const Entries entries(path(), index); }
};

std::string text(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

TEST(entries_say_what_was_written) {
  Set set;
  Entries entries(set.path(), set.index);
  CHECK_EQ(entries.size(), uint64_t{3});
  CHECK_EQ(entries.spacing(), 16u);
  Buffer scratch;
  for (size_t id = 0; id < 3; ++id) {
    CHECK(text(entries.get(id, scratch)) == kEntries[id]);
    CHECK(text(entries.find(id, scratch)) == kEntries[id]);
    entries.touch(id);
  }
  CHECK_THROWS(kValue, "Sample id must be below 3. Found: 3", entries.get(3, scratch));
  CHECK_THROWS(kValue, "Sample id must be below 3. Found: 3", entries.get_parts(3, scratch));
  CHECK_EQ(entries.damaged(), uint64_t{0});
  CHECK(entries.find(3, scratch).empty());
  CHECK_EQ(entries.damaged(), uint64_t{1});
  entries.touch(3);
  entries.verify();
}

TEST(entries_of_another_dataset_are_refused) {
  Set set;
  const std::string error = "has the entry points of another dataset than";
  set.made.header.index_digest ^= 1;
  CHECK_THROWS(kFormat, error, set.open());
  set.made = made_entries({"one", "two"}, {}, set.index);
  CHECK_THROWS(kFormat, error, set.open());
}

TEST(a_damaged_entry_is_none) {
  Set set;
  Buffer file = set.made.file();
  file[set.made.header.bytes_offset] ^= 1;
  Entries entries(set.folder.write("entries.fli", file), set.index);
  Buffer scratch;
  CHECK_THROWS(kChecksum, "CRC-32C", entries.get(0, scratch));
  CHECK(entries.find(0, scratch).empty());
  CHECK_EQ(entries.damaged(), uint64_t{1});
  CHECK(!entries.find_parts(1, static_cast<uint32_t>(set.record.size()), scratch).has_value());
  entries.touch(0);
}

TEST(parts_are_understood) {
  Set set;
  Entries entries(set.path(), set.index);
  const auto length = static_cast<uint32_t>(set.record.size());
  Buffer scratch;
  CHECK_EQ(entries.part_bytes(), kPart);
  CHECK(text(entries.get_parts(1, scratch)) == parts_of(set.record));
  const auto parts = entries.find_parts(1, length, scratch);
  CHECK(parts.has_value());
  CHECK_EQ(parts->scan_begin, 0x04030201u);
  CHECK_EQ(parts->mcu_width, uint8_t{16});
  CHECK_EQ(parts->mcu_height, uint8_t{8});
  CHECK_EQ(parts->components, uint8_t{3});
  CHECK_EQ(parts->part_bytes, kPart);
  CHECK_EQ(parts->checksums.size(), size_t{16});
  CHECK(!entries.find_parts(0, length, scratch).has_value());  // has none
  // As many parts as a record of so many bytes has.
  CHECK(entries.find_parts(1, 3 * kPart + 1, scratch).has_value());
  CHECK(entries.find_parts(1, 4 * kPart, scratch).has_value());
  CHECK(!entries.find_parts(1, 3 * kPart, scratch).has_value());
  CHECK(!entries.find_parts(1, 4 * kPart + 1, scratch).has_value());
  CHECK(!entries.find_parts(3, length, scratch).has_value());
}

TEST(parts_prove_what_was_loaded) {
  Set set;
  Entries entries(set.path(), set.index);
  const size_t end = set.record.size();
  const auto length = static_cast<uint32_t>(end);
  const auto proved = [&](LoadedBytes loaded, int spoilt = -1, size_t more = 0) {
    Buffer bytes(set.record.begin(), set.record.begin() + static_cast<ptrdiff_t>(loaded.head));
    bytes.insert(bytes.end(), set.record.begin() + static_cast<ptrdiff_t>(loaded.begin),
                 set.record.begin() + static_cast<ptrdiff_t>(std::min(loaded.end, end)));
    bytes.resize(loaded.size() + more);
    if (spoilt >= 0) bytes[static_cast<size_t>(spoilt)] ^= 1;
    return entries.are_parts(1, length, loaded, bytes);
  };
  const std::vector<LoadedBytes> good{{kPart, kPart, kPart},
                                      {kPart, 2 * kPart, 3 * kPart},
                                      {kPart, 3 * kPart, end},
                                      {2 * kPart, 3 * kPart, end},
                                      {end, end, end}};
  for (const LoadedBytes& loaded : good) {
    CHECK(proved(loaded));
    for (size_t at = 0; at < loaded.size(); at += 1021)
      CHECK(!proved(loaded, static_cast<int>(at)));
    CHECK(!proved(loaded, static_cast<int>(loaded.size()) - 1));
    CHECK(!proved(loaded, -1, 1));
  }
  for (const LoadedBytes& loaded : std::vector<LoadedBytes>{{kPart - 1, kPart, 2 * kPart},
                                                            {kPart, kPart + 1, 2 * kPart},
                                                            {kPart, 2 * kPart, 3 * kPart - 1},
                                                            {kPart, 3 * kPart, end + 1},
                                                            {kPart, 3 * kPart, end - 1}}) {
    CHECK(!proved(loaded));
  }
  CHECK(!entries.are_parts(0, length, {kPart, kPart, kPart}, Buffer(kPart)));
}

TEST(tables_of_parts_lie_inside_the_data) {
  const auto refused = [](const std::string& what, const Change& change) {
    Set set;
    change(set.made.header);
    CHECK_THROWS(kFormat, what, set.open());
  };
  const auto open = [](const Change& change) {
    Set set;
    change(set.made.header);
    const Entries entries(set.path(), set.index);
    return entries.part_bytes();
  };
  const std::string outside = "the table of its parts lies outside the data region";
  const auto end = [](const PagedHeader& h) { return h.data_offset + h.data_size; };
  refused(outside, [](PagedHeader& h) { h.parts_offset += 8; });
  refused(outside, [](PagedHeader& h) { h.parts_offset = h.bytes_offset - 64; });
  refused(outside, [&](PagedHeader& h) { h.parts_offset = end(h) / 64 * 64; });
  refused(outside, [&](PagedHeader& h) { h.parts_offset = end(h) / 64 * 64 + 64; });
  refused(outside, [](PagedHeader& h) { h.parts_offset = ~uint64_t{63}; });
  CHECK_EQ(open([](PagedHeader& h) { h.parts_offset = h.bytes_offset; }), kPart);
  CHECK_EQ(open([](PagedHeader& h) { h.minor = 0; }), 0u);
  CHECK_EQ(open([](PagedHeader& h) { h.parts_offset = 0, h.part_bytes = 3; }), 0u);
  for (const uint32_t bytes : {0u, 2048u, 4095u, 4097u, 5000u, 6144u, 2u << 20}) {
    refused("a part has " + std::to_string(bytes) + " bytes",
            [&](PagedHeader& h) { h.part_bytes = bytes; });
  }
  for (const uint32_t bytes : {4096u, 16384u, 1u << 20}) {
    CHECK_EQ(open([&](PagedHeader& h) { h.part_bytes = bytes; }), bytes);
  }
}
