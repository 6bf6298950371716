#include "cache/uses.h"

#include <bit>
#include <string>
#include <utility>

#include "base/error.h"

namespace fastload {

unsigned Uses::Known::first(uint64_t id, unsigned epoch) const noexcept {
  if (order_ == nullptr || id >= order_->masks.size()) return kUnknown;
  const uint32_t mask = uint32_t{order_->masks[id]} >> epoch << epoch;
  return mask == 0 ? kNever : static_cast<unsigned>(std::countr_zero(mask));
}

void Uses::set(Order order) {
  if (order.masks.size() != order.levels.size()) {
    throw Error(ErrorKind::kValue, "An order has " + std::to_string(order.masks.size()) +
                                       " masks and " + std::to_string(order.levels.size()) +
                                       " levels; as many of each are legal.");
  }
  auto known = std::make_shared<const Order>(std::move(order));
  const std::lock_guard lock(mutex_);
  order_ = std::move(known);
}

void Uses::move(uint64_t epoch, uint32_t level, bool reads_on) noexcept {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  level_ = level;
  reads_on_ = reads_on;
}

// While the order of a new epoch is being computed, nothing is known.
Uses::Known Uses::known() const {
  const std::lock_guard lock(mutex_);
  Known known;
  if (order_ != nullptr && order_->epoch == epoch_) known.order_ = order_;
  known.level_ = level_;
  known.reads_on_ = reads_on_;
  return known;
}

}  // namespace fastload
