// What the head of an HTTP answer says.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace fastload {

// "bytes 0-99/1000": first and last byte, and the object's size, which may be missing ("*").
struct ContentRange {
  uint64_t first = 0, last = 0;
  std::optional<uint64_t> size;
};
std::optional<ContentRange> parse_content_range(std::string_view value);

struct AnswerHead {
  int status = 0;
  std::string etag;
  std::string region;  // x-amz-bucket-region: where the bucket is
  std::optional<ContentRange> range;
  std::optional<uint64_t> length;
  std::optional<int64_t> retry_after;  // seconds
  std::optional<std::time_t> date;
  bool takes_ranges = false;  // Accept-Ranges: bytes
  bool is_chunked = false;    // its own end says where it ends
  bool is_html = false;       // a page for people

  // Takes a line; a status line begins anew, as after a redirection.
  void add(std::string_view line);
};

// "https://host:port" of an address, in small letters and with the port that goes without saying:
// two addresses are of the same server where these are equal, as browsers and curl see it.
std::string origin_of(std::string_view url);
// "503 Service Unavailable", say.
std::string status_text(int status);
// What stands between <Code> and </Code> in an S3 error; else the first line of the text,
// shortened.
std::string error_code(std::string_view body);

// What follows from a status.
enum class Meaning {
  kFine,       // 2xx
  kAgain,      // the store has a problem, or a proxy before it
  kThrottled,  // too many requests
  kDenied,     // 401, 403, or credentials that have expired: others may help
  kSkewed,     // this machine's clock is wrong
  kFinal,      // asking again gives the same
};
Meaning meaning_of(int status, std::string_view code);

}  // namespace fastload
