// What packing asks of the file system besides reading and writing.
#pragma once

#include <cstdint>
#include <string>

namespace fastload {

// Reserves disk blocks for the first `bytes` of `path` without changing its size, so that a full
// disk shows before the format's library writes. False if the file system cannot reserve. Throws
// Error(kIo) with the system's reason (no space, quota).
bool reserve(const std::string& path, uint64_t bytes);

// Gives back blocks reserved beyond the file's end.
void trim(const std::string& path);

}  // namespace fastload
