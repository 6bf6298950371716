// Runs the tests of the files named on the command line, or all: fastload_tests [test_base ...]
#include <cstdio>
#include <cstring>
#include <exception>

#include "check.h"

namespace fastload::test {

std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

Registration::Registration(const char* path, const char* name, std::function<void()> body) {
  std::string file = path;
  file = file.substr(file.find_last_of('/') + 1);
  file = file.substr(0, file.find('.'));
  registry().push_back({file, name, std::move(body)});
}

void check_throws(ErrorKind kind, const std::string& text, const std::function<void()>& body,
                  const char* file, int line) {
  try {
    body();
  } catch (const Error& error) {
    if (error.kind() != kind) {
      fail(file, line, "wrong kind of error: " + std::string(error.what()));
    }
    if (std::string(error.what()).find(text) == std::string::npos) {
      fail(file, line, "no '" + text + "' in the error: " + error.what());
    }
    return;
  }
  fail(file, line, "no error was thrown");
}

namespace {

bool is_wanted(const Test& test, int count, char** names) {
  for (int i = 0; i < count; ++i) {
    if (test.file == names[i]) return true;
  }
  return count == 0;
}

bool passes(const Test& test) {
  try {
    test.body();
    return true;
  } catch (const std::exception& error) {
    std::printf("FAILED %s.%s\n  %s\n", test.file.c_str(), test.name.c_str(), error.what());
    return false;
  }
}

}  // namespace
}  // namespace fastload::test

int main(int argc, char** argv) {
  using namespace fastload::test;
  int run = 0;
  int failed = 0;
  for (const Test& test : registry()) {
    if (!is_wanted(test, argc - 1, argv + 1)) continue;
    ++run;
    if (!passes(test)) ++failed;
  }
  std::printf("%d tests, %d failed\n", run, failed);
  std::fflush(stdout);  // what a sanitizer has to say at the end may end the process
  return run > 0 && failed == 0 ? 0 : 1;  // a name without tests is a mistake
}
