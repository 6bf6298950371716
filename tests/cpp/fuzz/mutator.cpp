// A mutator that knows what a JPEG is: it changes tables, sizes, sampling, restart intervals and
// entropy-coded bytes where they lie, so that most results get past the header.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "input.h"
#include "jpeg_input.h"
#include "jpeg_maker.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using namespace fastload;
using namespace fastload::fuzz;
using Buffer = std::vector<uint8_t>;

constexpr uint8_t kDht = 0xC4, kSos = 0xDA, kDri = 0xDD, kApp14 = 0xEE;

struct Segment {
  uint8_t marker = 0;
  size_t begin = 0;  // of its FF
  size_t end = 0;
};

struct Layout {
  std::vector<Segment> segments;  // up to the first SOS, which is the last one
  size_t scan = 0;                // first entropy-coded byte; the file's size: no scan
};

Layout layout_of(const Buffer& file) {
  Layout layout;
  layout.scan = file.size();
  for (size_t at = 2; at + 4 <= file.size() && file[at] == 0xFF;) {
    const size_t length = size_t{file[at + 2]} << 8 | file[at + 3];
    const size_t end = at + 2 + length;
    if (length < 2 || end > file.size()) break;
    layout.segments.push_back({file[at + 1], at, end});
    if (file[at + 1] == kSos) {
      layout.scan = end;
      break;
    }
    at = end;
  }
  return layout;
}

bool is_frame(uint8_t marker) { return marker >= 0xC0 && marker <= 0xC2; }

size_t any_index(Random& random, size_t begin, size_t end) {
  return begin + random() % (end - begin);
}

uint8_t any_byte(Random& random) { return static_cast<uint8_t>(random() >> 8); }

void insert(Buffer& file, size_t at, std::initializer_list<uint8_t> bytes) {
  file.insert(file.begin() + static_cast<ptrdiff_t>(at), bytes);
}

void erase(Buffer& file, size_t begin, size_t end) {
  file.erase(file.begin() + static_cast<ptrdiff_t>(begin),
             file.begin() + static_cast<ptrdiff_t>(end));
}

// Precision, height, width, number of components, then id, factors, table of each.
void change_frame(Buffer& file, const Segment& s, Random& random) {
  static constexpr uint8_t kFactors[] = {0x11, 0x21, 0x22, 0x12, 0x41, 0x14, 0x13, 0x44};
  if (s.end - s.begin < 13) return;
  const size_t components = (s.end - s.begin - 10) / 3;
  const size_t component = s.begin + 10 + 3 * any_index(random, 0, std::max<size_t>(components, 1));
  switch (pick(random, 0, 6)) {
    case 0:
      file[s.begin + 6] = static_cast<uint8_t>(pick(random, 1, 100));
      return;
    case 1:
      file[s.begin + 8] = static_cast<uint8_t>(pick(random, 1, 100));
      return;
    case 2:
      file[s.begin + 4 + any_index(random, 0, 6)] = any_byte(random);
      return;
    case 3:
      file[s.begin + 1] = static_cast<uint8_t>(0xC0 + pick(random, 0, 2));
      return;
    case 4:
      if (component + 2 < s.end) file[component + 2] = static_cast<uint8_t>(pick(random, 0, 3));
      return;
    case 5:
      if (component + 2 < s.end) file[component] = any_byte(random);
      return;
    default:
      if (component + 2 < s.end) file[component + 1] = kFactors[pick(random, 0, 7)];
  }
}

// Moves a code from one length to another, or changes a symbol.
void change_huffman(Buffer& file, const Segment& s, Random& random) {
  if (s.end - s.begin < 22) return;
  uint8_t* const counts = file.data() + s.begin + 5;
  if (pick(random, 0, 1) == 0) {
    const size_t from = any_index(random, 0, 16), to = any_index(random, 0, 16);
    if (counts[from] == 0) return;
    --counts[from];
    ++counts[to];
    return;
  }
  const size_t a = any_index(random, s.begin + 21, s.end),
               b = any_index(random, s.begin + 21, s.end);
  if (pick(random, 0, 1) == 0) {
    std::swap(file[a], file[b]);
  } else {
    file[a] = any_byte(random);
  }
}

void change_segment(Buffer& file, const Segment& s, Random& random) {
  if (s.end - s.begin <= 4) return;
  if (is_frame(s.marker)) {
    change_frame(file, s, random);
  } else if (s.marker == kDht && pick(random, 0, 3) != 0) {
    change_huffman(file, s, random);
  } else {
    file[any_index(random, s.begin + 4, s.end)] = any_byte(random);
  }
}

// Duplicates, removes or swaps whole segments, or puts a new one in.
void change_order(Buffer& file, const Layout& layout, Random& random) {
  const Segment s = layout.segments[any_index(random, 0, layout.segments.size())];
  const Segment t = layout.segments[any_index(random, 0, layout.segments.size())];
  const Buffer copy(file.begin() + static_cast<ptrdiff_t>(s.begin),
                    file.begin() + static_cast<ptrdiff_t>(s.end));
  switch (pick(random, 0, 4)) {
    case 0:
      erase(file, s.begin, s.end);
      return;
    case 1:
      file.insert(file.begin() + static_cast<ptrdiff_t>(t.begin), copy.begin(), copy.end());
      return;
    case 2:
      insert(file, s.begin, {0xFF, kDri, 0, 4, 0, static_cast<uint8_t>(pick(random, 0, 12))});
      return;
    case 3:
      insert(file, s.begin,
             {0xFF, kApp14, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0,
              static_cast<uint8_t>(pick(random, 0, 2))});
      return;
    default:
      insert(file, s.begin, {0xFF});
  }
}

void change_scan(Buffer& file, size_t scan, Random& random) {
  const size_t at = any_index(random, scan, file.size());
  const size_t end = std::min(file.size(), at + static_cast<size_t>(pick(random, 1, 8)));
  switch (pick(random, 0, 9)) {
    case 0:
      insert(file, at, {0xFF, static_cast<uint8_t>(pick(random, 0xD0, 0xD7))});
      return;
    case 1:
      insert(file, at, {0xFF, 0});
      return;
    case 2:
      erase(file, at, end);
      return;
    case 3:
      insert(file, at, {any_byte(random)});
      return;
    case 4:
      file[at] = any_byte(random);
      return;
    case 5: {  // blocks again
      const Buffer copy(file.begin() + static_cast<ptrdiff_t>(at),
                        file.begin() + static_cast<ptrdiff_t>(end));
      file.insert(file.begin() + static_cast<ptrdiff_t>(any_index(random, scan, file.size())),
                  copy.begin(), copy.end());
      return;
    }
    default:  // often a bit of a value, not of a code: the stream stays readable
      file[at] ^= static_cast<uint8_t>(1u << pick(random, 0, 7));
  }
}

void change_jpeg(Buffer& file, Random& random) {
  const Layout layout = layout_of(file);
  const int what = pick(random, 0, 9);
  if (layout.segments.empty()) {
    file = make_jpeg(random);
  } else if (what == 0) {
    change_order(file, layout, random);
  } else if (what < 5) {
    change_segment(file, layout.segments[any_index(random, 0, layout.segments.size())], random);
  } else if (layout.scan < file.size()) {
    change_scan(file, layout.scan, random);
  }
}

bool is_jpeg(const Buffer& file) { return file.size() > 2 && file[0] == 0xFF && file[1] == 0xD8; }

}  // namespace

namespace fastload::fuzz {

size_t mutate_jpeg_input(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  Random random(seed + 1);
  const int what = pick(random, 0, 9);
  if (what < 2) return LLVMFuzzerMutate(data, size, max_size);
  const size_t begin = jpeg_begin({data, size});
  if (what < 4 && begin > 0) {
    LLVMFuzzerMutate(data, begin, begin);  // control bytes and what follows them, not the JPEG
    return size;
  }
  Buffer file(data + begin, data + size);
  // Often, and often unchanged: a whole file is what the pixels can be compared for.
  const bool renew = pick(random, 0, 5) == 0;
  if (!renew && !is_jpeg(file)) return LLVMFuzzerMutate(data, size, max_size);
  if (renew) file = make_jpeg(random);
  for (int i = pick(random, renew ? -2 : 1, 3); i > 0 && file.size() > 2; --i) {
    change_jpeg(file, random);
  }
  if (file.size() > max_size - begin) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(file.begin(), file.end(), data + begin);
  return begin + file.size();
}

}  // namespace fastload::fuzz

// record_mutator.cpp has one that knows more.
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                                                size_t max_size, unsigned seed) {
  return mutate_jpeg_input(data, size, max_size, seed);
}
