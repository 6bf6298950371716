#include "remote/curl.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"

namespace fastload {
namespace {

// Debian has a second build of it, with the same functions.
constexpr const char* kNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

[[noreturn]] void missing(const std::string& reason) {
  throw Error(ErrorKind::kIo,
              "Reading from object stores and by HTTP needs libcurl 7.68 or newer (" + reason +
                  "). Install it: apt-get install libcurl4, or dnf install libcurl.");
}

template <typename F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr) missing(std::string("this one has no ") + name);
}

Curl load() {
  void* library = nullptr;
  std::string reason;
  for (const char* const name : kNames) {
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    if (reason.empty()) reason = ::dlerror();
  }
  if (library == nullptr) missing(reason);
  Curl curl{};
  find(library, "curl_easy_init", curl.easy_init);
  find(library, "curl_easy_cleanup", curl.easy_cleanup);
  find(library, "curl_easy_reset", curl.easy_reset);
  find(library, "curl_easy_setopt", curl.easy_setopt);
  find(library, "curl_easy_getinfo", curl.easy_getinfo);
  find(library, "curl_easy_strerror", curl.easy_strerror);
  find(library, "curl_multi_init", curl.multi_init);
  find(library, "curl_multi_cleanup", curl.multi_cleanup);
  find(library, "curl_multi_setopt", curl.multi_setopt);
  find(library, "curl_multi_add_handle", curl.multi_add_handle);
  find(library, "curl_multi_remove_handle", curl.multi_remove_handle);
  find(library, "curl_multi_perform", curl.multi_perform);
  find(library, "curl_multi_poll", curl.multi_poll);
  find(library, "curl_multi_wakeup", curl.multi_wakeup);
  find(library, "curl_multi_info_read", curl.multi_info_read);
  find(library, "curl_slist_append", curl.slist_append);
  find(library, "curl_slist_free_all", curl.slist_free_all);
  decltype(&::curl_global_init) init = nullptr;
  find(library, "curl_global_init", init);
  if (init(CURL_GLOBAL_DEFAULT) != CURLE_OK) missing("it does not start");
  return curl;
}

}  // namespace

const Curl& curl() {
  static const Curl loaded = load();
  return loaded;
}

}  // namespace fastload
