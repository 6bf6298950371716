// The decoding threads of a process, shared by its loaders.
//
// DESIGN. Each loader's engine is a client. The pool has as many threads as the client that may use
// most of them; a client never has more threads at once than its limit, its *seats*. A thread works
// for one client as long as it finds work there, and comes back at once (`should_leave`) when
// another client with work has fewer threads; it then goes to the one that has fewest, the next in
// turn among equals. So loaders that are busy at the same time get equal shares of the threads, and
// a loader that is alone gets all of them and pays nothing: one relaxed load for each claim.
//
// A client may stand behind the others: it gets threads that no other wants, and gives them back
// when one does.
//
// One mutex guards the pool and the queues of all engines. Whoever makes a client's work available
// (a batch, a free seat, a higher limit) wakes one thread, and a thread that takes a seat wakes the
// next while there is more to take. After fork() the child has no threads: it gets a pool of its
// own, and the parent's is leaked there.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/scratch.h"

namespace fastload {

class Pool {
 public:
  static constexpr int kMaxThreads = 4096;

  // One loader's claim on the threads.
  class Client {
   public:
    // `limit` threads at once, never more than `seats`; 1 <= limit <= seats <= kMaxThreads, else
    // Error(kValue). `behind`: the others.
    Client(int limit, int seats, bool behind = false);
    virtual ~Client() = default;
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    [[nodiscard]] int seats() const { return static_cast<int>(taken_.size()); }
    // Nanoseconds in which a seat within the limit was empty. Under the pool's mutex.
    [[nodiscard]] uint64_t idle_ns(int seat) const;
    [[nodiscard]] bool within_limit(int seat) const { return seat < limit_; }
    [[nodiscard]] int limit() const { return limit_; }

   protected:
    // A thread should return from work() after what it has begun.
    [[nodiscard]] bool should_leave() const { return leave_.load(std::memory_order_relaxed); }

   private:
    friend class Pool;
    // Whether there is something to do. Called under the pool's mutex.
    [[nodiscard]] virtual bool has_work() const = 0;
    // Works until nothing is left or should_leave(), which may be so from the start: something must
    // be done before it is asked, or two clients hand a thread to and fro. Called without the
    // mutex, by one thread for a seat at a time.
    virtual void work(int seat, Scratch& scratch) noexcept = 0;

    [[nodiscard]] bool wants_thread() const { return active_ < limit_ && has_work(); }
    // Whether a thread that works for this client is wanted more by the other.
    [[nodiscard]] bool yields_to(const Client& other) const {
      if (behind_ != other.behind_) return behind_ && other.wants_thread();
      return other.active_ < active_ && other.wants_thread();
    }
    int sit();
    void rise(int seat);
    void change_limit(int limit);

    int limit_;
    const bool behind_;
    int active_ = 0;
    std::vector<char> taken_;          // by seat
    std::vector<uint64_t> idle_;       // ns, of the times that are over
    std::vector<uint64_t> free_from_;  // ns
    std::atomic<bool> leave_{false};
  };

  // This process's pool. It is never destroyed; without clients it has no threads.
  static Pool& of_process();
  Pool();

  // Lets threads work for `client`; missing ones are started. From now on threads are started on
  // the cores `cpus`, unless that is empty: on those of them that the calling thread may use, if
  // there are any. Throws Error(kState, kMemory) if they cannot be started.
  void attach(Client& client, const std::vector<int>& cpus = {});
  // Returns when no thread works for `client` any more, which must make them return from work().
  // Threads that no other client needs are ended. Idempotent. Takes no memory.
  void detach(Client& client);
  // Changes a client's limit, to 1 <= limit <= seats; else Error(kValue). Throws as attach().
  void set_limit(Client& client, int limit);
  // A client has new work. Under mutex().
  void work_added();

  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  [[nodiscard]] int threads();
  [[nodiscard]] pid_t owner() const { return owner_; }
  // Whether the calling thread is working for `client` right now.
  static bool is_working_for(const Client& client);

 private:
  struct Worker {
    std::thread thread;
    bool ending = false;
    Scratch scratch;  // made by who starts the thread, whom lack of memory can be told
  };
  using Workers = std::list<Worker>;  // moved from one to another without memory
  void run(Worker& worker);
  Client* next_client();
  void update();
  void wake();
  void start_missing();
  Workers surplus();
  static void join(Workers& workers);

  const pid_t owner_;
  std::mutex mutex_;
  std::condition_variable work_;  // for threads: a client wants one
  std::condition_variable left_;  // for detach(): a thread has left a client
  std::vector<Client*> clients_;
  size_t turn_ = 0;        // the client after the one that got a thread last
  std::vector<int> cpus_;  // where threads run; empty: where the thread that starts them does
  Workers workers_;
  int ending_ = 0;  // threads that have been told to end and have not looked yet
};

}  // namespace fastload
