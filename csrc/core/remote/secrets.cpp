#include "remote/secrets.h"

#include <pthread.h>

#include <utility>

namespace fastload {
namespace {

struct ForkSafe {
  ForkSafe() {
    ::pthread_atfork([] { Secrets::lock().lock(); }, [] { Secrets::lock().unlock(); },
                     [] { Secrets::lock().unlock(); });
  }
};

}  // namespace

std::mutex& Secrets::lock() {
  static auto& mutex = *new std::mutex;  // never destroyed: a fork may come at any time
  return mutex;
}

Secrets::Secrets(Credentials credentials) : credentials_(std::move(credentials)) {
  static const ForkSafe safe;
}

void Secrets::set(Credentials credentials) {
  const std::lock_guard guard(lock());
  credentials_ = std::move(credentials);
  ++version_;
}

void Secrets::set(const std::unordered_map<std::string, std::string>& urls) {
  const std::lock_guard guard(lock());
  for (const auto& [path, url] : urls) urls_.insert_or_assign(path, url);
  ++version_;
}

Credentials Secrets::credentials() const {
  const std::lock_guard guard(lock());
  return credentials_;
}

std::optional<std::string> Secrets::url(const std::string& path) const {
  const std::lock_guard guard(lock());
  const auto found = urls_.find(path);
  if (found == urls_.end()) return {};
  return found->second;
}

uint64_t Secrets::version() const {
  const std::lock_guard guard(lock());
  return version_;
}

}  // namespace fastload
