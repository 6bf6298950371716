#include "remote/words.h"

#include <utility>

#include "base/error.h"

namespace fastload {
namespace {

std::string advice(const RemoteOptions& options, const std::string& answer) {
  if (answer.find("no byte ranges") != std::string::npos) {
    return " Serve the set by a server that gives them (nginx, Apache, Caddy, an object store), or "
           "copy it to a local folder.";
  }
  if (answer.find("HTML page") != std::string::npos) {
    return " It may be a login page, or a proxy's: give what lets you in as storage_options "
           "(headers, token), and look at the URL in a browser.";
  }
  if (answer.find("redirected to") != std::string::npos) {
    return " Open the set by its address there, with what lets you in as storage_options.";
  }
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

std::string named(const RemoteOptions& options, const Fetch& fetch) {
  std::string text = options.name + "/" + fetch.object->path;
  if (fetch.kind != Fetch::Kind::kRange) return text;
  return text + ", bytes " + std::to_string(fetch.begin) + "-" +
         std::to_string(fetch.begin + fetch.length - 1);
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
  std::string text = named(options, fetch) + " could not be read: " + answer + ". ";
  text += fetch.tries == 1 ? "It was tried once"
                           : "It was tried " + std::to_string(fetch.tries) + " times in " +
                                 seconds(waited) + "; this was the last answer";
  return text + "." + advice(options, answer);
}

std::string notice_text(const RemoteOptions& options, const Fetch& fetch,
                        const std::string& answer) {
  return named(options, fetch) + " does not come: " + answer + ". It is asked for again, for " +
         seconds(options.schedule.patience) + " at most. This is said once for each store." +
         advice(options, answer);
}

std::string damage_text(const std::string& record) {
  return record + ": they came with other bytes than were packed, and right when they were asked "
                  "for again. Something between the store and this machine damages data. Each "
                  "record's checksum is compared, so none of it reaches a batch.";
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
