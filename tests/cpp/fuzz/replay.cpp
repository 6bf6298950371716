// Runs a fuzz target over saved inputs, where there is no libFuzzer: TARGET_replay FILE|FOLDER...
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "input.h"

namespace {

namespace fs = std::filesystem;

// An input lies in memory of its exact size, so that AddressSanitizer sees one byte too much.
void replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.shrink_to_fit();
  // What ran last is what failed.
  std::fprintf(stderr, "%s\n", path.c_str());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> paths;
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      paths.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argv[i])) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) replay(path);
  std::printf("%zu inputs, no finding\n", paths.size());
  return paths.empty() ? 1 : 0;
}
