// What a store is: its address, how requests are signed, and how patient its reader is.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "remote/schedule.h"

namespace fastload {

enum class Signing {
  kNone,       // plain HTTP
  kSigV4,      // S3 and its like
  kPresigned,  // each path has an address of its own, which is its signature
};

struct RemoteOptions {
  std::string base;  // "http://127.0.0.1:8333/bucket", percent-encoded
  std::string name;  // what messages call it: "s3://bucket"
  Signing signing = Signing::kSigV4;
  std::string region;
  // Sent with each request to the base's own server: not to another one that it redirects to, and
  // of presigned addresses with those below the base alone. They may be secrets.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string ca_file;  // empty: libcurl's
  Schedule schedule;
  // Gets other credentials, or another address for a path, after the store has denied a request:
  // called once for that, by the thread that waits for it. Throws what the reader will see.
  std::function<void(const std::string& path)> renew;
  // Says in words, while it is tried again, why bytes do not come: called once in a store's life,
  // by the thread that waits for them.
  std::function<void(const std::string& text)> warn;
  // Called some times a second by threads that wait: throws where the wait shall end (Ctrl-C).
  std::function<void()> interrupted;
};

}  // namespace fastload
