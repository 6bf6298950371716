// shard/: index.fli whose header and tables break one rule each, with all checksums right: it is
// refused when it is opened, or where it is used.
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "made_table.h"
#include "shard/index.h"

namespace {

using namespace fastload;
using namespace fastload::test;

void open_index(const Buffer& file) {
  Folder folder;
  const Index index(folder.write("index.fli", file));
}

using Change = std::function<void(PagedHeader&)>;

void open_changed(const Change& change) {
  Made made = made_index();
  change(made.header);
  open_index(made.file());
}

}  // namespace

TEST(an_index_says_what_was_written) {
  Folder folder;
  const Buffer file = made_index().file();
  Index index(folder.write("index.fli", file));
  CHECK_EQ(index.size(), uint64_t{3});
  std::vector<Record> own;
  const std::span<const Record> all = index.records(own);
  CHECK_EQ(all.size(), size_t{3});
  for (size_t id = 0; id < 3; ++id) {
    const Record wanted = record_of(id), found = index.record(id);
    CHECK(std::memcmp(&found, &wanted, sizeof(found)) == 0);
    CHECK(std::memcmp(&all[id], &wanted, sizeof(wanted)) == 0);
    CHECK(index.key(id) == kKeys[id]);
  }
  index.verify();
  for (const uint64_t id : {uint64_t{3}, uint64_t{4}, ~uint64_t{0}}) {
    const std::string found = "Sample id must be below 3. Found: " + std::to_string(id);
    CHECK_THROWS(kValue, found, index.record(id));
    CHECK_THROWS(kValue, found, index.key(id));
  }
  Buffer facts(file.begin(), file.begin() + sizeof(PagedHeader));  // header and page table
  facts.insert(facts.end(), file.end() - 4, file.end());
  CHECK_EQ(index.digest(), crc32c({facts.data(), facts.size()}));
}

TEST(an_index_without_records_is_one) {
  Folder folder;
  Index index(folder.write("index.fli", made_index(0).file()));
  CHECK_EQ(index.size(), uint64_t{0});
  std::vector<Record> own;
  CHECK_EQ(index.records(own).size(), size_t{0});
  CHECK_THROWS(kValue, "Sample id must be below 0. Found: 0", index.record(0));
}

TEST(a_file_that_is_cut_or_of_another_kind_is_refused) {
  const Buffer file = made_index().file();
  open_index(file);
  CHECK_THROWS(kFormat, "it has 0 bytes", open_index({}));
  CHECK_THROWS(kFormat, "it has 127 bytes", open_index({file.begin(), file.begin() + 127}));
  CHECK_THROWS(kTruncated, "has 128 bytes, its header says " + std::to_string(file.size()),
               open_index({file.begin(), file.begin() + 128}));
  CHECK_THROWS(kTruncated, "its header says", open_index({file.begin(), file.end() - 1}));
  Buffer longer = file;
  longer.push_back(0);
  CHECK_THROWS(kTruncated, "its header says", open_index(longer));
  for (size_t at = 0; at < sizeof(PagedHeader); ++at) {
    Buffer wrong = file;
    wrong[at] ^= 0x10;
    if (at < 8) {
      CHECK_THROWS(kFormat, "its first 8 bytes are not FLINDEX1", open_index(wrong));
    } else {
      CHECK_THROWS(kChecksum, "the header's CRC-32C differs", open_index(wrong));
    }
  }
  for (size_t at = 1; at <= 4; ++at) {
    Buffer wrong = file;
    wrong[wrong.size() - at] ^= 1;
    CHECK_THROWS(kChecksum, "page table", open_index(wrong));
  }
}

TEST(a_newer_format_is_refused) {
  for (const uint16_t major : {0, 2}) {
    CHECK_THROWS(kFormat, "format version " + std::to_string(major) + ", this fastload reads 1",
                 open_changed([&](PagedHeader& h) { h.major = major; }));
  }
  open_changed([](PagedHeader& h) { h.minor = 9; });
}

TEST(what_lies_outside_is_refused) {
  const uint64_t most = ~uint64_t{0};
  const auto data = [](const Change& change) {
    CHECK_THROWS(kFormat, "the data region lies outside the file", open_changed(change));
  };
  data([](PagedHeader& h) { h.header_bytes = 127; });
  data([](PagedHeader& h) { h.header_bytes = 256; });
  data([](PagedHeader& h) { h.data_offset = 64; });
  data([](PagedHeader& h) { h.data_offset = 0; });
  data([](PagedHeader& h) { h.data_offset = 4096 - 32, h.data_size += 32; });
  data([](PagedHeader& h) { h.data_offset = (h.file_size + 64) / 64 * 64; });
  data([&](PagedHeader& h) { h.data_offset = most - 63; });
  data([](PagedHeader& h) { h.data_size = h.file_size - h.data_offset + 1; });
  data([&](PagedHeader& h) { h.data_size = most - 63; });

  const auto size = [](const Change& change) {
    CHECK_THROWS(kFormat, "page size out of range", open_changed(change));
  };
  size([](PagedHeader& h) { h.page_bytes = 0; });
  size([](PagedHeader& h) { h.page_bytes = (1 << 24) + 1; });
  open_changed([](PagedHeader& h) { h.page_bytes = 1 << 24; });

  const auto pages = [](const Change& change) {
    CHECK_THROWS(kFormat, "the page table has the wrong place or size", open_changed(change));
  };
  pages([](PagedHeader& h) { h.pages_offset -= 4; });
  pages([](PagedHeader& h) { h.pages_offset += 4; });
  pages([](PagedHeader& h) { h.data_size -= 64, h.pages_offset -= 64; });
  pages([](PagedHeader& h) { h.page_bytes = 64; });
}

TEST(tables_lie_inside_the_data) {
  const auto tables = [](const Change& change) {
    CHECK_THROWS(kFormat, "its tables lie outside the data region", open_changed(change));
  };
  const auto end = [](const PagedHeader& h) { return h.data_offset + h.data_size; };
  tables([](PagedHeader& h) { h.num_records = h.data_size / 40 + 1; });
  tables([](PagedHeader& h) { h.num_records = ~uint64_t{0} / 32; });
  tables([](PagedHeader& h) { h.num_records = 5; });  // the table begins inside the fifth
  tables([](PagedHeader& h) { h.table_offset = h.data_offset + 3 * 32 - 8; });
  tables([](PagedHeader& h) { h.table_offset = 0; });
  tables([&](PagedHeader& h) { h.table_offset = end(h) + 8; });
  tables([](PagedHeader& h) { h.table_offset += 4; });
  tables([&](PagedHeader& h) {
    h.table_offset = (end(h) - 4 * 8 + 8) / 8 * 8, h.bytes_offset = end(h);
  });
  tables([](PagedHeader& h) { h.bytes_offset = h.table_offset + 4 * 8 - 1; });
  tables([&](PagedHeader& h) { h.bytes_offset = end(h) + 1; });
  tables([](PagedHeader& h) { h.bytes_offset = ~uint64_t{0}; });
  // As near as may be.
  open_changed([](PagedHeader& h) { h.table_offset = h.data_offset + 3 * 32; });
  open_changed([](PagedHeader& h) { h.bytes_offset = h.table_offset + 4 * 8; });
  open_changed([&](PagedHeader& h) { h.bytes_offset = end(h); });
  open_changed([&](PagedHeader& h) {
    h.table_offset = end(h) / 8 * 8 - 4 * 8;
    h.bytes_offset = end(h);
  });
}

TEST(a_key_outside_the_file_is_refused) {
  // The table's entries, and which keys they spoil.
  const auto offsets = [](std::vector<uint64_t> wanted) {
    Made made = made_index();
    std::memcpy(made.data.data() + made.header.table_offset - kData, wanted.data(), 4 * 8);
    return made.file();
  };
  Folder folder;
  const uint64_t available = kKeys[0].size() + kKeys[2].size();
  for (const std::vector<uint64_t>& wanted : {std::vector<uint64_t>{0, 7, 7, available + 1},
                                              {0, 7, available + 1, ~uint64_t{0}},
                                              {9, 7, 7, 6}}) {
    Index index(folder.write("index.fli", offsets(wanted)));
    CHECK_THROWS(kFormat, "the table's entry of sample 2 lies outside the file", index.key(2));
    CHECK_EQ(index.record(2).length, 12u);
  }
  Index all(folder.write("index.fli", offsets({0, 0, 0, available})));
  CHECK(all.key(2) == kKeys[0] + kKeys[2]);
}

TEST(a_damaged_page_is_refused_where_it_is_used) {
  constexpr size_t kCount = 1000;  // 8 pages of entries and 2 more of keys' offsets
  const Made made = made_index(kCount);
  Folder folder;
  for (const size_t page : {0, 3, 7}) {
    Buffer file = made.file();
    file[kData + page * kPage + 5] ^= 1;
    const std::string path = folder.write("index.fli", file);
    const std::string where = "bytes " + std::to_string(kData + page * kPage) + " to " +
                              std::to_string(kData + (page + 1) * kPage) + " have CRC-32C";
    Index index(path);
    for (size_t id = 0; id < kCount; ++id) {
      if (id / 128 == page) {
        CHECK_THROWS(kChecksum, where, index.record(id));
      } else {
        CHECK_EQ(index.record(id).offset, 1000 * id);
      }
    }
    std::vector<Record> own;
    CHECK_THROWS(kChecksum, where, Index(path).records(own));
    CHECK_THROWS(kChecksum, where, Index(path).verify());
  }
  Buffer file = made.file();  // the last page is a part of one
  file[made.header.pages_offset - 1] ^= 1;
  Index index(folder.write("index.fli", file));
  CHECK_EQ(index.record(kCount - 1).offset, 1000 * (kCount - 1));
  CHECK_THROWS(kChecksum, "to " + std::to_string(made.header.pages_offset), index.verify());
}

TEST(a_column_of_no_values_has_an_empty_data_region) {
  Folder folder;
  Made made("FLFIELD1", 0);
  made.header.table_offset = made.header.bytes_offset = kData;
  made.lay_out();
  PagedFile file(folder.write("field-02.fli", made.file()), "FLFIELD1", 4, false);
  CHECK_EQ(file.header().data_size, uint64_t{0});
  file.verify();
  made.header.num_records = 1;
  const std::string path = folder.write("field-02.fli", made.file());
  CHECK_THROWS(kFormat, "its values lie outside the data region",
               PagedFile(path, "FLFIELD1", 4, false));
}
