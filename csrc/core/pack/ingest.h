// Source files and byte ranges in, index entries out: what packing, indexing and verifying have in
// common. Every function works on one thread and may be called from many.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "decode/decode.h"
#include "shard/index.h"

namespace fastload {

// What went wrong with which input (its position in the call's arguments).
using Failures = std::vector<std::pair<uint64_t, std::string>>;

// The longest record; a larger file is refused. Arrow's int32 offsets allow no more than twice
// this.
inline constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 30;

struct IngestResult {
  uint64_t done = 0;    // files taken, with or without an error; the rest did not fit
  uint64_t used = 0;    // bytes of the buffer that hold records
  uint64_t needed = 0;  // when done is 0: the buffer size that the first file needs
  Failures failures;
};

// Reads files back to back into `buffer` until they are all read or the next one does not fit.
// File i is named by the bytes [ends[i - 1], ends[i]) of `names`, relative to the folder `root`.
// records[i] gets offset (in the buffer), length, CRC, codec, size and flags; label and shard are
// left alone; the size is that of the picture as it is `shown`. A failed file takes no room and gets length 0 and an entry in `failures`. A file that
// changes while it is read is read once more, then fails. Throws Error(kIo) if `root` cannot be
// opened, Error(kValue) if ends and records differ in length.
IngestResult ingest(const std::string& root, Bytes names, std::span<const uint64_t> ends,
                    std::span<uint8_t> buffer, std::span<Record> records,
                    const DecodeLimits& limits, const Shown& shown = {});

// Fills CRC, codec, size and flags of records whose offset and length in `bytes` are set. Raw
// records (codec kRaw) get only the CRC. A failed one gets length 0.
Failures describe(Bytes bytes, std::span<Record> records, const DecodeLimits& limits,
                  const Shown& shown = {});

// The same for records that lie in the file `path`: their offsets count from its start.
Failures describe_file(const std::string& path, std::span<Record> records,
                       const DecodeLimits& limits, const Shown& shown = {});

// Reads every record of `path` and lists those that cannot be read whole or whose CRC-32C differs.
Failures verify_file(const std::string& path, std::span<const Record> records);

}  // namespace fastload
