// A place of objects that are read by HTTP requests: a bucket, or a folder of a web server.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/byte_source.h"
#include "remote/event_loop.h"
#include "remote/options.h"
#include "remote/secrets.h"

namespace fastload {

// Safe to use from many threads. In a forked child it has a thread and connections of its own.
class RemoteStore {
 public:
  // Nothing is sent before something is read. Throws Error(kValue).
  RemoteStore(RemoteOptions options, Credentials credentials);
  ~RemoteStore();
  RemoteStore(const RemoteStore&) = delete;
  RemoteStore& operator=(const RemoteStore&) = delete;

  [[nodiscard]] const std::string& name() const { return options_.name; }
  void set_credentials(Credentials credentials) { secrets_.set(std::move(credentials)); }
  void set_urls(const std::unordered_map<std::string, std::string>& urls) { secrets_.set(urls); }

  struct Head {
    uint64_t size;
    std::string etag;
  };
  // Nothing where there is no such object. Throws Error(kIo, kState).
  std::optional<Head> head(const std::string& path);
  static constexpr uint64_t kMostAtOnce = uint64_t{1} << 32;
  // The bytes [begin, end), or to the object's end, if those are not more than `most`. Throws
  // Error(kIo, kState).
  std::vector<uint8_t> get(const std::string& path, uint64_t begin, std::optional<uint64_t> end,
                           uint64_t most = kMostAtOnce);
  // Fills memory with the bytes from `begin` on. Throws the same.
  void read_into(const std::string& path, uint64_t begin, std::span<uint8_t> memory);
  // Fills in ranges of an object as ByteSource::read.
  void read(const std::shared_ptr<RemoteObject>& object, std::span<RangeRequest> ranges);
  // The longest range that is not cut.
  [[nodiscard]] size_t longest() const { return options_.schedule.part; }
  // How many ranges it is worth to ask for at once.
  [[nodiscard]] size_t in_flight() const;
  [[nodiscard]] RemoteCounts counts() const;
  // A record came with other bytes than were packed, and right when it was asked for again.
  void came_damaged(const std::string& record) noexcept;
  // Ends all reads with an error, those to come, too. Idempotent.
  void close();

 private:
  EventLoop& loop();
  void run(Call& call);
  void wait(EventLoop& loop, Call& call);

  const RemoteOptions options_;
  Secrets secrets_;
  std::atomic<EventLoop*> loop_{nullptr};
  std::atomic<bool> closed_{false}, damage_said_{false};
};

// An object of `size` bytes as a source. Asks nothing: each answer is checked against the size, and
// against the ETag of the first, or the one given.
std::unique_ptr<ByteSource> open_remote(std::shared_ptr<RemoteStore> store, const std::string& path,
                                        uint64_t size, const std::string& etag);

}  // namespace fastload
