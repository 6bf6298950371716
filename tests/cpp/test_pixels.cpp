// transform/pixels: the stage between resize and store. What the operations do is compared with
// Pillow in tests/transform/test_pixels.py.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "random.h"
#include "transform/pixels/registry.h"
#include "transform/pixels/stage.h"

namespace {

using fastload::Canvas;
using fastload::DrawnPixels;
using fastload::ErrorKind;
using fastload::PixelNode;
using fastload::PixelSpec;
using fastload::PixelStage;
using fastload::RowSink;
using fastload::SampleRng;
using fastload::test::Random;
using Bytes = std::vector<uint8_t>;

class Collected final : public RowSink {
 public:
  Collected(int width, int height)
      : row_(size_t{3} * static_cast<size_t>(width)), bytes(row_ * static_cast<size_t>(height)) {}
  void rows(const uint8_t* pixels, size_t stride, int y, int count) override {
    for (int i = 0; i < count; ++i) {
      const uint8_t* from = pixels + stride * static_cast<size_t>(i);
      std::copy(from, from + row_, bytes.begin() + static_cast<std::ptrdiff_t>(row_) * (y + i));
    }
  }
  void restart() override {}

 private:
  size_t row_;

 public:
  Bytes bytes;
};

// The picture in chunks, each in a block that ends with the slack; now and then from the start
// again.
void feed(RowSink& sink, const Bytes& pixels, int width, int height, Random& random) {
  const auto row = static_cast<std::ptrdiff_t>(3) * width;
  bool again = random.coin();
  for (int y = 0; y < height;) {
    const int count = std::min(random.in(1, 7), height - y);
    Bytes block(pixels.begin() + row * y, pixels.begin() + row * (y + count));
    block.resize(block.size() + RowSink::kSlack);
    block.shrink_to_fit();
    sink.rows(block.data(), static_cast<size_t>(row), y, count);
    y += count;
    if (again && random.in(0, 3) == 0) {
      sink.restart();
      again = false;
      y = 0;
    }
  }
}

PixelNode random_node(Random& random, int depth) {
  const auto all = fastload::pixel_operations();
  PixelNode node{"", random.in(0, 2) * 0.5, {}, {}};
  const int kind = depth == 0 ? 3 : random.in(0, 5);
  if (kind > 2) {
    const auto& operation =
        *all[static_cast<size_t>(random.in(0, static_cast<int>(all.size()) - 1))];
    node.name = operation.name;
    for (size_t i = 0; i < operation.parameters.size(); ++i) {
      node.numbers.emplace_back("uniform", std::vector<double>{0, 1.0 + random.in(0, 256)});
    }
    return node;
  }
  node.name = kind == 0 ? "all" : kind == 1 ? "choice" : "order";
  for (int i = random.in(1, 3); i > 0; --i) {
    node.parts.push_back(random_node(random, depth - 1));
    if (kind == 1) node.numbers.emplace_back(1.0);
  }
  return node;
}

// Chains mixed with the picture, or some of them by weight.
PixelNode random_mix(Random& random) {
  constexpr const char* kNames[] = {"some", "augmix", "mix_and_blend", "blend_in_turn"};
  PixelNode node{kNames[random.in(0, 3)], 1.0, {0.5}, {}};
  for (int i = random.in(1, 3); i > 0; --i) node.parts.push_back(random_node(random, 1));
  if (node.name != "some") return node;
  node.numbers = {random.in(0, static_cast<int>(node.parts.size())) * 1.0};
  for (size_t i = 0; i < node.parts.size(); ++i) node.numbers.emplace_back(1.0 + random.in(0, 3));
  return node;
}

PixelSpec random_spec(Random& random) {
  std::vector<PixelNode> nodes;
  for (int i = random.in(0, 4); i > 0; --i) nodes.push_back(random_node(random, 2));
  if (random.coin()) nodes.push_back(random_mix(random));
  return PixelSpec(std::move(nodes));
}

TEST(rows_in_any_portions_are_one_picture) {
  Random random(5);
  PixelStage stage;
  int changed = 0;
  for (int i = 0; i < 400; ++i) {
    const int width = random.in(1, 40);
    const int height = random.in(1, 40);
    const PixelSpec spec = random_spec(random);
    const SampleRng rng{{1, 2}, static_cast<uint64_t>(i), 0};
    Bytes pixels(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height));
    for (uint8_t& value : pixels) value = random.sample();
    Collected found(width, height);
    RowSink& first = stage.begin(spec, rng, width, height, found);
    DrawnPixels drawn;
    spec.draw(rng, drawn);
    CHECK_EQ(&first == &found, drawn.steps().empty());
    feed(first, pixels, width, height, random);
    stage.end();
    Canvas canvas;
    canvas.begin(width, height);
    std::copy(pixels.begin(), pixels.end(), canvas.picture().pixels);
    drawn.apply(canvas);
    const Bytes wanted(canvas.picture().pixels, canvas.picture().pixels + pixels.size());
    CHECK(found.bytes == wanted);
    changed += wanted != pixels;
  }
  CHECK(changed > 100);
}

TEST(without_operations_rows_go_straight_to_the_store) {
  const PixelSpec none;
  PixelStage stage;
  Collected out(4, 4);
  CHECK(&stage.begin(none, {}, 4, 4, out) == &out);
  stage.end();
  CHECK(out.bytes == Bytes(48));
}

TEST(every_operation_draws_numbers_of_its_own) {
  const auto all = fastload::pixel_operations();
  for (const auto* a : all) {
    for (const auto* b : all) CHECK(a == b || a->number != b->number);
    CHECK(&fastload::pixel_operation(a->name) == a);
  }
  CHECK_THROWS(kValue, "must be one of", PixelSpec({{"sharpen", 1, {}, {}}}));
  CHECK_THROWS(kValue, "takes 1 numbers. Found: 0", PixelSpec({{"solarize", 1, {}, {}}}));
}

Bytes after(const PixelSpec& spec, const Bytes& pixels, int width, int height) {
  Canvas canvas;
  canvas.begin(width, height);
  std::copy(pixels.begin(), pixels.end(), canvas.picture().pixels);
  DrawnPixels drawn;
  spec.draw({}, drawn);
  drawn.apply(canvas);
  return {canvas.picture().pixels, canvas.picture().pixels + canvas.picture().bytes()};
}

Bytes part_of(const Bytes& pixels, int width, const fastload::Rect& part) {
  Bytes found;
  for (int y = part.y; y < part.y + part.height; ++y) {
    const auto at = pixels.begin() + 3 * (static_cast<std::ptrdiff_t>(y) * width + part.x);
    found.insert(found.end(), at, at + std::ptrdiff_t{3} * part.width);
  }
  return found;
}

TEST(operations_on_single_pixels_need_only_the_part) {
  Random random(5);
  const int width = 41, height = 29;
  Bytes pixels(size_t{3} * width * height);
  for (uint8_t& value : pixels) value = random.sample();
  const fastload::Rect part{7, 5, 23, 19};
  PixelStage stage;
  int alone = 0;
  for (const auto* operation : fastload::pixel_operations()) {
    if (operation->motion != nullptr || !operation->pointwise) continue;
    ++alone;
    const double number = std::string_view(operation->name).ends_with("hue") ? 0.3 : 3.0;
    std::vector<fastload::PixelNumber> numbers(operation->parameters.size(), number);
    const PixelNode node{operation->name, 1.0, numbers, {}};
    const PixelNode whole{"contrast", 1.0, {1.5}, {}};
    for (const PixelSpec& spec :
         {PixelSpec({node}), PixelSpec({whole, node}), PixelSpec({node, whole})}) {
      const Bytes wanted = part_of(after(spec, pixels, width, height), width, part);
      Collected found(part.width, part.height);
      fastload::Rect needed = part;
      RowSink& first = stage.begin_before(spec, {}, width, height, needed, found);
      CHECK(needed == (spec.size() == 1 ? part : fastload::Rect{0, 0, width, height}));
      feed(first, part_of(pixels, width, needed), needed.width, needed.height, random);
      stage.end();
      CHECK(found.bytes == wanted);
      CHECK(wanted != part_of(pixels, width, part));
    }
  }
  CHECK_EQ(alone, 12);
}

TEST(uses_of_two_lists_draw_apart_too) {
  const auto one = [] { return PixelNode{"invert", 0.5, {}, {}}; };
  const auto drawn_by = [](const PixelSpec& spec, uint64_t sample) {
    DrawnPixels drawn;
    spec.draw({{1, 2}, sample, 0}, drawn);
    return drawn.steps().size();
  };
  const PixelSpec first({{"all", 1.0, {}, {one(), one()}}}), second({one()}, first);
  const PixelSpec both({{"all", 1.0, {}, {one(), one()}}, one()});
  const PixelSpec third({one()}, second), all({one(), one(), one(), one()});
  for (uint64_t sample = 0; sample < 200; ++sample) {
    CHECK_EQ(drawn_by(first, sample) + drawn_by(second, sample), drawn_by(both, sample));
    CHECK_EQ(drawn_by(first, sample) + drawn_by(second, sample) + drawn_by(third, sample),
             drawn_by(all, sample));
  }
}

}  // namespace
