// Credentials and presigned addresses of a store, which may change at any time.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "remote/signature.h"

namespace fastload {

// Safe to use from many threads. A forked child may use what it has inherited.
class Secrets {
 public:
  explicit Secrets(Credentials credentials);
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;

  void set(Credentials credentials);
  void set(const std::unordered_map<std::string, std::string>& urls);  // by path

  [[nodiscard]] Credentials credentials() const;
  [[nodiscard]] std::optional<std::string> url(const std::string& path) const;
  // How often they have changed.
  [[nodiscard]] uint64_t version() const;

  // One lock for all stores, which no thread holds while the process forks. Guards what a child
  // inherits of others, too.
  static std::mutex& lock();

 private:
  Credentials credentials_;
  std::unordered_map<std::string, std::string> urls_;
  uint64_t version_ = 0;
};

}  // namespace fastload
