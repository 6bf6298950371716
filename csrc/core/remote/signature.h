// AWS's Signature Version 4, for requests without a body.
//
// libcurl can sign, too, but which headers and how paths are encoded differs from version to
// version, and the oldest ones in use cannot.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "remote/sha256.h"

namespace fastload {

struct Credentials {
  std::string access_key, secret_key, token;
};

// What is signed: the host as in the Host header, the path percent-encoded.
struct SignedRequest {
  std::string_view method, host, path, region;
};

// Not to be used by two threads at once: the key of a day and region is kept.
class Signer {
 public:
  // The header lines to send, x-amz-content-sha256 among them: stores that check it refuse requests
  // without.
  std::vector<std::string> sign(const SignedRequest& request, const Credentials& credentials,
                                std::time_t now);

 private:
  const Sha256& key(const std::string& secret, const std::string& day, std::string_view region);

  std::string made_for_;
  Sha256 key_{};
};

// A path with all but letters, digits, "-_.~" and "/" percent-encoded, as S3 wants it.
std::string encode_path(std::string_view path);

}  // namespace fastload
