// What processes do with a tier on disk at the same time: as test_cache_schedules.cpp.
#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "check.h"
#include "run_all.h"
#include "small_files.h"

namespace fastload::test {
namespace {

using Tiers = std::vector<std::shared_ptr<DiskTier>>;

// As Reader does: what is read is compared with the index's checksum each time.
bool read_slot(DiskTier& tier, uint64_t id) {
  const auto offset = tier.find(id, kBytes);
  if (!offset) return false;
  std::vector<uint8_t> bytes(kBytes);
  const int file = ::open((tier.path() + ".data").c_str(), O_RDONLY | O_CLOEXEC);
  const auto at = static_cast<off_t>(*offset);
  ssize_t got = ::pread(file, bytes.data(), kBytes / 2, at);
  step_here();
  got += ::pread(file, bytes.data() + kBytes / 2, kBytes / 2, at + kBytes / 2);
  ::close(file);
  CHECK_EQ(got, static_cast<ssize_t>(kBytes));
  if (crc32c(bytes) == record_crc(id)) return true;
  tier.reject(id, *offset);
  return false;
}

std::shared_ptr<DiskTier> attach_tier(const SmallTier& made, bool alone) {
  auto tier = made.attach(alone);
  // Record 2 is needed first, then 1, then 0: one takes the place of another.
  tier->uses().set({0, {1 << 5, 1 << 4, 1 << 1}, {0, 0, 0}});
  tier->uses().move(0, 0, false);
  return tier;
}

void check_tier(const SmallTier& made, const std::shared_ptr<DiskTier>& tier) {
  uint64_t held = 0;
  for (const uint32_t word : made.words()) {
    CHECK((word & kSlotWriting) == 0);
    held += word != kSlotNew && word != kSlotFree ? 1 : 0;
  }
  CHECK_EQ(tier->counts().held_records, held);
}

Stage slots(const SmallTier& made, Tiers& tiers, std::vector<std::vector<uint64_t>> orders) {
  Stage stage;
  stage.one_writer = true;
  stage.begin = [&made, &tiers, orders] {
    tiers.clear();
    made.reset();
    std::vector<Actor> actors;
    for (size_t i = 0; i < orders.size(); ++i) {
      tiers.push_back(attach_tier(made, i == 0));
      actors.push_back({[&tiers, i, orders] {
                          for (const uint64_t id : orders[i]) {
                            if (!read_slot(*tiers[i], id)) {
                              tiers[i]->store(id, record_bytes(id));
                            }
                          }
                        },
                        [&tiers, i] { tiers[i].reset(); }});
    }
    return actors;
  };
  stage.check = [&made, &tiers](size_t killed) {
    for (const auto& tier : tiers) {
      // What is of no use is overtaken, and no slot with the right bytes is given up.
      if (tier == nullptr) continue;
      CHECK_EQ(tier->counts().failed, 0u);
      if (killed == 0) check_tier(made, tier);
    }
    tiers.clear();
    const auto later = attach_tier(made, true);
    check_tier(made, later);
    for (const uint64_t id : {1, 2}) {
      if (!read_slot(*later, id)) later->store(id, record_bytes(id));
    }
    CHECK(read_slot(*later, 1) && read_slot(*later, 2));
    check_tier(made, later);
    CHECK_EQ(later->counts().held_records, SmallTier::kSlots);
  };
  return stage;
}

TEST(slots_are_taken_by_one_at_a_time) {
  const SmallTier made;
  Tiers tiers;
  run_all("two store the same record on disk", slots(made, tiers, {{0, 2}, {0, 1}}), 2);
  run_all("two store different records on disk", slots(made, tiers, {{0, 2}, {1, 2}}), 2);
  run_all("three store on disk", slots(made, tiers, {{0, 2}, {1}, {2}}), 2);
}

TEST(a_slot_that_two_take_is_found) {
  const SmallTier made;
  Tiers tiers;
  must_find(slots(made, tiers, {{0, 2}, {1, 2}}), Defect::kTakenByTwo);
}

}  // namespace
}  // namespace fastload::test
