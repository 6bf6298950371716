// The pool and engines on it, from many threads: meant for ThreadSanitizer.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/engine.h"
#include "plain_job.h"
#include "tiny_dataset.h"

namespace fastload::test {
namespace {

// Units of work of a given length, counted.
class Units final : public Pool::Client {
 public:
  Units(int limit, int seats, int microseconds, std::vector<const Units*>* log = nullptr)
      : Client(limit, seats), length_(microseconds), log_(log) {}
  void add(Pool& pool, int units) {
    const std::lock_guard lock(pool.mutex());
    left_ += units;
    pool.work_added();
  }
  void wait_until_done(int units) const {
    while (done_ < units) std::this_thread::yield();
  }
  [[nodiscard]] int done() const { return done_; }
  [[nodiscard]] int most() const { return most_; }

 private:
  [[nodiscard]] bool has_work() const override { return left_ > 0; }
  void work(int /*seat*/, Scratch& /*scratch*/) noexcept override {
    const int now = ++now_;
    int most = most_;
    while (most < now && !most_.compare_exchange_weak(most, now)) {
    }
    while (take()) {
      std::this_thread::sleep_for(std::chrono::microseconds(length_));
      if (log_ != nullptr) log_->push_back(this);
      ++done_;
      if (should_leave()) break;
    }
    --now_;
  }

  bool take() {
    int left = left_;
    while (left > 0 && !left_.compare_exchange_weak(left, left - 1)) {
    }
    return left > 0;
  }

  const int length_;
  std::vector<const Units*>* const log_;
  std::atomic<int> left_{0}, done_{0}, now_{0}, most_{0};
};

struct Order {
  explicit Order(std::vector<int64_t> wanted)
      : ids(std::move(wanted)), images(ids.size() * kTinyBytes), labels(ids.size()) {}
  BatchRequest request() { return plain_request(plain_plan(2), images, labels, ids); }
  [[nodiscard]] bool is_right(int64_t first_label = 0) const {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (labels[i] != ids[i] + first_label) return false;
      if (images[i * kTinyBytes + 5] != static_cast<uint8_t>(ids[i])) return false;
    }
    return true;
  }

  std::vector<int64_t> ids;
  std::vector<uint8_t> images;
  std::vector<int64_t> labels;
};

std::vector<int64_t> first_ids(size_t count) {
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

EnginePointer engine_of(const TinyDataset& data, int threads, int most = 0) {
  return make_engine(Sources({{data.reader(), nullptr, {}, 0}}), plain_plan(2), {threads, most, {}},
                     nullptr, ReadAheadPlan{1 << 20, 1});
}

void fill(Engine& engine, size_t size) {
  Order order(first_ids(size));
  const Engine::Ticket ticket = engine.submit(order.request());
  CHECK(engine.wait(ticket, 60.0));
  CHECK_EQ(engine.collect(ticket).size(), 0u);
  CHECK(order.is_right());
}

}  // namespace

TEST(a_client_has_no_more_threads_than_its_limit) {
  Pool pool;
  Units wide(4, 4, 50), narrow(2, 4, 50);
  pool.attach(wide);
  pool.attach(narrow);
  CHECK_EQ(pool.threads(), 4);
  wide.add(pool, 100);
  narrow.add(pool, 100);
  wide.wait_until_done(100);
  narrow.wait_until_done(100);
  CHECK(narrow.most() <= 2);
  pool.set_limit(narrow, 4);
  narrow.add(pool, 200);
  narrow.wait_until_done(300);
  pool.detach(wide);
  CHECK_EQ(pool.threads(), 4);
  pool.detach(narrow);
  CHECK_EQ(pool.threads(), 0);
}

TEST(busy_clients_take_turns) {
  Pool pool;
  std::vector<const Units*> log;  // by one thread alone
  Units first(1, 1, 10, &log), second(1, 1, 10, &log);
  pool.attach(first);
  pool.attach(second);
  first.add(pool, 100'000);
  first.wait_until_done(20);
  second.add(pool, 200);
  second.wait_until_done(200);
  pool.detach(first);  // with work left
  pool.detach(second);
  const auto begin = std::find(log.begin(), log.end(), &second);
  CHECK(begin - log.begin() >= 20);
  CHECK_EQ(std::count(begin, begin + 100, &first), 50);
}

TEST(limits_are_checked) {
  Pool pool;
  CHECK_THROWS(kValue, "threads must be 1 to 4096. Found: 0", Units(0, 1, 0));
  CHECK_THROWS(kValue, "Found: 3, at most 2", Units(3, 2, 0));
  Units client(1, 2, 0);
  pool.attach(client);
  CHECK_THROWS(kValue, "threads must be 1 to 2. Found: 3", pool.set_limit(client, 3));
  pool.detach(client);
  pool.detach(client);
}

TEST(engines_fill_batches_at_once) {
  const TinyDataset data(500);
  std::atomic<int> wrong{0};
  std::vector<std::thread> consumers;
  for (int consumer = 0; consumer < 4; ++consumer) {
    consumers.emplace_back([&, consumer] {
      try {
        for (int turn = 0; turn < 20; ++turn) {
          const EnginePointer engine = engine_of(data, 1 + (consumer + turn) % 3, 3);
          fill(*engine, 400);
          engine->set_threads(1 + turn % 3);
          fill(*engine, 37);
          Order cancelled(first_ids(300));
          engine->cancel(engine->submit(cancelled.request()));
          Order dropped(first_ids(300));
          engine->submit(dropped.request());
          for (int seat = 0; seat < engine->seats(); ++seat) engine->thread_stats(seat);
          engine->close();
          engine->close();
        }
      } catch (const std::exception&) {
        ++wrong;
      }
    });
  }
  for (std::thread& consumer : consumers) consumer.join();
  CHECK_EQ(wrong.load(), 0);
  CHECK_EQ(Pool::of_process().threads(), 0);
}

TEST(sources_are_read_as_one) {
  const TinyDataset first(10), second(20);
  const Sources sources({{first.reader(), nullptr, {}, 0}, {second.reader(), nullptr, {}, 0}});
  CHECK_EQ(sources.find(9).id, 9u);
  CHECK(sources.find(9).source->reader == first.reader());
  CHECK_EQ(sources.find(10).id, 0u);
  CHECK(sources.find(29).source->reader == second.reader());
  CHECK_EQ(sources.find(30).id, 20u);
  const Source mapped{first.reader(), nullptr, {7, 5}, 0};
  CHECK_EQ(mapped.label(0), 7);
  CHECK_EQ(mapped.label(-1), -1);
  CHECK_EQ(mapped.label(2), 2);
  CHECK_THROWS(kValue, "needs a dataset", Sources({}));
}

}  // namespace fastload::test
