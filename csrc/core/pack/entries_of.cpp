#include "pack/entries_of.h"

#include "decode/decode.h"
#include "decode/jpeg/entry_points.h"

namespace fastload {

PackedEntries entries_of(Reader& reader, std::span<const uint64_t> ids, int spacing) {
  PackedEntries all;
  std::vector<uint8_t> scratch;
  for (const uint64_t id : ids) {
    std::vector<uint8_t> one;
    if (static_cast<Codec>(reader.index().record(id).codec) == Codec::kJpeg) {
      one = build_entries(reader.read(id, scratch), spacing);
    }
    all.packed.insert(all.packed.end(), one.begin(), one.end());
    all.sizes.push_back(one.size());
  }
  return all;
}

}  // namespace fastload
