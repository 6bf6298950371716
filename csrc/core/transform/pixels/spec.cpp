#include "transform/pixels/spec.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "transform/pixels/mix.h"
#include "transform/pixels/registry.h"

namespace fastload {
namespace {

enum class Group : uint8_t { kNone, kAll, kChoice, kOrder, kSome, kSums, kSumsBlended, kTurns };

struct GroupRow {
  std::string_view name;
  Group group;
  uint32_t number;  // of its draws, as an operation's
};
constexpr std::array<GroupRow, 7> kGroups{{{"all", Group::kAll, 128},
                                           {"choice", Group::kChoice, 129},
                                           {"order", Group::kOrder, 130},
                                           {"augmix", Group::kSums, 131},
                                           {"some", Group::kSome, 132},
                                           {"mix_and_blend", Group::kSumsBlended, 133},
                                           {"blend_in_turn", Group::kTurns, 134}}};

bool is_mix(Group group) {
  return group == Group::kSums || group == Group::kSumsBlended || group == Group::kTurns;
}

const GroupRow* group_of(std::string_view name) {
  const auto* const row = std::find_if(kGroups.begin(), kGroups.end(),
                                       [&](const auto& one) { return one.name == name; });
  return row == kGroups.end() ? nullptr : row;
}

[[noreturn]] void refuse(std::string_view name, const std::string& takes, size_t found) {
  throw Error(ErrorKind::kValue,
              std::string(name) + " takes " + takes + ". Found: " + std::to_string(found) + ".");
}

using Seen = std::map<uint32_t, uint32_t>;  // uses of each number

constexpr size_t kMostParts = 256;
constexpr size_t kMostChains = 16;
constexpr double kLeastAlpha = 0.05;  // below it all of a mix's variates may underflow
constexpr double kMostAlpha = 1000.0;

}  // namespace

struct PixelSpec::Use {
  Group group = Group::kNone;
  const PixelOperation* operation = nullptr;  // of a leaf
  uint32_t number = 0;
  uint32_t use = 0;  // how many of the same number come before
  double probability = 1.0;
  std::vector<PixelNumber> numbers;
  std::vector<double> sums;  // of a choice: the weights up to each of the parts
  std::vector<Use> parts;
  bool mixes = false;  // it, or a part of it

  Use(PixelNode node, Seen& seen);
  void draw(const SampleRng& rng, std::vector<DrawnPixels::Step>& steps,
            std::vector<double>& values) const;
  [[nodiscard]] static const PixelOperation* moving(const std::vector<Use>& uses, bool mixed_only);
  static void count(const std::vector<Use>& uses, Seen& seen);

 private:
  void check_group(std::string_view name);
  void check_weights(size_t first);
  void check_mix(std::string_view name);
  void draw_order(const SampleRng& rng, const PixelDraws& draws,
                  std::vector<DrawnPixels::Step>& steps, std::vector<double>& values) const;
  void draw_some(const SampleRng& rng, const PixelDraws& draws,
                 std::vector<DrawnPixels::Step>& steps, std::vector<double>& values) const;
  void draw_mix(const SampleRng& rng, const PixelDraws& draws,
                std::vector<DrawnPixels::Step>& steps, std::vector<double>& values) const;
};

PixelSpec::Use::Use(PixelNode node, Seen& seen)
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
  use = seen[number]++;
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
  mixes = is_mix(group) ||
          std::any_of(parts.begin(), parts.end(), [](const Use& part) { return part.mixes; });
  if (is_mix(group)) return check_mix(name);
  if ((parts.empty() && group != Group::kAll) || parts.size() > kMostParts) {
    refuse(name, "1 to " + std::to_string(kMostParts) + " parts", parts.size());
  }
  const size_t weights = group == Group::kChoice ? parts.size()
                         : group == Group::kSome ? parts.size() + 1
                                                 : 0;
  if (numbers.size() != weights) refuse(name, std::to_string(weights) + " numbers", numbers.size());
  if (group == Group::kChoice) check_weights(0);
  if (group != Group::kSome) return;
  check_weights(1);
  const auto possible = std::count_if(numbers.begin() + 1, numbers.end(),
                                      [](const auto& weight) { return weight.constant() > 0; });
  const double count = numbers[0].constant();
  if (!(count >= 0 && count <= static_cast<double>(possible))) {
    throw Error(ErrorKind::kValue, "Of some parts 0 to " + std::to_string(possible) +
                                       " can be taken, as many as have a weight above 0. Found: " +
                                       std::to_string(count) + ".");
  }
}

// The numbers from `first` on are weights.
void PixelSpec::Use::check_weights(size_t first) {
  double sum = 0;
  for (size_t i = first; i < numbers.size(); ++i) {
    const double value = numbers[i].constant();
    if (!(value >= 0)) {
      throw Error(ErrorKind::kValue, "The weights of a choice must be at least 0. Found: " +
                                         std::to_string(value) + ".");
    }
    sums.push_back(sum += value);
  }
  if (!(sum > 0)) {
    throw Error(ErrorKind::kValue, "The weights of a choice must have a sum above 0. Found: " +
                                       std::to_string(sum) + ".");
  }
}

void PixelSpec::Use::check_mix(std::string_view name) {
  if (parts.empty() || parts.size() > kMostChains) {
    refuse(name, "1 to " + std::to_string(kMostChains) + " parts", parts.size());
  }
  if (numbers.size() != 1) refuse(name, "1 numbers", numbers.size());
  const double alpha = numbers[0].constant();
  if (!(alpha >= kLeastAlpha && alpha <= kMostAlpha)) {
    throw Error(ErrorKind::kValue, "The alpha of a mix must be in [0.05, 1000]. Found: " +
                                       std::to_string(alpha) + ".");
  }
  if (std::any_of(parts.begin(), parts.end(), [](const Use& part) { return part.mixes; })) {
    throw Error(ErrorKind::kValue, std::string(name) + " cannot have a mix among its parts.");
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
    case Group::kOrder:
      return draw_order(rng, draws, steps, values);
    case Group::kSome:
      return draw_some(rng, draws, steps, values);
    case Group::kSums:
    case Group::kSumsBlended:
    case Group::kTurns:
      return draw_mix(rng, draws, steps, values);
  }
}

void PixelSpec::Use::draw_order(const SampleRng& rng, const PixelDraws& draws,
                                std::vector<DrawnPixels::Step>& steps,
                                std::vector<double>& values) const {  // Fisher and Yates
  std::array<uint8_t, kMostParts> order;
  const auto count = static_cast<uint32_t>(parts.size());
  for (uint32_t i = 0; i < count; ++i) order[i] = static_cast<uint8_t>(i);
  const PhiloxKey key = draws.stream();
  for (uint32_t i = count - 1; i > 0; --i) {
    const PhiloxWords words = philox4x32({i, 0, 0, 0}, key);
    std::swap(order[i], order[uniform_below(words[0], words[1], i + 1)]);
  }
  for (uint32_t i = 0; i < count; ++i) parts[order[i]].draw(rng, steps, values);
}

// One after the other by their weights, from those that are left.
void PixelSpec::Use::draw_some(const SampleRng& rng, const PixelDraws& draws,
                               std::vector<DrawnPixels::Step>& steps,
                               std::vector<double>& values) const {
  std::array<double, kMostParts> weights;
  for (size_t i = 0; i < parts.size(); ++i) weights[i] = numbers[i + 1].constant();
  const PhiloxKey key = draws.stream();
  const auto count = static_cast<uint32_t>(numbers[0].constant());
  for (uint32_t i = 0; i < count; ++i) {
    const PhiloxWords words = philox4x32({i, 0, 0, 0}, key);
    double total = 0;
    for (size_t k = 0; k < parts.size(); ++k) total += weights[k];
    double left = uniform_double(words[0], words[1]) * total;
    size_t found = parts.size();
    for (size_t k = 0; k < parts.size(); ++k) {
      if (!(weights[k] > 0)) continue;
      found = k;  // the last possible one, where rounding leaves something
      if (left < weights[k]) break;
      left -= weights[k];
    }
    weights[found] = 0;
    parts[found].draw(rng, steps, values);
  }
}

void PixelSpec::Use::draw_mix(const SampleRng& rng, const PixelDraws& draws,
                              std::vector<DrawnPixels::Step>& steps,
                              std::vector<double>& values) const {
  const double alpha = numbers[0].constant();
  std::array<double, 2> both;  // of the picture, of the chains
  std::array<double, kMostChains> shares;
  std::array<float, kMostChains> weights;
  const PhiloxKey key = draws.stream();
  const uint32_t spent = draw_dirichlet(key, 0, alpha, both);
  draw_dirichlet(key, spent, alpha, {shares.data(), parts.size()});
  const auto original = static_cast<float>(both[0]);
  const auto chains = static_cast<float>(both[1]);
  // As torchvision (augmix) and timm (the others) have them, float32 by float32.
  float left = 1.0F;
  for (size_t i = parts.size(); i-- > 0;) {
    weights[i] = static_cast<float>(shares[i]);
    if (group == Group::kSumsBlended) continue;
    weights[i] *= chains;
    if (group == Group::kSums) continue;
    weights[i] = left > 0 ? weights[i] / left : 0.0F;
    left *= 1.0F - weights[i];
  }
  const bool turns = group == Group::kTurns;
  const auto step = [&](const PixelOperation& operation, float number) {
    steps.push_back({&operation, draws, values.size()});
    if (!operation.parameters.empty()) values.push_back(number);
  };
  step(turns ? kTurnBegin : kMixBegin, group == Group::kSums ? original : 0.0F);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].draw(rng, steps, values);
    step(turns ? kTurnAdd : kMixAdd, weights[i]);
  }
  step(turns ? kTurnEnd : kMixEnd, group == Group::kSums ? 1.0F : chains);
}

void PixelSpec::Use::count(const std::vector<Use>& uses, Seen& seen) {
  for (const Use& one : uses) {
    uint32_t& counted = seen[one.number];
    counted = std::max(counted, one.use + 1);
    count(one.parts, seen);
  }
}

PixelSpec::PixelSpec(std::vector<PixelNode> nodes, const PixelSpec& before) {
  if (nodes.empty()) return;
  Seen seen;
  if (!before.empty()) Use::count(*before.uses_, seen);
  std::vector<Use> uses;
  uses.reserve(nodes.size());
  for (PixelNode& node : nodes) uses.emplace_back(std::move(node), seen);
  uses_ = std::make_shared<const std::vector<Use>>(std::move(uses));
}

size_t PixelSpec::size() const { return uses_ == nullptr ? 0 : uses_->size(); }

size_t DrawnPixels::whole_steps() const {
  size_t count = steps_.size();
  while (count > 0 && steps_[count - 1].operation->pointwise) --count;
  return count;
}

void DrawnPixels::motions(int width, int height, std::vector<Motion>& to) const {
  to.clear();
  for (const Step& step : steps_) {
    if (step.operation->motion == nullptr) continue;
    const Motion motion = step.operation->motion(numbers(step), step.draws, width, height);
    if (!motion.is_identity()) to.push_back(motion);
  }
}

const PixelOperation* PixelSpec::Use::moving(const std::vector<Use>& uses, bool mixed_only) {
  for (const Use& use : uses) {
    const bool moves = use.operation != nullptr && use.operation->motion != nullptr;
    if (moves && !mixed_only) return use.operation;
    const PixelOperation* const found = moving(use.parts, mixed_only && !is_mix(use.group));
    if (found != nullptr) return found;
  }
  return nullptr;
}

const PixelOperation* PixelSpec::moving() const {
  return uses_ == nullptr ? nullptr : Use::moving(*uses_, false);
}

const PixelOperation* PixelSpec::moving_in_mix() const {
  return uses_ == nullptr ? nullptr : Use::moving(*uses_, true);
}

void PixelSpec::draw(const SampleRng& rng, DrawnPixels& drawn) const {
  drawn.steps_.clear();
  drawn.numbers_.clear();
  if (uses_ == nullptr) return;
  for (const Use& use : *uses_) use.draw(rng, drawn.steps_, drawn.numbers_);
}

}  // namespace fastload
