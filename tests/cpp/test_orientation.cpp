// decode/orientation.h: which way damaged files are turned, and where parts of turned pictures lie.
#include "decode/orientation.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "check.h"
#include "decode/decode.h"
#include "picture.h"
#include "random.h"

namespace fastload::test {
namespace {

using Pixels = std::vector<uint8_t>;

// Where a pixel of the turned picture is stored, as EXIF describes its numbers.
std::pair<int, int> stored_at(int number, int x, int y, int width, int height) {
  switch (number) {
    case 2:
      return {width - 1 - x, y};
    case 3:
      return {width - 1 - x, height - 1 - y};
    case 4:
      return {x, height - 1 - y};
    case 5:
      return {y, x};
    case 6:
      return {y, height - 1 - x};
    case 7:
      return {width - 1 - y, height - 1 - x};
    case 8:
      return {width - 1 - y, x};
    default:
      return {x, y};
  }
}

// Takes rows, and looks at the slack behind each chunk.
class Rows final : public RowSink {
 public:
  explicit Rows(size_t row) : row_(row) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    CHECK_EQ(y, next_);
    next_ += count;
    for (int i = 0; i < count; ++i, pixels += stride) {
      found.insert(found.end(), pixels, pixels + row_);
      slack_ += pixels[row_ + kSlack - 1];  // under AddressSanitizer
    }
  }
  void restart() override { CHECK(false); }
  Pixels found;

 private:
  size_t row_;
  int next_ = 0;
  unsigned slack_ = 0;
};

Rect random_part(Random& random, int width, int height) {
  Rect part;
  part.x = random.in(0, width - 1);
  part.y = random.in(0, height - 1);
  part.width = random.in(1, width - part.x);
  part.height = random.in(1, height - part.y);
  return part;
}

Pixels decoded(Decoder& decoder, const Rect& part) {
  Rows rows(static_cast<size_t>(part.width) * 3);
  decoder.decode(part, rows);
  return rows.found;
}

}  // namespace

TEST(parts_of_every_orientation_and_pixel_size) {
  Random random(7);
  for (int round = 0; round < 400; ++round) {
    const int width = random.in(1, 70), height = random.in(1, 70), number = random.in(1, 8);
    const auto size = static_cast<size_t>(random.in(1, 4) * random.in(1, 2));
    const Orientation how(number);
    const Rect part = how.swaps() ? random_part(random, height, width)
                                  : random_part(random, width, height);
    Pixels picture(static_cast<size_t>(width) * height * size + RowSink::kSlack);
    for (uint8_t& byte : picture) byte = random.sample();
    const auto at = [&](int x, int y) {
      return picture.data() + (static_cast<size_t>(y) * width + x) * size;
    };
    Pixels wanted;
    for (int y = part.y; y < part.y + part.height; ++y) {
      for (int x = part.x; x < part.x + part.width; ++x) {
        const auto [column, row] = stored_at(number, x, y, width, height);
        wanted.insert(wanted.end(), at(column, row), at(column, row) + size);
      }
    }
    const Rect stored = how.stored(part, width, height);
    Rows rows(static_cast<size_t>(part.width) * size);
    std::vector<uint8_t> scratch;
    UprightSink sink(how, part, size, scratch, rows);
    for (int y = 0; y < stored.height; ++y) {
      if (y == stored.height / 2) sink.restart();
      sink.rows(at(stored.x, stored.y + y), static_cast<size_t>(width) * size, y, 1);
    }
    CHECK(rows.found.empty());
    sink.finish();
    CHECK(rows.found == wanted);
  }
}

TEST(numbers_that_are_none_turn_nothing) {
  for (const int number : {-1, 0, 1, 9, 1000}) CHECK_EQ(Orientation(number).number(), 1);
  CHECK(!Orientation().turns());
}

TEST(a_turned_jpeg_in_parts) {
  Random random(3);
  const Pixels plain = as_jpeg(random, {.width = 45, .height = 31});
  for (uint8_t number = 1; number <= 8; ++number) {
    const Pixels file = turned_jpeg(plain, number);
    CHECK_EQ(orientation_of(file).number(), int{number});
    Decoder decoder;
    const ImageInfo stored = decoder.open(file);
    const Pixels pixels = decoded(decoder, {0, 0, 45, 31});
    const ImageInfo info = decoder.open(file, {}, {.turned = true});
    CHECK_EQ(info.width, number < 5 ? stored.width : stored.height);
    CHECK_EQ(info.height, number < 5 ? stored.height : stored.width);
    const int width = static_cast<int>(info.width), height = static_cast<int>(info.height);
    for (int i = 0; i < 5; ++i) {
      const Rect part = random_part(random, width, height);
      const Pixels found = decoded(decoder, part);
      for (int y = 0; y < part.height; ++y) {
        for (int x = 0; x < part.width; ++x) {
          const auto [column, row] = stored_at(number, part.x + x, part.y + y, 45, 31);
          const size_t from = (static_cast<size_t>(row) * 45 + column) * 3;
          const size_t to = (static_cast<size_t>(y) * part.width + x) * 3;
          CHECK(std::equal(&pixels[from], &pixels[from] + 3, &found[to]));
        }
      }
    }
    // Of parts of the file those are there that rows need as they are stored.
    const LoadedBytes all{file.size(), file.size(), file.size()};
    if (number == 1) {
      CHECK_EQ(decoder.open_part(file, all, {}, {.turned = true}).width, uint32_t{45});
    } else {
      CHECK_THROWS(kState, "needed whole", decoder.open_part(file, all, {}, {.turned = true}));
    }
    CHECK_EQ(decoder.open_part(file, all).width, uint32_t{45});
    decoder.open(file, {}, {.turned = true});
    Rows rows(1);
    CHECK_THROWS(kValue, "outside the picture", decoder.decode({0, 0, width + 1, height}, rows));
  }
}

// Any bytes behind what begins like a picture; the file ends where its memory does.
TEST(any_bytes_have_an_orientation) {
  using namespace std::string_view_literals;
  const std::string_view heads[] = {
      "\xFF\xD8\xFF\xE1\0\x28"
      "Exif\0\0II*\0\x08\0\0\0"sv,
      "\xFF\xD8\xFF\xE1\0\x60http://ns.adobe.com/xap/1.0/\0tiff:Orientation=\""sv,
      "\x89PNG\r\n\x1A\n\0\0\0\x20"
      "eXIfMM\0*\0\0\0\x08"sv,
      "\x89PNG\r\n\x1A\n\0\0\0\x30zTXtRaw profile type exif\0\0\x78\x9C"sv,
      "\x89PNG\r\n\x1A\n\0\0\0\x30iTXtXML:com.adobe.xmp\0\0\0\0\0tiff:Orientation>"sv,
      "RIFF\x50\0\0\0WEBPVP8X\x0A\0\0\0\x0C\0\0\0\0\0\0\0\0\0EXIF\x20\0\0\0II*\0\x08\0\0\0"sv,
      "II*\0\x08\0\0\0"sv, "MM\0*\0\0\0\x08"sv, "GIF89a"sv, ""sv};
  Random random(11);
  int turned = 0;
  for (int round = 0; round < 30000; ++round) {
    const std::string_view head = heads[static_cast<size_t>(random.in(0, 9))];
    Pixels file(head.begin(), head.end());
    const Pixels entry{static_cast<uint8_t>(random.in(0, 2)), 0, 0x12, 1, 3, 0, 1, 0, 0, 0,
                       static_cast<uint8_t>(random.in(0, 9)), 0, 0, 0};
    if (random.in(0, 1) == 1) file.insert(file.end(), entry.begin(), entry.end());
    for (int more = random.in(0, 40); more > 0; --more) file.push_back(random.sample());
    if (random.in(0, 2) == 0 && !file.empty()) {
      file[static_cast<size_t>(random.in(0, static_cast<int>(file.size()) - 1))] = random.sample();
    }
    file.resize(static_cast<size_t>(random.in(0, static_cast<int>(file.size()))));
    file.shrink_to_fit();
    turned += orientation_of(file).turns() ? 1 : 0;
  }
  CHECK(turned > 100);
}

}  // namespace fastload::test
