// What a store answers, and what is sent to one: lines of a head, an error's text, a path. Numbers
// of a head are what this file's own, plain reading finds; what goes into messages can be printed;
// an encoded path says what the path said; a signature is of one line a header.
//
// Input: a control byte (which of them), the text.
#include <cctype>
#include <optional>
#include <string>

#include "input.h"
#include "remote/answer.h"
#include "remote/signature.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The digits that the text begins with, as a number: taken away; nothing for none and above 2^64.
std::optional<uint64_t> take_number(std::string_view& text) {
  uint64_t value = 0;
  size_t digits = 0;
  for (; digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])); ++digits) {
    const auto digit = static_cast<uint64_t>(text[digits] - '0');
    if (value > (~uint64_t{0} - digit) / 10) return {};
    value = value * 10 + digit;
  }
  text.remove_prefix(digits);
  return digits == 0 ? std::nullopt : std::optional(value);
}

bool take(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

// RFC 9110, 14.4: bytes FIRST-LAST/SIZE, or * for a size that is not known.
std::optional<ContentRange> plain_range(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  for (const char letter : std::string_view("bytes")) {
    if (text.empty() || std::tolower(static_cast<unsigned char>(text.front())) != letter) return {};
    text.remove_prefix(1);
  }
  if (!take(text, ' ')) return {};
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  const auto first = take_number(text);
  if (!first || !take(text, '-')) return {};
  const auto last = take_number(text);
  if (!last || !take(text, '/') || *last < *first) return {};
  if (text == "*") return ContentRange{*first, *last, {}};
  const auto size = take_number(text);
  if (!size || !text.empty() || *size <= *last) return {};
  return ContentRange{*first, *last, size};
}

void check_range(std::string_view text) {
  const auto found = parse_content_range(text), wanted = plain_range(text);
  FUZZ_CHECK(found.has_value() == wanted.has_value());
  if (!found) return;
  FUZZ_CHECK(found->first == wanted->first && found->last == wanted->last);
  FUZZ_CHECK(found->size == wanted->size);
}

void check_head(std::string_view text) {
  AnswerHead head;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    head.add(text.substr(0, end));
    text.remove_prefix(end);
  }
  FUZZ_CHECK(head.status >= 0 && head.status <= 999);
  FUZZ_CHECK(!head.retry_after || *head.retry_after >= 0);
  FUZZ_CHECK(!head.range || head.range->first <= head.range->last);
  FUZZ_CHECK(!status_text(head.status).empty());
  static_cast<void>(meaning_of(head.status, head.etag));
}

void check_error(std::string_view text) {
  const std::string code = error_code(text);
  const bool is_xml = text.find("<Code>") != std::string_view::npos;
  FUZZ_CHECK(is_xml || code.size() <= 120);
  for (const char c : code) FUZZ_CHECK(is_xml || (c >= ' ' && c < 127));
  FUZZ_CHECK(meaning_of(200, code) == Meaning::kFine);
  FUZZ_CHECK(meaning_of(500, code) != Meaning::kFine);
}

void check_path(std::string_view path) {
  const std::string encoded = encode_path(path);
  std::string again;
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != '%') {
      FUZZ_CHECK(std::isalnum(static_cast<unsigned char>(encoded[i])) ||
                 std::string_view("-_.~/").find(encoded[i]) != std::string_view::npos);
      again.push_back(encoded[i]);
      continue;
    }
    FUZZ_CHECK(i + 2 < encoded.size());
    again.push_back(static_cast<char>(std::stoi(encoded.substr(i + 1, 2), nullptr, 16)));
    i += 2;
  }
  FUZZ_CHECK(again == path);
  Signer signer, other;
  const SignedRequest request{"GET", "store.example.org", encoded, "region"};
  const auto lines = signer.sign(request, {"key", "secret", ""}, 1'700'000'000);
  for (const std::string& line : lines) FUZZ_CHECK(line.find_first_of("\r\n") == std::string::npos);
  // The key of the day that is kept is the one that is made anew.
  static_cast<void>(other.sign(request, {"key", "secret", ""}, 1'600'000'000));
  FUZZ_CHECK(other.sign(request, {"key", "secret", ""}, 1'700'000'000) == lines);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      check_range(text);
      break;
    case 1:
      check_head(text);
      break;
    case 2:
      check_error(text);
      break;
    default:
      check_path(text);
  }
  return 0;
}
