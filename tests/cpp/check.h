// A test harness in one header. A test file is named test_<word>.cpp and holds
//
//   TEST(name) { CHECK(condition); CHECK_EQ(found, wanted); CHECK_THROWS(kValue, "text",
//   expression); }
//
// A failed check ends its test and names file, line and values; the program goes on with the next
// test and exits with 1 at the end.
#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"

namespace fastload::test {

struct Test {
  std::string file;  // "test_base", without folder and suffix
  std::string name;
  std::function<void()> body;
};

// All tests of the program, in the order of registration.
std::vector<Test>& registry();

struct Registration {
  Registration(const char* path, const char* name, std::function<void()> body);
};

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

// Passes where `body` throws fastload::Error of this kind with `text` in its message.
void check_throws(ErrorKind kind, const std::string& text, const std::function<void()>& body,
                  const char* file, int line);

template <class A, class B>
void check_equal(const A& found, const B& wanted, const char* expression, const char* file,
                 int line) {
  if (found == wanted) return;
  std::ostringstream out;
  out << expression << " is " << +found << ", wanted " << +wanted;
  fail(file, line, out.str());
}

}  // namespace fastload::test

#define TEST(name)                                                                   \
  static void test_body_##name();                                                    \
  static const ::fastload::test::Registration registration_##name(__FILE__, #name,   \
                                                                  test_body_##name); \
  static void test_body_##name()

#define CHECK(condition) \
  if (!(condition)) ::fastload::test::fail(__FILE__, __LINE__, "not true: " #condition)

// For numbers.
#define CHECK_EQ(found, wanted) \
  ::fastload::test::check_equal((found), (wanted), #found, __FILE__, __LINE__)

#define CHECK_THROWS(kind, text, expression) \
  ::fastload::test::check_throws(            \
      ::fastload::ErrorKind::kind, (text), [&] { (void)(expression); }, __FILE__, __LINE__)
