#include "engine/pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "check.h"

namespace fastload {
namespace {

constexpr auto kItem = std::chrono::microseconds(200);

// Has a number of items, each a piece of time.
class Items final : public Pool::Client {
 public:
  Items(Pool& pool, int limit, bool behind) : Client(limit, limit, behind), pool_(pool) {
    pool_.attach(*this);
  }
  ~Items() override { pool_.detach(*this); }

  // `other`: whose items are counted that are done until these are.
  void add(int count, const Items* other = nullptr) {
    const std::lock_guard lock(pool_.mutex());
    left_ += count;
    other_ = other;
    before_ = other == nullptr ? 0 : other->done;
    pool_.work_added();
  }
  void wait() {
    std::unique_lock lock(pool_.mutex());
    done_.wait(lock, [this] { return left_ == 0 && in_hand_ == 0; });
  }
  int done = 0, most_in_hand = 0, others = 0;  // under the pool's mutex

 private:
  [[nodiscard]] bool has_work() const override { return left_ > 0; }
  void work(int, Scratch&) noexcept override {
    for (;;) {
      {
        const std::lock_guard lock(pool_.mutex());
        if (left_ == 0) return;
        --left_;
        most_in_hand = std::max(most_in_hand, ++in_hand_);
      }
      std::this_thread::sleep_for(kItem);
      {
        const std::lock_guard lock(pool_.mutex());
        --in_hand_;
        ++done;
        if (other_ != nullptr) others = other_->done - before_;
      }
      done_.notify_all();
      if (should_leave()) return;
    }
  }

  Pool& pool_;
  const Items* other_ = nullptr;
  int left_ = 0, in_hand_ = 0, before_ = 0;
  std::condition_variable done_;
};

TEST(a_client_behind_the_others_gives_its_thread_back_after_the_item_in_hand) {
  Pool& pool = Pool::of_process();
  Items behind(pool, 1, true), front(pool, 1, false);
  behind.add(500);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(5 * kItem);
    front.add(3, &behind);
    front.wait();
    CHECK_EQ(front.done, 3 * (round + 1));
    CHECK(front.others <= 1);
  }
  behind.wait();
  CHECK_EQ(behind.done, 500);
}

TEST(a_client_behind_the_others_has_all_threads_that_nobody_wants) {
  Pool& pool = Pool::of_process();
  Items behind(pool, 3, true), front(pool, 3, false);
  behind.add(60);
  behind.wait();
  CHECK_EQ(behind.done, 60);
  CHECK(behind.most_in_hand > 1);
  CHECK_EQ(pool.threads(), 3);
  front.add(60);
  front.wait();
  CHECK_EQ(front.done, 60);
}

TEST(of_two_behind_the_others_each_has_its_share) {
  Pool& pool = Pool::of_process();
  Items one(pool, 1, true), other(pool, 1, true);
  one.add(30);
  other.add(30);
  one.wait();
  other.wait();
  CHECK_EQ(one.done + other.done, 60);
}

}  // namespace
}  // namespace fastload
