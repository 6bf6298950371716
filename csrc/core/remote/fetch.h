// What is asked for of a store, and what becomes of it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "remote/schedule.h"

namespace fastload {

// What must stay the same in all answers. Written by the event thread.
struct RemoteObject {
  std::string path;  // in the store
  bool has_size = false;
  uint64_t size = 0;
  std::string etag;  // empty: no answer has named one
};

struct Call;

// One range (or all, or only the head) of an object. Belongs to the event thread from submit()
// until its call has heard of its end.
struct Fetch {
  enum class Kind { kRange, kWhole, kHead };
  Kind kind = Kind::kRange;
  std::shared_ptr<RemoteObject> object;
  uint64_t begin = 0, length = 0;  // of a range
  uint64_t most = 0;               // bytes of a whole object; the store may say any number
  uint8_t* memory = nullptr;       // of a range
  Call* call = nullptr;

  // What came of it.
  std::vector<uint8_t> whole;
  bool missing = false;  // 404: to a kHead that is no error
  std::exception_ptr error;
  bool spent = false;  // the error came after all tries and all patience

  // The event thread's.
  uint64_t done = 0;  // bytes from the begin that are there
  int tries = 0, attempts = 0;
  bool hedged = false, renewed = false, clock_set = false, finished = false;
  uint64_t credentials = 0;  // those of the last try
  Millis waits_since = -1;   // since it was first sent, or could not be
  Millis due = 0;            // the next try
  std::string last_answer;
};

// Fetches whose end one thread waits for.
struct Call {
  std::vector<Fetch> fetches;

  std::mutex mutex;  // guards the following
  std::condition_variable changed;
  size_t left = 0;
  std::deque<Fetch*> denied;  // wait for other credentials, and belong to the thread that waits
  std::string notice;         // for RemoteOptions::warn
  bool cancelled = false;     // the event thread knows nothing of it any more
};

// Its end. After this its thread may take it away.
void finish(Fetch& fetch, std::exception_ptr error) noexcept;

}  // namespace fastload
