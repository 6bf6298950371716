// In which coming epoch a sample is needed next, as far as the order is known.
//
// DESIGN. A node that reads every sample once an epoch has a hit for what was in its tier when the
// epoch began, and for nothing else: what is put there during an epoch comes after its only use. So
// which records go is of no account for it, and the best is to change nothing. What decides is the
// epoch in which a record is needed next, where those differ: where a node reads a part of each
// epoch (ranks on several nodes), or a sampler draws one. When in an epoch does not matter, but for
// whether that is over already. So 16 epochs and a moment of the first take four bytes a sample.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace fastload {

// Safe to use from many threads.
class Uses {
 public:
  static constexpr unsigned kEpochs = 16;
  static constexpr unsigned kNever = kEpochs;  // in none of the epochs that are known
  static constexpr unsigned kUnknown = 1000;   // nothing is known
  static constexpr uint32_t kLevels = 1 << 16;

  // From an epoch on.
  struct Order {
    uint64_t epoch = 0;
    std::vector<uint16_t> masks;   // of each sample: bit k: needed in epoch + k
    std::vector<uint16_t> levels;  // and how far in the first of them, from 0 to kLevels - 1
  };

  // What is known at a time.
  class Known {
   public:
    // In how many epochs a sample that is kept is needed: 0: in this one, later.
    [[nodiscard]] unsigned next(uint64_t id) const noexcept {
      return first(id, is_ahead(id) ? 0 : 1);
    }
    // The same of a sample that is being read, after that use of it.
    [[nodiscard]] unsigned after_next(uint64_t id) const noexcept {
      return first(id, is_ahead(id) || !reads_on_ ? 1 : 2);
    }

   private:
    friend class Uses;
    [[nodiscard]] bool is_ahead(uint64_t id) const noexcept {
      return order_ != nullptr && id < order_->masks.size() && (order_->masks[id] & 1) != 0 &&
             order_->levels[id] >= level_;
    }
    [[nodiscard]] unsigned first(uint64_t id, unsigned epoch) const noexcept;

    std::shared_ptr<const Order> order_;  // nullptr: unknown
    uint32_t level_ = 0;
    bool reads_on_ = false;
  };

  // In place of what was known; both arrays have as many samples. Throws Error(kValue).
  void set(Order order);
  // How far consumers are: in which epoch, and where in it. `reads_on`: what is read ahead may be
  // the next epoch's.
  void move(uint64_t epoch, uint32_t level, bool reads_on) noexcept;
  [[nodiscard]] Known known() const;

 private:
  mutable std::mutex mutex_;  // guards the following
  std::shared_ptr<const Order> order_;
  uint64_t epoch_ = 0;
  uint32_t level_ = 0;
  bool reads_on_ = false;
};

}  // namespace fastload
