#include "remote/signature.h"

#include <utility>

namespace fastload {
namespace {

constexpr const char* kPayload = "UNSIGNED-PAYLOAD";  // of nothing

std::string time_text(std::time_t now, const char* format) {
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), format, &parts)};
}

}  // namespace

const Sha256& Signer::key(const std::string& secret, const std::string& day,
                          std::string_view region) {
  std::string wanted = secret + "/" + day + "/";
  wanted += region;
  if (wanted == made_for_) return key_;
  key_ = hmac_sha256("AWS4" + secret, day);
  for (const std::string_view word :
       {region, std::string_view("s3"), std::string_view("aws4_request")}) {
    key_ = hmac_sha256(as_text(key_), word);
  }
  made_for_ = std::move(wanted);
  return key_;
}

std::vector<std::string> Signer::sign(const SignedRequest& request, const Credentials& credentials,
                                      std::time_t now) {
  const std::string time = time_text(now, "%Y%m%dT%H%M%SZ");
  const std::string day = time.substr(0, 8);
  std::vector<std::string> headers = {std::string("x-amz-content-sha256:") + kPayload,
                                      "x-amz-date:" + time};
  std::string names = "host;x-amz-content-sha256;x-amz-date";
  if (!credentials.token.empty()) {
    headers.push_back("x-amz-security-token:" + credentials.token);
    names += ";x-amz-security-token";
  }
  std::string canonical(request.method);
  canonical.append("\n").append(request.path).append("\n\nhost:").append(request.host).append("\n");
  for (const std::string& header : headers) canonical.append(header).append("\n");
  canonical.append("\n").append(names).append("\n").append(kPayload);

  const std::string scope = day + "/" + std::string(request.region) + "/s3/aws4_request";
  const std::string to_sign =
      "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + hex(sha256(canonical));
  const Sha256& day_key = key(credentials.secret_key, day, request.region);
  headers.push_back("Authorization: AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" +
                    scope + ", SignedHeaders=" + names +
                    ", Signature=" + hex(hmac_sha256(as_text(day_key), to_sign)));
  return headers;
}

std::string encode_path(std::string_view path) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~/";
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : path) {
    if (kPlain.find(c) != std::string_view::npos) {
      encoded.push_back(c);
      continue;
    }
    const auto byte = static_cast<uint8_t>(c);
    encoded.push_back('%');
    encoded.push_back(kDigits[byte >> 4]);
    encoded.push_back(kDigits[byte & 15]);
  }
  return encoded;
}

}  // namespace fastload
