#include "remote/attempt.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace fastload {
namespace {

constexpr size_t kMaxText = 4096;  // of an error's body
constexpr long kShortBuffer = 64 << 10, kLongBuffer = 512 << 10;
constexpr uint64_t kLong = 1 << 20;
constexpr int kMaxRedirections = 5;

std::string range_text(uint64_t first, uint64_t last) {
  return std::to_string(first) + "-" + std::to_string(last);
}

// "host:port" of an address, without the port that goes without saying.
std::string host_of(const std::string& url) {
  const size_t scheme = url.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  std::string host = url.substr(begin, url.find_first_of("/?", begin) - begin);
  const std::string usual = url.starts_with("https:") ? ":443" : ":80";
  if (host.ends_with(usual)) host.resize(host.size() - usual.size());
  return host;
}

std::string path_of(const std::string& url) {
  const size_t path = url.find('/', url.find("://") + 3);
  return path == std::string::npos ? "/" : url.substr(path);
}

// A proxy that the environment names is not for this machine itself.
const std::string& no_proxy() {
  static const std::string hosts = [] {
    std::string named;
    for (const char* const name : {"no_proxy", "NO_PROXY"}) {
      const char* const value = std::getenv(name);
      if (value != nullptr && named.empty()) named = value;
    }
    return named == "*" ? named : (named.empty() ? "" : named + ",") + "localhost,127.0.0.1,::1";
  }();
  return hosts;
}

}  // namespace

Attempt::Attempt(const Curl& curl) : curl_(curl), handle_(curl.easy_init()) {
  if (handle_ == nullptr) throw Error(ErrorKind::kMemory, "no memory for a request to a store");
}

Attempt::~Attempt() {
  curl_.easy_cleanup(handle_);
  curl_.slist_free_all(headers_);
}

void Attempt::add_header(const std::string& line) {
  curl_slist* const longer = curl_.slist_append(headers_, line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  headers_ = longer;
}

void Attempt::add_headers(const RemoteOptions& options) {
  for (const auto& [name, value] : options.headers) {
    std::string line = name;
    add_header(line.append(": ").append(value));
  }
}

// Nothing of an answer is there.
void Attempt::begin_answer() {
  head_ = {};
  text_.clear();
  reason_.clear();
  words_[0] = '\0';
  checked_ = refused_ = final_ = truncated_ = moved_ = lacks_ranges_ = open_ended_ = false;
  got_ = 0;
}

void Attempt::prepare(Fetch& fetch, const RemoteOptions& options, const Secrets& secrets,
                      Signer& signer, Millis now, int64_t clock_offset) {
  fetch_ = &fetch;
  begin_answer();
  hedge = false;
  redirections_ = 0;
  started_ = last_moved = now;
  if (fetch.kind != Fetch::Kind::kRange) fetch.done = fetch.length = 0;
  from_ = fetch.done;
  expected_ = fetch.length - from_;
  counted_ = fetch.length;
  curl_.easy_reset(handle_);
  curl_.slist_free_all(headers_);
  headers_ = nullptr;
  set_address(options, secrets, signer, clock_offset);
  curl_.easy_setopt(handle_, CURLOPT_HTTPHEADER, headers_);
  set_transport(options);
  if (fetch.kind == Fetch::Kind::kRange) {
    const uint64_t begin = fetch.begin + from_;
    curl_.easy_setopt(handle_, CURLOPT_RANGE,
                      range_text(begin, fetch.begin + fetch.length - 1).c_str());
  } else if (fetch.kind == Fetch::Kind::kWhole && fetch.begin > 0) {
    curl_.easy_setopt(handle_, CURLOPT_RANGE, (std::to_string(fetch.begin) + "-").c_str());
  }
}

void Attempt::set_address(const RemoteOptions& options, const Secrets& secrets, Signer& signer,
                          int64_t clock_offset) {
  const std::string& path = fetch_->object->path;
  fetch_->credentials = secrets.version();
  const bool head = fetch_->kind == Fetch::Kind::kHead;
  if (options.signing == Signing::kPresigned) {
    const std::optional<std::string> url = secrets.url(path);
    if (!url) {
      throw Error(ErrorKind::kState, options.name + "/" + path + ": no address was signed for it");
    }
    address_ = *url;
    curl_.easy_setopt(handle_, CURLOPT_URL, url->c_str());
    // A token is for the store itself, not for the host that it has signed an address of.
    if (url->starts_with(options.base + "/")) add_headers(options);
    // What was signed is a GET.
    if (head) curl_.easy_setopt(handle_, CURLOPT_RANGE, "0-0");
    return;
  }
  const std::string url = options.base + "/" + encode_path(path);
  address_ = url;
  curl_.easy_setopt(handle_, CURLOPT_URL, url.c_str());
  add_headers(options);
  if (head) curl_.easy_setopt(handle_, CURLOPT_NOBODY, 1L);
  if (options.signing != Signing::kSigV4) return;
  const std::string host = host_of(url), encoded = path_of(url);
  const SignedRequest request{head ? "HEAD" : "GET", host, encoded, options.region};
  const std::time_t time = std::time(nullptr) + clock_offset;
  for (const std::string& line : signer.sign(request, secrets.credentials(), time))
    add_header(line);
}

void Attempt::set_transport(const RemoteOptions& options) {
  const auto set = curl_.easy_setopt;
  set(handle_, CURLOPT_PRIVATE, this);
  set(handle_, CURLOPT_ERRORBUFFER, words_.data());
  set(handle_, CURLOPT_HEADERFUNCTION, &Attempt::on_header);
  set(handle_, CURLOPT_HEADERDATA, this);
  set(handle_, CURLOPT_WRITEFUNCTION, &Attempt::on_body);
  set(handle_, CURLOPT_WRITEDATA, this);
  set(handle_, CURLOPT_NOSIGNAL, 1L);
  set(handle_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(handle_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.schedule.connect));
  set(handle_, CURLOPT_TCP_KEEPALIVE, 1L);
  set(handle_, CURLOPT_BUFFERSIZE, expected_ >= kLong ? kLongBuffer : kShortBuffer);
  set(handle_, CURLOPT_NOPROXY, no_proxy().c_str());
  set(handle_, CURLOPT_USERAGENT, "fastload");
  if (!options.ca_file.empty()) set(handle_, CURLOPT_CAINFO, options.ca_file.c_str());
#if LIBCURL_VERSION_NUM >= 0x075700
  set(handle_, CURLOPT_QUICK_EXIT, 1L);  // nobody waits for a name server that does not answer
#endif
}

// libcurl does not follow redirections here: of the headers that a user has given it would keep
// back Authorization and Cookie only, and send all others wherever a store points to.
void Attempt::follow(const RemoteOptions& options) {
  ++redirections_;
  address_ = moved_to_;
  begin_answer();
  curl_.slist_free_all(headers_);
  headers_ = nullptr;
  if (origin_of(address_) == origin_of(options.base)) add_headers(options);
  curl_.easy_setopt(handle_, CURLOPT_HTTPHEADER, headers_);
  curl_.easy_setopt(handle_, CURLOPT_URL, address_.c_str());
}

// Whether the answer points to another address, which is moved_to_ then, or to none that is
// followed, which is refused.
bool Attempt::is_redirected() {
  const int status = head_.status;
  if (status != 301 && status != 302 && status != 303 && status != 307 && status != 308) {
    return false;
  }
  char* address = nullptr;
  curl_.easy_getinfo(handle_, CURLINFO_REDIRECT_URL, &address);
  if (address == nullptr) return false;
  moved_to_ = address;
  const std::string origin = origin_of(moved_to_);
  if (!origin.starts_with("http://") && !origin.starts_with("https://")) {
    refuse("a redirection to an address that is not http:// or https://", true);
  } else if (redirections_ == kMaxRedirections) {
    refuse("more than " + std::to_string(kMaxRedirections) + " redirections", true);
  }
  return !refused_;
}

size_t Attempt::on_header(char* data, size_t size, size_t count, void* self) noexcept try {
  auto& attempt = *static_cast<Attempt*>(self);
  attempt.head_.add({data, size * count});
  attempt.moved_ = true;
  return size * count;
} catch (const std::exception&) {
  return 0;  // no memory: the request fails
}

size_t Attempt::on_body(char* data, size_t size, size_t count, void* self) noexcept try {
  return static_cast<Attempt*>(self)->take(data, size * count);
} catch (const std::exception&) {
  return 0;
}

// Anything but `count` ends the request.
size_t Attempt::take(const char* data, size_t count) {
  moved_ = true;
  if (!checked_) check_head();
  if (refused_) return 0;
  if (head_.status < 200 || head_.status >= 300) {
    text_.append(data, std::min(count, kMaxText - std::min(kMaxText, text_.size())));
    return count;
  }
  if (fetch_->kind == Fetch::Kind::kHead) return count;
  if (got_ + count > expected_) {
    refuse("more than the " + std::to_string(expected_) + " bytes " +
               (open_ended_ ? "that may come" : "asked for"),
           open_ended_);
    return 0;
  }
  if (fetch_->kind == Fetch::Kind::kRange) {
    std::memcpy(fetch_->memory + from_ + got_, data, count);
  } else {
    fetch_->whole.insert(fetch_->whole.end(), data, data + count);
  }
  got_ += count;
  return count;
}

void Attempt::refuse(std::string why, bool final) {
  refused_ = true;
  final_ = final;
  reason_ = std::move(why);
}

// Whether these are the bytes that were asked for; looked at before the first of them.
void Attempt::check_head() {
  checked_ = true;
  if (head_.status < 200 || head_.status >= 300) return;
  if (fetch_->kind == Fetch::Kind::kRange) return check_range();
  if (fetch_->kind == Fetch::Kind::kHead) {
    const bool ranged = head_.range && head_.range->size;
    if (!ranged && !head_.length) return refuse("an answer without the object's length", false);
    fetch_->length = ranged ? *head_.range->size : *head_.length;
    return check_object(fetch_->length);
  }
  if (fetch_->begin > 0 && (!head_.range || head_.range->first != fetch_->begin)) {
    return refuse("not the bytes from " + std::to_string(fetch_->begin) + " on", false);
  }
  if (!head_.length && head_.is_chunked) {
    expected_ = fetch_->most;
    open_ended_ = true;
    fetch_->whole.clear();
    return;
  }
  if (!head_.length) return refuse("an answer without a length", false);
  if (*head_.length > fetch_->most) {
    return refuse("an object of " + std::to_string(*head_.length) + " bytes, and " +
                      std::to_string(fetch_->most) + " at most may come",
                  true);
  }
  expected_ = *head_.length;
  fetch_->whole.clear();
  fetch_->whole.reserve(expected_);
  check_object(fetch_->begin + expected_);
}

void Attempt::check_range() {
  const uint64_t first = fetch_->begin + from_, last = fetch_->begin + fetch_->length - 1;
  if (head_.status == 200) {  // fine where the range is the whole object
    if (first != 0 || head_.length != expected_) {
      if (head_.is_html) return refuse("200 with an HTML page in place of the bytes", false);
      lacks_ranges_ = !head_.takes_ranges;
      return refuse(lacks_ranges_
                        ? "200 with the whole object in place of 206: this server gives no byte "
                          "ranges"
                        : "200 with another length in place of 206: the range was ignored",
                    false);
    }
    return check_object(expected_);
  }
  if (head_.status != 206 || !head_.range) {
    return refuse(status_text(head_.status) + " without a Content-Range", false);
  }
  if (head_.range->size && last >= *head_.range->size) {  // what is there came, and no more will
    truncated_ = true;
    return refuse("it has " + std::to_string(*head_.range->size) + " bytes, asked for are " +
                      range_text(first, last),
                  true);
  }
  if (head_.range->first != first || head_.range->last != last) {
    return refuse("bytes " + range_text(head_.range->first, head_.range->last) + " in place of " +
                      range_text(first, last),
                  false);
  }
  if (head_.length && *head_.length != expected_) {
    return refuse(
        "a length of " + std::to_string(*head_.length) + " bytes for " + std::to_string(expected_),
        false);
  }
  check_object(head_.range->size.value_or(fetch_->object->size));
}

// Whether it is the object that the answers before this were of.
void Attempt::check_object(uint64_t size) {
  RemoteObject& object = *fetch_->object;
  if (object.has_size && size != object.size) {
    truncated_ = true;
    return refuse("it has " + std::to_string(size) + " bytes, expected are " +
                      std::to_string(object.size) + ": it was replaced, or is damaged",
                  true);
  }
  if (head_.etag.empty() || head_.etag == object.etag) return;
  if (!object.etag.empty()) {
    return refuse("it was replaced while it was in use: its ETag is " + head_.etag + ", it was " +
                      object.etag,
                  true);
  }
  const std::lock_guard guard(Secrets::lock());  // for who forks
  object.etag = head_.etag;
}

void Attempt::stalled(Millis waited) {
  reason_ = "no byte for " + std::to_string(waited / 1000) + "." +
            std::to_string(waited / 100 % 10) + " s, " + std::to_string(got_) + " of " +
            std::to_string(expected_) + " bytes before";
}

Attempt::Outcome Attempt::finish(CURLcode code, const RemoteOptions& options) {
  if (!refused_ && code == CURLE_OK && !checked_) check_head();  // no body
  // What is signed for one host is not for another.
  if (!refused_ && options.signing != Signing::kSigV4 && is_redirected()) return Outcome::kMoved;
  if (refused_) return final_ ? Outcome::kFinal : Outcome::kAgain;
  if (head_.status >= 300) return judge_status(options);
  if (code != CURLE_OK) return judge_failure(code);
  if (head_.status < 200) {
    reason_ = "an answer without a status";
    return Outcome::kAgain;
  }
  if (fetch_->kind == Fetch::Kind::kHead || got_ == expected_ || open_ended_) {
    return Outcome::kDone;
  }
  reason_ = "the answer ended after " + std::to_string(got_) + " of " + std::to_string(expected_) +
            " bytes";
  return Outcome::kAgain;
}

Attempt::Outcome Attempt::judge_status(const RemoteOptions& options) {
  const std::string code = error_code(text_);
  reason_ = status_text(head_.status);
  if (!code.empty()) reason_ += " (" + code + ")";
  const std::string origin = origin_of(address_);
  if (redirections_ > 0 && !options.headers.empty() && origin != origin_of(options.base)) {
    reason_ += " by " + origin + ", which was redirected to and gets no headers of storage_options";
  }
  if (!head_.region.empty() && head_.status < 400) reason_ += ", it is in " + head_.region;
  switch (meaning_of(head_.status, code)) {
    case Meaning::kThrottled:
      return Outcome::kThrottled;
    case Meaning::kDenied:
      return Outcome::kDenied;
    case Meaning::kSkewed:
      return Outcome::kSkewed;
    case Meaning::kAgain:
      return Outcome::kAgain;
    default:
      return Outcome::kFinal;
  }
}

Attempt::Outcome Attempt::judge_failure(CURLcode code) {
  reason_ = words_[0] != '\0' ? words_.data() : curl_.easy_strerror(code);
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return Outcome::kUnreachable;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
      return Outcome::kFinal;
    default:
      return Outcome::kAgain;
  }
}

}  // namespace fastload
