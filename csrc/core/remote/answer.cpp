#include "remote/answer.h"

#include <charconv>
#include <string>

namespace fastload {
namespace {

constexpr size_t kMaxWords = 120;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// All of the text as a number.
std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::optional<std::time_t> http_date(std::string_view text) {
  std::tm parts{};
  const std::string copy(text);
  if (::strptime(copy.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) == nullptr) return {};
  return ::timegm(&parts);
}

std::optional<int64_t> seconds_until(std::string_view value) {
  if (const auto seconds = number(value)) {
    return static_cast<int64_t>(std::min<uint64_t>(*seconds, 1 << 30));
  }
  const auto date = http_date(value);
  if (!date) return {};
  return std::max<int64_t>(0, *date - std::time(nullptr));
}

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view value) {
  value = trimmed(value);
  constexpr std::string_view kUnit = "bytes ";
  if (lower(value.substr(0, kUnit.size())) != kUnit) return {};
  value = trimmed(value.substr(kUnit.size()));
  const size_t dash = value.find('-'), slash = value.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return {};
  const auto first = number(value.substr(0, dash));
  const auto last = number(value.substr(dash + 1, slash - dash - 1));
  const std::string_view size = value.substr(slash + 1);
  if (!first || !last || *last < *first) return {};
  ContentRange range{*first, *last, number(size)};
  if (!range.size && size != "*") return {};
  if (range.size && *range.size <= range.last) return {};
  return range;
}

void AnswerHead::add(std::string_view line) {
  if (line.starts_with("HTTP/")) {
    *this = {};
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return;
    status = static_cast<int>(number(line.substr(space + 1, 3)).value_or(0));
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = lower(trimmed(line.substr(0, colon)));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "etag") etag = value;
  if (name == "x-amz-bucket-region") region = value;
  if (name == "content-range") range = parse_content_range(value);
  if (name == "content-length") length = number(value);
  if (name == "retry-after") retry_after = seconds_until(value);
  if (name == "date") date = http_date(value);
  if (name == "accept-ranges") takes_ranges = lower(value) == "bytes";
  if (name == "transfer-encoding") is_chunked = lower(value).ends_with("chunked");
  if (name == "content-type") is_html = lower(value).starts_with("text/html");
}

std::string origin_of(std::string_view url) {
  const size_t scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return {};
  const size_t begin = scheme_end + 3;
  std::string_view host = url.substr(begin, url.find_first_of("/?#", begin) - begin);
  const size_t user = host.rfind('@');
  if (user != std::string_view::npos) host.remove_prefix(user + 1);
  std::string origin = lower(url.substr(0, begin)).append(lower(host));
  const size_t port = host.rfind(':');
  const size_t bracket = host.rfind(']');  // of an IPv6 address, which has colons itself
  const bool has_port =
      port != std::string_view::npos && (bracket == std::string_view::npos || port > bracket);
  if (!has_port) origin += origin.starts_with("https:") ? ":443" : ":80";
  return origin;
}

std::string status_text(int status) {
  const char* words = "";
  switch (status) {
    case 301:
      words = " Moved Permanently";
      break;
    case 302:
      words = " Found";
      break;
    case 307:
      words = " Temporary Redirect";
      break;
    case 400:
      words = " Bad Request";
      break;
    case 401:
      words = " Unauthorized";
      break;
    case 403:
      words = " Forbidden";
      break;
    case 404:
      words = " Not Found";
      break;
    case 412:
      words = " Precondition Failed";
      break;
    case 416:
      words = " Range Not Satisfiable";
      break;
    case 429:
      words = " Too Many Requests";
      break;
    case 500:
      words = " Internal Server Error";
      break;
    case 502:
      words = " Bad Gateway";
      break;
    case 503:
      words = " Service Unavailable";
      break;
    case 504:
      words = " Gateway Timeout";
      break;
    default:
      break;
  }
  return std::to_string(status) + words;
}

std::string error_code(std::string_view body) {
  constexpr std::string_view kOpen = "<Code>", kClose = "</Code>";
  const size_t open = body.find(kOpen);
  if (open != std::string_view::npos) {
    body.remove_prefix(open + kOpen.size());
    const size_t close = body.find(kClose);
    if (close != std::string_view::npos) return std::string(body.substr(0, close));
  }
  body = trimmed(body);
  std::string words;
  for (const char c : body.substr(0, std::min(body.find('\n'), kMaxWords))) {
    words.push_back(c >= ' ' && c < 127 ? c : '?');  // it goes into messages
  }
  return words;
}

Meaning meaning_of(int status, std::string_view code) {
  if (status >= 200 && status < 300) return Meaning::kFine;
  if (status == 429 || status == 503 || code == "SlowDown") return Meaning::kThrottled;
  if (code == "RequestTimeTooSkewed") return Meaning::kSkewed;
  if (status == 401 || status == 403 || code == "ExpiredToken") return Meaning::kDenied;
  if (status == 408 || status >= 500 || code == "RequestTimeout") return Meaning::kAgain;
  return Meaning::kFinal;
}

}  // namespace fastload
