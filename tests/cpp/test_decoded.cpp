// The decoded tier: sides, and engines that fill and use one file at the same time.
#include <fcntl.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "cache/bounded.h"
#include "cache/filler.h"
#include "cache/pixel_target.h"
#include "check.h"
#include "engine/engine.h"
#include "plain_job.h"
#include "tiny_dataset.h"

namespace fastload::test {
namespace {

constexpr size_t kCount = 300;
constexpr size_t kRoom = 250;

// A file of a tier for pictures of side x side, with room for the first kRoom samples.
class TierFile {
 public:
  explicit TierFile(const std::string& tier, uint16_t side) {
    std::string name = (std::filesystem::temp_directory_path() / "fastload-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    CacheHeader header{};
    std::memcpy(header.magic, "FLCACHE1", 8);
    header.major = 1;
    header.header_bytes = kCacheHeaderBytes;
    header.num_records = kCount;
    header.table_offset = kCacheHeaderBytes + kCacheLiveBytes;
    const uint64_t table = kCount * sizeof(CacheEntry);
    header.data_offset = header.index_offset = header.entries_offset = header.table_offset + table;
    header.room_records = kRoom;
    std::memcpy(header.tier, tier.data(), tier.size());
    const uint32_t length = uint32_t{side} * side * 3;
    header.data_size = kRoom * length;
    header.file_size = header.data_offset + header.data_size;
    std::vector<CacheEntry> entries(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      entries[i].offset = i < kRoom ? header.data_offset + i * length : kNoRoom;
      entries[i].length = length;
      entries[i].width = entries[i].height = side;
    }
    seal_places(entries.data(), entries.size(), 0);
    std::vector<uint8_t> file(header.file_size);
    std::memcpy(file.data(), &header, sizeof(header));
    const uint32_t crc = crc32c({file.data(), kCacheHeaderBytes - 4});
    std::memcpy(file.data() + kCacheHeaderBytes - 4, &crc, sizeof(crc));
    std::memcpy(file.data() + header.table_offset, entries.data(), table);
    std::ofstream(path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()),
               static_cast<std::streamsize>(file.size()));
  }
  ~TierFile() { std::filesystem::remove_all(folder_); }
  TierFile(const TierFile&) = delete;
  TierFile& operator=(const TierFile&) = delete;

  [[nodiscard]] std::string path() const { return folder_ + "/cache"; }
  [[nodiscard]] std::unique_ptr<CacheFile> attach() const {
    return std::make_unique<CacheFile>(::open(path().c_str(), O_RDWR | O_CLOEXEC), path());
  }

 private:
  std::string folder_;
};

// Each sample once, in one batch; all of them must have the pixels and label of their id.
void run(const TinyDataset& data, CacheFile& file, uint32_t side, int pixels) {
  SamplePlan plan = plain_plan(pixels);
  plan.decoded_side = side;
  auto cache = std::make_shared<PixelCache>(file, decoded_tier(side), kCount);
  const EnginePointer engine = make_engine(Sources({{data.reader(), nullptr, {}, 0, cache}}), plan,
                                           {3, 0, {}}, nullptr, ReadAheadPlan{1 << 20, 1});
  std::vector<int64_t> ids(kCount);
  std::iota(ids.begin(), ids.end(), 0);
  const size_t size = static_cast<size_t>(pixels) * pixels * 3;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<uint8_t> images(kCount * size, 77);
    std::vector<int64_t> labels(kCount);
    const Engine::Ticket ticket = engine->submit(plain_request(plan, images, labels, ids));
    CHECK(engine->wait(ticket, 60.0));
    CHECK_EQ(engine->collect(ticket).size(), 0u);
    CHECK(labels == ids);
    for (size_t i = 0; i < images.size(); ++i) {
      CHECK_EQ(images[i], static_cast<uint8_t>(i / size));
    }
  }
}

}  // namespace

TEST(sides_are_pythons) {
  const auto check = [](Extent size, uint32_t side, Extent wanted) {
    CHECK(bounded(size, side) == wanted);
  };
  check({500, 375}, 256, {256, 192});
  check({5, 128}, 64, {2, 64});  // 2.5
  check({7, 128}, 64, {4, 64});  // 3.5
  check({65, 64}, 64, {64, 63});
  check({640, 2}, 48, {48, 1});  // 0.15
  check({64, 64}, 64, {64, 64});
  check({65'500, 65'499}, 65'499, {65'499, 65'498});
  check({3, 9}, kUnbounded, {3, 9});
  CHECK(decoded_tier(384) == "decoded-384");
  CHECK(decoded_tier(kUnbounded) == "decoded-full");
}

TEST(engines_and_a_filler_share_a_file) {
  const TinyDataset data(kCount);
  for (const auto& setting : {std::pair<uint32_t, int>{1, 1}, {kUnbounded, 2}}) {
    const uint32_t side = setting.first;
    const int pixels = setting.second;
    const TierFile tier(decoded_tier(side), static_cast<uint16_t>(pixels));
    const auto first = tier.attach(), second = tier.attach(), third = tier.attach();
    PixelTarget target(*third, side, {}, nullptr);
    FillPlan plan;
    plan.threads = 2;
    plan.claims = tier.path();
    Filler filler(*data.reader(), target, plan);
    filler.start();
    std::thread other([&] { run(data, *second, side, pixels); });
    run(data, *first, side, pixels);
    other.join();
    CHECK(filler.wait(60.0));
    filler.stop();
    CHECK_EQ(filler.failures().size(), 0u);
    CHECK_EQ(first->count_ready(), kRoom);
    CHECK_EQ(first->counts().ready_records, kRoom);
    CHECK_EQ(first->counts().damaged + second->counts().damaged, 0u);
  }
}

TEST(pixels_of_another_size_are_not_there) {
  const TierFile tier("decoded-full", 2);
  const auto file = tier.attach();
  PixelCache cache(*file, "decoded-full", kCount);
  const std::vector<uint8_t> pixels(12, 5);
  CHECK(cache.wants(0, 2, 2));
  CHECK(!cache.wants(0, 4, 1));
  CHECK(!cache.wants(kRoom, 2, 2));
  CHECK(!cache.wants(kCount, 2, 2));
  cache.store(0, pixels);
  CHECK(!cache.wants(0, 2, 2));
  CHECK_EQ(cache.find(0, 2, 2).size(), 12u);
  CHECK(cache.find(0, 1, 4).empty());  // rejected
  CHECK(!cache.is_ready(0));
  CHECK_EQ(file->counts().damaged, 1u);
  CHECK_THROWS(kValue, "must be of the tier decoded-2", PixelCache(*file, "decoded-2", kCount));
  CHECK_THROWS(kValue, "with 7 records", PixelCache(*file, "decoded-full", 7));
}

}  // namespace fastload::test
