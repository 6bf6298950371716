// What reading from stores decides without one: answers, signatures, and the schedule.
#include <algorithm>
#include <string>

#include "check.h"
#include "remote/answer.h"
#include "remote/schedule.h"
#include "remote/sha256.h"
#include "remote/signature.h"

namespace fastload {
namespace {

Schedule quick() {
  Schedule schedule;
  schedule.first_pause = 50;
  schedule.longest_pause = 5000;
  return schedule;
}

TEST(content_ranges_are_parsed) {
  const auto range = parse_content_range("bytes 10-99/1000");
  CHECK(range.has_value());
  CHECK_EQ(range->first, 10u);
  CHECK_EQ(range->last, 99u);
  CHECK_EQ(range->size.value(), 1000u);
  CHECK(!parse_content_range(" Bytes 0-0/*").value().size.has_value());
  for (const char* const wrong :
       {"", "bytes", "bytes 1-/5", "bytes -1/5", "bytes 5-4/9", "bytes 0-9/9", "items 0-1/2",
        "bytes 0-1", "bytes 0-1/x", "bytes 0x1-2/9", "bytes 0-18446744073709551616/9",
        "bytes */1000", "bytes 0/1-2"}) {
    CHECK(!parse_content_range(wrong).has_value());
  }
}

TEST(heads_are_parsed) {
  AnswerHead head;
  head.add("HTTP/1.1 302 Found\r\n");
  head.add("ETag: \"old\"\r\n");
  head.add("HTTP/1.1 206 Partial Content\r\n");
  CHECK(head.etag.empty());
  head.add("etag:\"new\"  \r\n");
  head.add("CONTENT-LENGTH: 90\r\n");
  head.add("Content-Range: bytes 10-99/1000\r\n");
  head.add("Retry-After: 7\r\n");
  head.add("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
  head.add("a line without a colon\r\n");
  CHECK_EQ(head.status, 206);
  CHECK(head.etag == "\"new\"");
  CHECK_EQ(head.length.value(), 90u);
  CHECK_EQ(head.range->last, 99u);
  CHECK_EQ(head.retry_after.value(), 7);
  CHECK_EQ(head.date.value(), 784111777);
  head.add("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
  CHECK_EQ(head.retry_after.value(), 0);  // long ago
  head.add("Retry-After: soon\r\n");
  CHECK(!head.retry_after.has_value());
}

TEST(heads_say_of_what_kind_a_body_is) {
  AnswerHead head;
  head.add("HTTP/1.1 200 OK\r\n");
  CHECK(!head.takes_ranges && !head.is_chunked && !head.is_html);
  head.add("Accept-Ranges: Bytes\r\n");
  head.add("Transfer-Encoding: gzip, Chunked\r\n");
  head.add("content-type: Text/HTML; charset=utf-8\r\n");
  CHECK(head.takes_ranges && head.is_chunked && head.is_html);
  head.add("Accept-Ranges: none\r\n");
  head.add("content-type: application/json\r\n");
  CHECK(!head.takes_ranges && !head.is_html);
}

TEST(servers_are_the_same_by_scheme_host_and_port) {
  CHECK(origin_of("https://host/a/b?c#d") == "https://host:443");
  CHECK(origin_of("HTTP://Host") == "http://host:80");
  CHECK(origin_of("http://host:80?x=/y") == origin_of("http://host/z"));
  CHECK(origin_of("https://host:443/") == origin_of("https://host"));
  CHECK(origin_of("http://user:pass@host:8080/x") == "http://host:8080");
  CHECK(origin_of("http://[::1]/x") == "http://[::1]:80");
  CHECK(origin_of("http://[::1]:9/x") == "http://[::1]:9");
  CHECK(origin_of("http://host/") != origin_of("https://host/"));
  CHECK(origin_of("http://host:81/") != origin_of("http://host/"));
  CHECK(origin_of("http://host.evil/") != origin_of("http://host/"));
  CHECK(origin_of("http://evil/?http://host/") != origin_of("http://host/"));
  CHECK(origin_of("http://host@evil/") != origin_of("http://host/"));
  CHECK(origin_of("no address") == "");
}

TEST(statuses_have_meanings) {
  CHECK(meaning_of(206, "") == Meaning::kFine);
  CHECK(meaning_of(503, "") == Meaning::kThrottled);
  CHECK(meaning_of(429, "") == Meaning::kThrottled);
  CHECK(meaning_of(500, "") == Meaning::kAgain);
  CHECK(meaning_of(400, "RequestTimeout") == Meaning::kAgain);
  CHECK(meaning_of(400, "ExpiredToken") == Meaning::kDenied);
  CHECK(meaning_of(403, "RequestTimeTooSkewed") == Meaning::kSkewed);
  CHECK(meaning_of(403, "AccessDenied") == Meaning::kDenied);
  CHECK(meaning_of(404, "NoSuchKey") == Meaning::kFinal);
  CHECK(error_code("<Error><Code>SlowDown</Code><M/></Error>") == "SlowDown");
  CHECK(error_code("\n plain\x01words\nmore") == "plain?words");
  CHECK(error_code("<Code>never closed") == "never closed");
}

// FIPS 180-4's and RFC 4231's examples.
TEST(digests_are_the_standards) {
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(paths_are_encoded) {
  CHECK(encode_path("a b/\xc3\xbc+c&d=(1)~'") == "a%20b/%C3%BC%2Bc%26d%3D%281%29~%27");
}

TEST(pauses_double_up_to_a_bound) {
  const Schedule schedule = quick();
  CHECK_EQ(pause(schedule, 1, 0.0), 0);
  CHECK_EQ(pause(schedule, 1, 0.5), 25);
  CHECK_EQ(pause(schedule, 2, 0.5), 50);
  CHECK_EQ(pause(schedule, 5, 0.5), 400);
  CHECK_EQ(pause(schedule, 8, 0.5), 2500);
  CHECK_EQ(pause(schedule, 1000, 0.5), 2500);
}

TEST(requests_are_late_by_their_like) {
  Latencies latencies;
  CHECK(!latencies.p95(1000).has_value());
  for (int i = 0; i < 100; ++i) latencies.add(1000, 10 + i % 2);
  for (int i = 0; i < 100; ++i) latencies.add(8 << 20, 1000);
  CHECK_EQ(latencies.p95(1000).value(), 11);
  CHECK_EQ(latencies.p95(8 << 20).value(), 1000);
  CHECK(!latencies.p95(1 << 20).has_value());
  const Schedule schedule = quick();
  const Hedging hedging(schedule);
  CHECK(!hedging.is_late(49, latencies.p95(1000)));  // twice p95, but under the floor
  CHECK(hedging.is_late(50, latencies.p95(1000)));
  CHECK(!hedging.is_late(1999, latencies.p95(8 << 20)));
  CHECK(hedging.is_late(2000, latencies.p95(8 << 20)));
  CHECK(!hedging.is_late(1'000'000, {}));
  CHECK(!hedging.may_send(49, 0));
  CHECK(hedging.may_send(50, 0));
  CHECK(!hedging.may_send(99, 1));
  CHECK(hedging.may_send(100, 1));
}

// Bytes of a window of 250 ms in which everything that was allowed was in flight.
void window(InFlight& in_flight, Millis& now, uint64_t bytes, bool full = true) {
  in_flight.moved(now, 0, full);
  now += 250;
  in_flight.moved(now, bytes, full);
}

TEST(more_are_in_flight_while_it_pays) {
  const Schedule schedule = quick();
  InFlight in_flight(schedule);
  Millis now = 0;
  CHECK_EQ(in_flight.limit(), 64u);
  for (int i = 0; i < 30; ++i) window(in_flight, now, in_flight.limit() * 1000);
  CHECK_EQ(in_flight.limit(), 256u);
}

TEST(no_more_are_in_flight_than_pays) {
  const Schedule schedule = quick();
  InFlight in_flight(schedule);
  Millis now = 0;
  size_t most = 0;
  for (int i = 0; i < 100; ++i) {
    window(in_flight, now, 64'000);
    most = std::max(most, in_flight.limit());
  }
  CHECK_EQ(most, 80u);
  CHECK(in_flight.limit() <= 80);
  InFlight idle(schedule);
  for (int i = 0; i < 100; ++i) window(idle, now, 64'000 * static_cast<uint64_t>(i + 1), false);
  CHECK_EQ(idle.limit(), 64u);  // nothing was waiting
}

TEST(bytes_in_flight_follow_the_line) {
  const Schedule schedule = quick();
  InFlight in_flight(schedule);
  Millis now = 0;
  CHECK_EQ(in_flight.bytes_limit(), InFlight::kLeastBytes);
  window(in_flight, now, 25'000'000, false);  // 100 MB/s
  CHECK_EQ(in_flight.bytes_limit(), 25'000'000u);
  window(in_flight, now, 250'000'000, false);
  CHECK_EQ(in_flight.bytes_limit(), 250'000'000u);
  window(in_flight, now, 1'000'000, false);
  CHECK_EQ(in_flight.bytes_limit(), InFlight::kLeastBytes);
}

TEST(throttling_halves_them_once_a_second) {
  const Schedule schedule = quick();
  InFlight in_flight(schedule);
  in_flight.throttled(10);
  in_flight.throttled(20);
  CHECK_EQ(in_flight.limit(), 32u);
  in_flight.throttled(1010);
  CHECK_EQ(in_flight.limit(), 16u);
  in_flight.throttled(9000);
  CHECK_EQ(in_flight.limit(), 16u);
}

TEST(retries_have_a_budget) {
  const Schedule schedule = quick();
  RetryBudget budget(schedule);
  int taken = 0;
  while (budget.take()) ++taken;
  CHECK_EQ(taken, 64);
  for (int i = 0; i < 11; ++i) budget.succeeded();
  CHECK(budget.take());
  CHECK(!budget.take());
}

TEST(who_cannot_be_reached_is_tried_one_at_a_time) {
  const Schedule schedule = quick();
  Breaker breaker(schedule);
  for (int i = 0; i < 2; ++i) breaker.unreachable(0, 0.5);
  CHECK(breaker.may_send(0));
  for (int i = 0; i < 50; ++i) breaker.unreachable(0, 0.5);  // all that were in flight
  CHECK(breaker.is_open());
  CHECK(!breaker.may_send(0));
  CHECK(breaker.may_send(50));
  breaker.sent(50);
  CHECK(!breaker.may_send(60));
  Millis now = 60, last = 0;
  for (int i = 0; i < 12; ++i) {
    breaker.unreachable(now, 0.0);
    CHECK(breaker.probe_at() - now >= last);
    last = breaker.probe_at() - now;
    now = breaker.probe_at();
    breaker.sent(now);
  }
  CHECK_EQ(last, 2500);
  breaker.answered();
  CHECK(breaker.may_send(now));
}

}  // namespace
}  // namespace fastload
