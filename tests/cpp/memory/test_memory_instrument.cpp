// That these tests can fail: each kind of defect, planted, is found.
#include <cstdlib>
#include <memory>
#include <string>

#include "../check.h"
#include "base/error.h"
#include "everywhere.h"
#include "failing.h"

namespace fastload::test {
namespace {

// Made at run time, so that no compiler leaves the allocation out.
Made some(size_t size) { return Made(size, 7); }

void check_found(const std::string& words, const std::function<Made()>& make) {
  try {
    fail_everywhere("planted", make);
  } catch (const Failure& failure) {
    const std::string text = failure.what();
    if (text.find(words) == std::string::npos) fail(__FILE__, __LINE__, "other words: " + text);
    return;
  }
  fail(__FILE__, __LINE__, "nothing was found: " + words);
}

TEST(a_lack_that_is_called_damage_is_found) {
  check_found("another error than one about memory", [] {
    try {
      return some(100);
    } catch (const std::bad_alloc&) {
      throw Error(ErrorKind::kDecode, "the data is damaged");
    }
  });
}

TEST(other_bytes_are_found) {
  check_found("it gave something else", [] {
    try {
      return some(100);
    } catch (const std::bad_alloc&) {
      return Made();
    }
  });
}

TEST(what_the_next_run_gives_is_looked_at) {
  bool spoilt = false;
  check_found("the next run gave something else", [&] {
    Made made(spoilt ? 99 : 100, 7);
    spoilt = true;
    const Made second = some(100);  // throws: what is said of the first is not put right
    spoilt = false;
    return made;
  });
}

TEST(blocks_that_are_left_behind_are_found) {
  std::vector<void*> left;
  left.reserve(1000);
  check_found("left behind", [&] {
    void* const block = std::malloc(64);
    if (block == nullptr) throw std::bad_alloc();
    left.push_back(block);  // freed only where the second has room
    Made made = some(100);
    std::free(block);
    left.pop_back();
    return made;
  });
  CHECK(!left.empty());
  for (void* const block : left) std::free(block);
}

TEST(what_takes_no_memory_is_no_test) {
  const Made none;
  check_found("takes no memory", [&] { return none; });
}

// A compiler may leave an allocation out that nobody looks at.
template <class Make>
bool is_refused(Make make) {
  const Failing failing(0, true);
  try {
    void* volatile const made = make();
    return made == nullptr;
  } catch (const std::bad_alloc&) {
    return true;
  }
}

TEST(libraries_and_both_ways_of_new_fail) {
  struct alignas(64) Line {
    char bytes[64];
  };
  CHECK(is_refused([] { return std::malloc(10); }));
  CHECK(is_refused([] { return std::calloc(1, 10); }));
  CHECK(is_refused([] { return std::realloc(nullptr, 10); }));
  CHECK(is_refused([] { return std::aligned_alloc(64, 64); }));
  CHECK(is_refused([] { return new std::string[9]; }));
  CHECK(is_refused([] { return new Line; }));
}

}  // namespace
}  // namespace fastload::test
