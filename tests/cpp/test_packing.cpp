// sampler/packing.h and sampler/shuffle.h: what every pack must be, on memory that AddressSanitizer
// watches. Tests against the slow reference are in tests/sampler/test_packing.py.
#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "random.h"
#include "sampler/packing.h"

namespace {

using fastload::count_packs;
using fastload::kPackWindow;
using fastload::PackBounds;
using fastload::Packer;
using fastload::Shuffle;
using fastload::ShuffleKeys;
using fastload::test::Random;

constexpr int32_t kTokens = 1000;
constexpr int32_t kPictures = 9;

std::vector<int32_t> drawn(Random& random, size_t count, int least, int most) {
  std::vector<int32_t> amounts(count);
  for (int32_t& amount : amounts) amount = random.in(least, most);
  return amounts;
}

ShuffleKeys keys_of(Random& random) {
  ShuffleKeys keys{};
  for (uint64_t& key : keys) {
    key = static_cast<uint64_t>(random.in(0, 1 << 30)) << 32 | random.in(0, 1 << 30);
  }
  return keys;
}

}  // namespace

TEST(each_sample_is_in_one_pack_that_holds_it) {
  Random random(1);
  Packer packer;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{700}, kPackWindow}) {
    const auto tokens = drawn(random, count, 1, kTokens);
    const auto pictures = drawn(random, count, 0, kPictures);
    PackBounds bounds{2, {kTokens, kPictures}, {}};
    bounds.amounts = {tokens, pictures};
    const size_t packs = packer.pack(bounds, count);
    std::vector<uint32_t> members;
    std::vector<uint32_t> ends;
    packer.list(members, ends);
    CHECK(ends.size() == packs);
    CHECK(members.size() == count);
    size_t begin = 0;
    size_t largest = 0;
    for (const uint32_t end : ends) {
      int32_t full = 0;
      int32_t shown = 0;
      for (size_t i = begin; i < end; ++i) {
        full += tokens[members[i]];
        shown += pictures[members[i]];
        CHECK(packer.packs()[members[i]] == packer.packs()[members[begin]]);
        CHECK(i == begin || members[i - 1] < members[i]);
      }
      CHECK(begin < end && full <= kTokens && shown <= kPictures);
      largest = std::max(largest, end - begin);
      begin = end;
    }
    CHECK(packer.largest() == largest);
    std::sort(members.begin(), members.end());
    for (size_t i = 0; i < members.size(); ++i) CHECK(members[i] == i);
  }
}

TEST(the_shuffle_has_each_id_once) {
  Random random(2);
  for (const uint64_t n : {1, 2, 3, 4096, 5000, 70001}) {
    Shuffle shuffle(n, keys_of(random));
    std::vector<uint64_t> ids(n);
    const size_t half = n / 2;
    shuffle.ids(0, std::span(ids).first(half));
    shuffle.ids(half, std::span(ids).subspan(half));
    std::sort(ids.begin(), ids.end());
    for (size_t i = 0; i < n; ++i) CHECK(ids[i] == i);
  }
}

TEST(windows_are_counted_alone_and_what_is_wrong_is_refused) {
  Random random(3);
  const size_t n = 2 * kPackWindow + 5;
  const auto tokens = drawn(random, n, 1, kTokens);
  PackBounds bounds{1, {kTokens}, {tokens}};
  const auto keys = keys_of(random);
  const auto all = count_packs(bounds, keys, 0, 3);
  for (size_t window = 0; window < 3; ++window) {
    const auto one = count_packs(bounds, keys, window, window + 1);
    CHECK(one.size() == 1 && one[0].packs == all[window].packs);
    CHECK(one[0].largest == all[window].largest);
  }
  CHECK(all[2].packs <= 5);
  CHECK(count_packs(bounds, {}, 3, 3).empty());
  CHECK_THROWS(kValue, "Windows must be from 0 to 3", count_packs(bounds, keys, 2, 4));
  bounds.most[0] = 1;
  CHECK_THROWS(kValue, "must be from 0 to 1. Found:", count_packs(bounds, {}, 0, 1));
  Packer packer;
  bounds.most[0] = kTokens;
  CHECK_THROWS(kValue, "A window has at most 4096", packer.pack(bounds, n));
}
