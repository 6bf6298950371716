// The one exception type of the core. The binding layer maps `kind` to a Python class.
#pragma once

#include <stdexcept>
#include <string>

namespace fastload {

enum class ErrorKind {
  kDecode,     // the record's bytes are not a whole, valid image
  kLimit,      // a size exceeds a documented limit (pixels, scans, record bytes)
  kFormat,     // an index or a shard breaks the format's rules
  kTruncated,  // a file is shorter than its index says
  kChecksum,   // a CRC32C differs
  kIo,         // a system call failed
  kValue,      // an argument is outside its legal range
  kState,      // a call in the wrong state (closed, forked)
  kMemory,     // the system gives no more memory; says nothing about a record
  kRefused,    // a store has answered, and asking again gives the same
  kMissing,    // a store has no such object
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace fastload
