// engine/ over shard/, io/ and collate/: batches of the engine's threads against one sample after
// the other, from a data set of JPEGs and raw pictures made here.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "check.h"
#include "engine/engine.h"
#include "levels.h"
#include "picture.h"
#include "plain_job.h"
#include "random.h"
#include "shard/index.h"
#include "shard/reader.h"

namespace {

using namespace fastload;
using test::Random;
using Octets = std::vector<uint8_t>;

constexpr uint64_t kRecords = 40;
constexpr uint64_t kDamaged = 7;  // its checksum is wrong

template <class T>
void append(Octets& to, const T& value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

// A file that goes with the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const Octets& bytes) {
    const int descriptor = ::mkstemp(path_.data());
    CHECK(descriptor >= 0);
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    ::close(descriptor);
    CHECK_EQ(written, static_cast<ssize_t>(bytes.size()));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/fastload-test-XXXXXX";
};

Record add_record(Random& random, uint64_t id, Octets& shard) {
  const int width = random.in(20, 200), height = random.in(20, 200);
  const bool raw = id % 4 == 3;
  const Octets bytes = raw ? random.samples(3 * static_cast<size_t>(width * height))
                           : as_jpeg(random, {width, height, random.coin() ? 0x22 : 0x11});
  Record record{};
  record.offset = shard.size();
  record.length = static_cast<uint32_t>(bytes.size());
  record.crc32c = crc32c(bytes) ^ (id == kDamaged ? 1 : 0);
  record.label = static_cast<int32_t>(3 * id);
  record.width = static_cast<uint16_t>(width);
  record.height = static_cast<uint16_t>(height);
  record.codec = static_cast<uint8_t>(raw ? Codec::kRaw : Codec::kJpeg);
  record.channels = 3;
  shard.insert(shard.end(), bytes.begin(), bytes.end());
  return record;
}

// FORMAT.md, "index.fli": records, the keys' table, the keys (each "k"), the pages' CRCs.
Octets index_file(const std::vector<Record>& records) {
  PagedHeader h{};
  std::memcpy(h.magic, "FLINDEX1", 8);
  const uint64_t n = records.size();
  Octets data;
  for (const Record& record : records) append(data, record);
  for (uint64_t i = 0; i <= n; ++i) append(data, i);
  data.insert(data.end(), n, 'k');
  h.major = 1;
  h.header_bytes = sizeof h;
  h.num_records = n;
  h.data_offset = sizeof h;
  h.data_size = data.size();
  h.page_bytes = 512;
  h.table_offset = h.data_offset + sizeof(Record) * n;
  h.bytes_offset = h.table_offset + 8 * (n + 1);
  h.pages_offset = h.data_offset + h.data_size;
  Octets pages;
  for (size_t at = 0; at < data.size(); at += h.page_bytes) {
    append(pages,
           crc32c(Bytes(data).subspan(at, std::min<size_t>(h.page_bytes, data.size() - at))));
  }
  h.file_size = h.pages_offset + pages.size();
  h.pages_crc = crc32c(pages);
  h.header_crc = crc32c({reinterpret_cast<const uint8_t*>(&h), sizeof h - 4});
  Octets file;
  append(file, h);
  file.insert(file.end(), data.begin(), data.end());
  file.insert(file.end(), pages.begin(), pages.end());
  return file;
}

SamplePlan random_plan(Random& random) {
  ViewPlan view;
  view.out_width = random.in(1, 80);
  view.out_height = random.in(1, 80);
  const auto seed = static_cast<uint64_t>(random.in(0, 1000));
  const auto height = static_cast<double>(view.out_height);
  const auto width = static_cast<double>(view.out_width);
  view.geometry.add("random_resized_crop", {height, width, 0.08, 1.0, 3.0 / 4, 4.0 / 3});
  view.geometry.add("horizontal_flip", {0.5});
  StoreSpec store;
  store.dtype = static_cast<DType>(random.in(0, 3));
  store.channels_last = random.coin();
  store.normalize = store.dtype != DType::kUint8;
  store.mean = {0.4, 0.5, 0.6};
  store.std = {0.2, 0.25, 0.3};
  return {test::image_and_label(view, store), seed};
}

struct Result {
  Octets images;
  std::vector<int64_t> labels;
  std::vector<SampleFault> faults;
};

// What each thread does for one sample, spelled out: zeros for padding and for the damaged record.
Octets sample(Reader& reader, const SamplePlan& plan, int64_t id, uint64_t epoch) {
  Octets out(plan.fields.picture_bytes());
  if (id < 0 || id == static_cast<int64_t>(kDamaged)) return out;
  Octets scratch;
  const auto number = static_cast<uint64_t>(id);
  const Bytes bytes = reader.read(number, scratch);
  const Record& record = reader.index().record(number);
  Decoder decoder;
  const auto codec = static_cast<Codec>(record.codec);
  const ImageInfo info = codec == Codec::kRaw ? decoder.open_raw(bytes, record.width, record.height)
                                              : decoder.open(bytes);
  const SampleRng rng{epoch_key(plan.seed, epoch), number, 0};
  const ViewPlan& wanted = plan.fields.views().front();
  const View view =
      draw_view(wanted.geometry, static_cast<int>(info.width), static_cast<int>(info.height), rng);
  Store store(plan.fields.fields().front().picture.store);
  store.begin(out.data(), wanted.out_width, wanted.out_height);
  Resampler resampler;
  resampler.begin(view, wanted.geometry.filter, store);
  decoder.decode(source_rect(view, wanted.geometry.filter), resampler);
  resampler.end();
  return out;
}

// Batches of every record, some of them padding, several in flight.
std::vector<Result> run_engine(Reader& reader, const SamplePlan& plan,
                               const std::vector<std::vector<int64_t>>& batches, int threads) {
  // With one thread the records are mapped, with more read ahead where they are not in memory.
  const ReadAheadPlan ahead{threads > 1 ? size_t{1} << 20 : 0, 1};
  Engine engine(Sources({{&reader, nullptr, {}, 0}}), plan, {threads, 0, {}}, nullptr, ahead);
  std::vector<Result> results(batches.size());
  std::vector<Engine::Ticket> tickets;
  for (size_t i = 0; i < batches.size(); ++i) {
    results[i].images.resize(plan.fields.picture_bytes() * batches[i].size(), 0xAA);
    results[i].labels.resize(batches[i].size());
    tickets.push_back(engine.submit(
        test::plain_request(plan, results[i].images, results[i].labels, batches[i], /*epoch=*/i)));
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    CHECK(engine.wait(tickets[i], 120));
    results[i].faults = engine.collect(tickets[i]);
  }
  return results;
}

void check_batch(Reader& reader, const SamplePlan& plan, const std::vector<int64_t>& ids,
                 uint64_t epoch, const Result& result) {
  size_t faults = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Octets wanted = sample(reader, plan, ids[i], epoch);
    const size_t at = plan.fields.picture_bytes() * i;
    CHECK(std::memcmp(result.images.data() + at, wanted.data(), wanted.size()) == 0);
    const bool damaged = ids[i] == static_cast<int64_t>(kDamaged);
    CHECK_EQ(result.labels[i], ids[i] < 0 || damaged ? kIgnoreLabel : 3 * ids[i]);
    if (!damaged) continue;
    CHECK(faults < result.faults.size());
    CHECK_EQ(result.faults[faults].position, i);
    CHECK(result.faults[faults].kind == ErrorKind::kChecksum);
    ++faults;
  }
  CHECK_EQ(result.faults.size(), faults);
}

}  // namespace

TEST(batches_of_any_number_of_threads_equal_one_sample_after_the_other) {
  Random random(1);
  Octets shard_bytes;
  std::vector<Record> records;
  for (uint64_t id = 0; id < kRecords; ++id) records.push_back(add_record(random, id, shard_bytes));
  const TemporaryFile shard(shard_bytes), index(index_file(records));
  Index opened(index.path());
  CHECK_EQ(opened.size(), kRecords);
  Reader reader(opened, {{shard.path(), shard_bytes.size()}});
  const SimdLevel best = simd_level();
  for (const int threads : {1, 2, 5}) {
    const SamplePlan plan = random_plan(random);
    std::vector<std::vector<int64_t>> batches(6);
    for (auto& ids : batches) {
      ids.resize(static_cast<size_t>(random.in(1, 30)));
      for (int64_t& id : ids) id = random.in(-1, static_cast<int>(kRecords) - 1);
    }
    batches.push_back({static_cast<int64_t>(kDamaged), -1, 0, static_cast<int64_t>(kDamaged)});
    const std::vector<Result> results = run_engine(reader, plan, batches, threads);
    set_simd_level("scalar");
    for (size_t i = 0; i < batches.size(); ++i) {
      check_batch(reader, plan, batches[i], i, results[i]);
    }
    set_simd_level(simd_level_name(best));
  }
}
