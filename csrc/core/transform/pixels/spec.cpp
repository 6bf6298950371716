#include "transform/pixels/spec.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

enum class Group : uint8_t { kNone, kAll, kChoice, kOrder };

struct GroupRow {
  std::string_view name;
  Group group;
  uint32_t number;  // of its draws, as an operation's
};
constexpr std::array<GroupRow, 3> kGroups{
    {{"all", Group::kAll, 128}, {"choice", Group::kChoice, 129}, {"order", Group::kOrder, 130}}};

const GroupRow* group_of(std::string_view name) {
  const auto* const row = std::find_if(kGroups.begin(), kGroups.end(),
                                       [&](const auto& one) { return one.name == name; });
  return row == kGroups.end() ? nullptr : row;
}

[[noreturn]] void refuse(std::string_view name, const std::string& takes, size_t found) {
  throw Error(ErrorKind::kValue,
              std::string(name) + " takes " + takes + ". Found: " + std::to_string(found) + ".");
}

constexpr size_t kMostParts = 256;

}  // namespace

struct PixelSpec::Use {
  Group group = Group::kNone;
  const PixelOperation* operation = nullptr;  // of a leaf
  uint32_t number = 0;
  uint32_t use = 0;  // how many of the same name come before
  double probability = 1.0;
  std::vector<PixelNumber> numbers;
  std::vector<double> sums;  // of a choice: the weights up to each of the parts
  std::vector<Use> parts;

  Use(PixelNode node, std::map<std::string, uint32_t, std::less<>>& seen);
  void draw(const SampleRng& rng, std::vector<DrawnPixels::Step>& steps,
            std::vector<double>& values) const;
  [[nodiscard]] static const PixelOperation* moving(const std::vector<Use>& uses);

 private:
  void check_group(std::string_view name);
};

PixelSpec::Use::Use(PixelNode node, std::map<std::string, uint32_t, std::less<>>& seen)
    : probability(node.probability), numbers(std::move(node.numbers)) {
  const GroupRow* const row = group_of(node.name);
  if (row == nullptr) {
    operation = &pixel_operation(node.name);
    number = operation->number;
    const size_t takes = operation->parameters.size();
    if (numbers.size() != takes)
      refuse(node.name, std::to_string(takes) + " numbers", numbers.size());
    if (!node.parts.empty()) refuse(node.name, "no parts", node.parts.size());
  } else {
    group = row->group;
    number = row->number;
  }
  use = seen[node.name]++;
  if (use >= PixelDraws::kMostUses) {
    throw Error(ErrorKind::kLimit, node.name + " may be used " +
                                       std::to_string(PixelDraws::kMostUses) +
                                       " times in a transform. Found: more.");
  }
  parts.reserve(node.parts.size());
  for (PixelNode& part : node.parts) parts.emplace_back(std::move(part), seen);
  if (group != Group::kNone) check_group(node.name);
}

void PixelSpec::Use::check_group(std::string_view name) {
  if ((parts.empty() && group != Group::kAll) || parts.size() > kMostParts) {
    refuse(name, "1 to " + std::to_string(kMostParts) + " parts", parts.size());
  }
  const size_t weights = group == Group::kChoice ? parts.size() : 0;
  if (numbers.size() != weights) refuse(name, std::to_string(weights) + " numbers", numbers.size());
  double sum = 0;
  for (const PixelNumber& weight : numbers) {
    const double value = weight.constant();
    if (!(value >= 0)) {
      throw Error(ErrorKind::kValue, "The weights of a choice must be at least 0. Found: " +
                                         std::to_string(value) + ".");
    }
    sums.push_back(sum += value);
  }
  if (group == Group::kChoice && !(sum > 0)) {
    throw Error(ErrorKind::kValue, "The weights of a choice must have a sum above 0. Found: " +
                                       std::to_string(sum) + ".");
  }
}

void PixelSpec::Use::draw(const SampleRng& rng, std::vector<DrawnPixels::Step>& steps,
                          std::vector<double>& values) const {
  const PixelDraws draws(rng, number, use);
  if (probability < 1.0 && !(draws.uniform(0) < probability)) return;
  switch (group) {
    case Group::kNone:
      steps.push_back({operation, draws, values.size()});
      for (uint32_t i = 0; i < numbers.size(); ++i) values.push_back(numbers[i].draw(draws, i));
      return;
    case Group::kAll:
      for (const Use& part : parts) part.draw(rng, steps, values);
      return;
    case Group::kChoice: {
      const double at = draws.uniform(1) * sums.back();
      const auto found = std::upper_bound(sums.begin(), sums.end(), at);
      const auto last = static_cast<std::ptrdiff_t>(parts.size()) - 1;
      parts[static_cast<size_t>(std::min(found - sums.begin(), last))].draw(rng, steps, values);
      return;
    }
    case Group::kOrder: {  // Fisher and Yates
      std::array<uint8_t, kMostParts> order;
      const auto count = static_cast<uint32_t>(parts.size());
      for (uint32_t i = 0; i < count; ++i) order[i] = static_cast<uint8_t>(i);
      const PhiloxKey key = draws.stream();
      for (uint32_t i = count - 1; i > 0; --i) {
        const PhiloxWords words = philox4x32({i, 0, 0, 0}, key);
        std::swap(order[i], order[uniform_below(words[0], words[1], i + 1)]);
      }
      for (uint32_t i = 0; i < count; ++i) parts[order[i]].draw(rng, steps, values);
      return;
    }
  }
}

PixelSpec::PixelSpec(std::vector<PixelNode> nodes) {
  if (nodes.empty()) return;
  std::map<std::string, uint32_t, std::less<>> seen;
  std::vector<Use> uses;
  uses.reserve(nodes.size());
  for (PixelNode& node : nodes) uses.emplace_back(std::move(node), seen);
  uses_ = std::make_shared<const std::vector<Use>>(std::move(uses));
}

size_t PixelSpec::size() const { return uses_ == nullptr ? 0 : uses_->size(); }

const PixelOperation* PixelSpec::Use::moving(const std::vector<Use>& uses) {
  for (const Use& use : uses) {
    if (use.operation != nullptr && use.operation->motion != nullptr) return use.operation;
    if (const PixelOperation* const found = moving(use.parts)) return found;
  }
  return nullptr;
}

const PixelOperation* PixelSpec::moving() const {
  return uses_ == nullptr ? nullptr : Use::moving(*uses_);
}

void PixelSpec::draw(const SampleRng& rng, DrawnPixels& drawn) const {
  drawn.steps_.clear();
  drawn.numbers_.clear();
  if (uses_ == nullptr) return;
  for (const Use& use : *uses_) use.draw(rng, drawn.steps_, drawn.numbers_);
}

}  // namespace fastload
