#include "remote/words.h"

#include <utility>

#include "base/error.h"

namespace fastload {
namespace {

std::string advice(const RemoteOptions& options, const std::string& answer) {
  if (answer.starts_with("401") || answer.starts_with("403") ||
      answer.find("ExpiredToken") != std::string::npos) {
    return " Check the credentials, what they allow, and this machine's clock.";
  }
  if (answer.starts_with("404")) return " Check the name, or pack again.";
  if (answer.find("replaced") != std::string::npos) {
    return " Open the dataset again, and do not change a packed set in its place.";
  }
  if (answer.starts_with("301") || answer.starts_with("307") || answer.starts_with("400")) {
    return " Check the region (" + options.region + ") and the endpoint.";
  }
  return " Check that the store can be reached from here.";
}

std::string seconds(Millis time) {
  return std::to_string(time / 1000) + "." + std::to_string(time / 100 % 10) + " s";
}

}  // namespace

std::exception_ptr cancelled(const std::string& name) noexcept {
  return std::make_exception_ptr(Error(
      ErrorKind::kState, name + ": reading was ended, because its loader or store was closed"));
}

std::string failure_text(const RemoteOptions& options, const Fetch& fetch,
                         const std::string& answer, Millis waited) {
  std::string text = options.name + "/" + fetch.object->path;
  if (fetch.kind == Fetch::Kind::kRange) {
    text += ", bytes " + std::to_string(fetch.begin) + "-" +
            std::to_string(fetch.begin + fetch.length - 1);
  }
  text += " could not be read: " + answer + ". ";
  text += fetch.tries == 1 ? "It was tried once"
                           : "It was tried " + std::to_string(fetch.tries) + " times in " +
                                 seconds(waited) + "; this was the last answer";
  return text + "." + advice(options, answer);
}

void finish(Fetch& fetch, std::exception_ptr error) noexcept {
  Call& call = *fetch.call;
  fetch.error = std::move(error);
  fetch.finished = true;
  const std::lock_guard lock(call.mutex);
  // Under the lock: the thread that waits takes the call away.
  if (--call.left == 0) call.changed.notify_all();
}

}  // namespace fastload
