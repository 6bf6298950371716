// One HTTP request: what is sent, and whether what comes is what was asked for.
#pragma once

#include <array>
#include <string>

#include "remote/answer.h"
#include "remote/curl.h"
#include "remote/fetch.h"
#include "remote/options.h"
#include "remote/secrets.h"

namespace fastload {

// The event thread's. Bytes go straight to where their fetch wants them: two attempts at one range
// write the same bytes to the same places.
class Attempt {
 public:
  enum class Outcome {
    kDone,
    kMoved,  // to another address: follow()
    kAgain,
    kThrottled,
    kUnreachable,
    kDenied,
    kSkewed,
    kFinal,
  };

  explicit Attempt(const Curl& curl);
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // Throws Error(kState) where there is no address for the path.
  void prepare(Fetch& fetch, const RemoteOptions& options, const Secrets& secrets, Signer& signer,
               Millis now, int64_t clock_offset);
  // What came of it; reason() says it in words. `now` for what was received last.
  Outcome finish(CURLcode code, const RemoteOptions& options);
  // After kMoved: the same request, to where the answer points.
  void follow(const RemoteOptions& options);
  // Without an end: it has stalled.
  void stalled(Millis waited);

  [[nodiscard]] CURL* handle() const { return handle_; }
  [[nodiscard]] Fetch& fetch() const { return *fetch_; }
  [[nodiscard]] const AnswerHead& head() const { return head_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] bool truncated() const { return truncated_; }
  // An answer came, and its bytes are not those that were asked for.
  [[nodiscard]] bool refused() const { return refused_; }
  // The whole object came in place of a range, by a server that promises no ranges.
  [[nodiscard]] bool lacks_ranges() const { return lacks_ranges_; }
  [[nodiscard]] uint64_t got() const { return got_; }                      // bytes
  [[nodiscard]] uint64_t progress() const { return refused_ ? 0 : got_; }  // that may be used
  [[nodiscard]] uint64_t counted() const { return counted_; }  // bytes that it may bring
  [[nodiscard]] uint64_t from() const { return from_; }        // in the fetch
  [[nodiscard]] Millis started() const { return started_; }
  // Whether bytes have come since it was last asked.
  [[nodiscard]] bool moved() {
    const bool moved = moved_;
    moved_ = false;
    return moved;
  }
  Millis last_moved = 0;
  bool hedge = false;

 private:
  static size_t on_header(char* data, size_t size, size_t count, void* self) noexcept;
  static size_t on_body(char* data, size_t size, size_t count, void* self) noexcept;
  size_t take(const char* data, size_t count);
  void check_head();
  void check_range();
  void check_object(uint64_t size);
  void refuse(std::string why, bool final);
  void add_header(const std::string& line);
  void add_headers(const RemoteOptions& options);
  void begin_answer();
  bool is_redirected();
  void set_address(const RemoteOptions& options, const Secrets& secrets, Signer& signer,
                   int64_t clock_offset);
  void set_transport(const RemoteOptions& options);
  Outcome judge_status(const RemoteOptions& options);
  Outcome judge_failure(CURLcode code);

  const Curl& curl_;
  CURL* const handle_;
  curl_slist* headers_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> words_{};
  Fetch* fetch_ = nullptr;
  AnswerHead head_;
  std::string text_;     // of an error
  std::string address_;  // where it was sent
  std::string moved_to_;
  std::string reason_;
  uint64_t from_ = 0, got_ = 0, expected_ = 0, counted_ = 0;
  Millis started_ = 0;
  int redirections_ = 0;
  bool checked_ = false, refused_ = false, final_ = false, truncated_ = false, moved_ = false;
  bool lacks_ranges_ = false, open_ended_ = false;
};

}  // namespace fastload
