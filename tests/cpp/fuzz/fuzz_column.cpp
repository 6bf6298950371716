// field-NN.fli over arbitrary bytes, with checksums put right so that something gets past them.
// Whatever a column returns must be the file's bytes where this target's own, plain reading of the
// layout (FORMAT.md) finds them.
//
// Input: 8 control bytes (see Fix; storage; 2 bytes width; 2 bytes a sample id), the file.
#include <string>

#include "input.h"
#include "paged_input.h"
#include "sample/column.h"

namespace {

using namespace fastload;
using namespace fastload::fuzz;

constexpr size_t kControl = 8;
constexpr uint64_t kMost = 1 << 20;  // bytes of a value that is copied

void read_value(Column& column, const Buffer& file, uint64_t id) {
  accepted([&] {
    const uint64_t length = column.length(id);
    FUZZ_CHECK(length % column.width() == 0);
    FUZZ_CHECK(length <= file.size());
    if (length > kMost) return;
    Buffer value(length);
    column.copy(id, value.data(), length);
    if (column.storage() == Storage::kRagged) {
      check_variable(value.data(), value.size(), file, id);
    } else {
      FUZZ_CHECK(length == column.width());
      check_bytes(value.data(), length, file, header_of(file).data_offset + id * length);
    }
  });
}

void read_record(Column& column, const Buffer& file, uint64_t id) {
  accepted([&] {
    const Record record = column.record(id);
    check_bytes(reinterpret_cast<const uint8_t*>(&record), sizeof record, file,
                header_of(file).data_offset + id * sizeof record);
  });
}

// Every value can be had of a column that verify() finds whole.
void read_all(Column& column, const Buffer& file) {
  if (!accepted([&] { column.verify(); })) return;
  for (uint64_t id = 0; id < std::min<uint64_t>(column.size(), 64); ++id) {
    const uint64_t length = column.length(id);
    FUZZ_CHECK(length <= file.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kControl) return 0;
  static const MemoryFile place;
  Input in(Bytes(data, size));
  const uint8_t fixes = in.u8();
  const auto storage = static_cast<Storage>(in.u8() % 3);
  const auto width = static_cast<uint32_t>(in.in(1, 64));
  const auto wanted = static_cast<uint64_t>(in.u16());
  in.take(kControl - 6);
  const Bytes rest = in.rest();
  Buffer file(rest.begin(), rest.end());
  fix(file, "FLFIELD1", fixes);
  place.set(file);
  accepted([&] {
    Column column(place.path(), storage, width);
    const bool ragged = storage == Storage::kRagged;
    FUZZ_CHECK(header_of(file).spacing == (ragged ? 0 : column.width()));
    if (column.size() == 0) return;
    read_value(column, file, wanted % column.size());
    read_value(column, file, column.size() - 1);
    if (storage == Storage::kRecord) read_record(column, file, wanted % column.size());
    read_all(column, file);
  });
  return 0;
}
