// Reads that may be given up, because they wait for a store that does not answer: what a thread
// reads while a scope lives ends, with an error, once that is asked for. Local files know nothing
// of it: their reads end soon.
#pragma once

#include <mutex>
#include <stop_token>

namespace fastload {

// Safe to use from many threads.
class ReadStop {
 public:
  // Ends reads that are under way; later ones go on.
  void interrupt() {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    source_.request_stop();
    source_ = std::stop_source();
  }
  // Ends later ones, too.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    source_.request_stop();
  }
  [[nodiscard]] std::stop_token token() {
    const std::lock_guard lock(mutex_);
    return source_.get_token();
  }

 private:
  std::mutex mutex_;
  bool stopped_ = false;
  std::stop_source source_;
};

class ReadScope {
 public:
  // `stop` must outlive the scope.
  explicit ReadScope(ReadStop& stop) : before_(current_) { current_ = &stop; }
  ~ReadScope() { current_ = before_; }
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;

  // Of this thread; without a scope one that nobody stops.
  static std::stop_token token() {
    return current_ == nullptr ? std::stop_token() : current_->token();
  }

 private:
  static inline thread_local ReadStop* current_ = nullptr;
  ReadStop* const before_;
};

}  // namespace fastload
