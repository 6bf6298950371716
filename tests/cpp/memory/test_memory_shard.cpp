// Files of a dataset without memory: tables, readers, and what is read ahead.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "../check.h"
#include "../column_file.h"
#include "../made_set.h"
#include "base/crc32c.h"
#include "everywhere.h"
#include "failing.h"
#include "io/buffer_pool.h"
#include "io/file_bytes.h"
#include "read_ahead/read_ahead.h"
#include "remote/answer.h"
#include "remote/signature.h"
#include "sample/column.h"
#include "shard/entries.h"

// Nothing is in the page cache, so that everything is read ahead.
extern "C" int mincore(void*, size_t length, unsigned char* state) noexcept {
  std::fill_n(state, (length + 4095) / 4096, 0);
  return 0;
}

namespace fastload::test {
namespace {

template <class T>
void append(Made& to, const T& value) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(value));
}

TEST(indexes_without_memory) {
  MadeSet set(40, 200, 5);
  fail_everywhere("index", [&] {
    Index index(set.path("index"));
    index.verify();
    Made made;
    std::vector<Record> own;
    for (const Record& record : index.records(own)) append(made, record);
    for (uint64_t id = 0; id < index.size(); ++id) {
      append(made, index.record(id));
      const std::string key = index.key(id);
      made.insert(made.end(), key.begin(), key.end());
    }
    return made;
  });
  fail_everywhere("an index that is not there", [&]() -> Made {
    try {
      const Index index(set.path("none"));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) throw;
      return {static_cast<uint8_t>(error.kind())};
    }
    return {};
  });
}

TEST(columns_without_memory) {
  for (const uint32_t width : {0U, 12U}) {
    std::vector<Octets> values;
    for (size_t i = 0; i < 30; ++i) values.emplace_back(width == 0 ? i % 5 * 4 : 12, i);
    const ColumnFile file(values, width);
    fail_everywhere("column", [&] {
      Column column(file.path(), width == 0 ? Storage::kRagged : Storage::kFixed,
                    width == 0 ? 4 : width);
      column.verify();
      Made made;
      for (uint64_t id = 0; id < column.size(); ++id) {
        const uint64_t length = column.length(id);
        Made value(length);
        column.copy(id, value.data(), length);
        made.insert(made.end(), value.begin(), value.end());
      }
      return made;
    });
  }
}

TEST(readers_without_memory) {
  MadeSet set(30, 300, 3);
  for (const bool cold : {false, true}) {
    fail_everywhere(cold ? "records by requests" : "records", [&] {
      set.open();
      Made made;
      std::vector<uint8_t> scratch;
      for (size_t id = 0; id < set.size(); ++id) {
        const Bytes bytes =
            cold ? set.reader().read_cold(id, scratch) : set.reader().read(id, scratch);
        made.insert(made.end(), bytes.begin(), bytes.end());
      }
      return made;
    });
  }
  set.scribble(set.record(3).offset);
  fail_everywhere("the words about a damaged record", [&]() -> Made {
    set.open();
    std::vector<uint8_t> scratch;
    try {
      static_cast<void>(set.reader().read(3, scratch));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMemory) throw;
      const std::string text = error.what();
      return {text.begin(), text.end()};
    }
    return {};
  });
}

TEST(reading_ahead_without_memory) {
  MadeSet set(60, 3000, 10);
  uint64_t ahead = 0;
  fail_in_turn("reading ahead", [&](int64_t successes, bool for_good) {
    set.open();
    std::vector<std::vector<uint8_t>> read(set.size());
    try {
      const Failing failing(successes, for_good);
      ReadAhead reading({1 << 20, 1}, [&set](uint64_t id) {
        return ReadAhead::Origin{&set.reader(), nullptr, id};
      });
      std::vector<int64_t> ids;
      for (size_t id = 0; id < set.size(); ++id) ids.push_back(static_cast<int64_t>(id));
      const auto group = reading.announce(ids);
      // On a busy machine decoding would be through before the thread has begun.
      for (int i = 0; i < 50 && !has_failed() && reading.counts().ahead == 0; ++i) ::usleep(1000);
      for (uint32_t id = 0; id < set.size(); ++id) {
        std::vector<uint8_t> scratch;
        std::shared_ptr<const void> held;
        const Bytes bytes =
            reading.read(group.get(), id, {&set.reader(), nullptr, id}, scratch, held);
        read[id].assign(bytes.begin(), bytes.end());
      }
      ahead += reading.counts().ahead;
    } catch (const std::bad_alloc&) {
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kMemory);
    }
    for (size_t id = 0; id < set.size(); ++id) {
      if (!read[id].empty()) CHECK(set.equals(id, read[id]));
      if (!has_failed()) CHECK(!read[id].empty());
    }
  });
  CHECK(ahead > 0);
}

TEST(buffers_come_back_without_memory) {
  const auto pool = BufferPool::make(64 << 10, [] {});
  std::vector<std::shared_ptr<uint8_t>> buffers;
  for (int i = 0; i < 16; ++i) buffers.push_back(pool->acquire(4096));
  {
    const Failing failing(0, true);
    for (size_t i = 0; i < buffers.size(); i += 2) buffers[i].reset();  // apart from each other
    for (size_t i = 1; i < buffers.size(); i += 2) buffers[i].reset();
  }
  CHECK_EQ(pool->in_use(), size_t{0});
  CHECK(pool->acquire(64 << 10) != nullptr);  // in one piece again
}

TEST(a_stores_answers_and_signatures_without_memory) {
  fail_everywhere("head of an answer", [] {
    AnswerHead head;
    head.add("HTTP/1.1 206 Partial Content\r\n");
    head.add("ETag: \"a tag that is longer than what a string holds by itself\"\r\n");
    head.add("x-amz-bucket-region: a-region-that-is-longer-than-a-string\r\n");
    head.add("Content-Range: bytes 10-99/1000\r\n");
    const std::string text = head.etag + head.region + status_text(head.status) +
                             error_code("<Error><Code>AnErrorOfAStoreThatIsLong</Code></Error>");
    return Made(text.begin(), text.end());
  });
  fail_everywhere("signature", [] {
    Signer signer;
    Made made;
    for (const std::string& line :
         signer.sign({"GET", "store.example.org", encode_path("/a bucket/a shard"), "a-region"},
                     {"key", "secret", "token"}, 1'700'000'000)) {
      made.insert(made.end(), line.begin(), line.end());
    }
    return made;
  });
}

}  // namespace
}  // namespace fastload::test
