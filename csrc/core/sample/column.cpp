#include "sample/column.h"

#include <array>

#include "base/error.h"

namespace fastload {
namespace {

uint32_t checked_width(Storage storage, uint32_t width) {
  if (storage == Storage::kRecord || storage == Storage::kRecords) return sizeof(Record);
  if (width > 0) return width;
  throw Error(ErrorKind::kValue, "A column's values or rows have at least 1 byte. Found: width 0.");
}

}  // namespace

Storage storage_of(std::string_view word) {
  if (word == "record") return Storage::kRecord;
  if (word == "fixed") return Storage::kFixed;
  if (word == "ragged") return Storage::kRagged;
  if (word == "records") return Storage::kRecords;
  throw Error(ErrorKind::kValue,
              "A column's storage is 'record', 'fixed', 'ragged' or 'records'. Found: '" +
                  std::string(word) + "'.");
}

Column::Column(const std::string& path, Storage storage, uint32_t width)
    : storage_(storage),
      width_(checked_width(storage, width)),
      file_(path, "FLFIELD1", is_listed() ? 0 : width_, is_listed()) {
  const uint32_t wanted = is_listed() ? 0 : width_;
  if (file_.header().spacing == wanted) return;
  const auto words = [](uint32_t spacing) {
    return spacing == 0 ? std::string("values of differing length")
                        : "values of " + std::to_string(spacing) + " bytes";
  };
  file_.damaged("it has " + words(file_.header().spacing) + ", the field's are " + words(wanted));
}

Column::Range Column::find(uint64_t id) {
  if (id >= size()) {
    throw Error(ErrorKind::kValue, "Sample id must be below " + std::to_string(size()) +
                                       ". Found: " + std::to_string(id) + " (" + path() + ").");
  }
  const PagedHeader& header = file_.header();
  if (!is_listed()) return {header.data_offset + id * width_, width_};
  const auto ends = file_.value<std::array<uint64_t, 2>>(header.table_offset + id * 8);
  const uint64_t available = header.data_offset + header.data_size - header.bytes_offset;
  if (ends[0] > ends[1] || ends[1] > available || (ends[1] - ends[0]) % width_ != 0) {
    file_.damaged("the value of sample " + std::to_string(id) + " lies from byte " +
                  std::to_string(ends[0]) + " to " + std::to_string(ends[1]) + " of " +
                  std::to_string(available) + ", in rows of " + std::to_string(width_));
  }
  return {header.bytes_offset + ends[0], ends[1] - ends[0]};
}

uint64_t Column::length(uint64_t id) { return find(id).length; }

void Column::copy(uint64_t id, uint8_t* out, uint64_t length) {
  const Range range = find(id);
  if (range.length != length) {
    file_.damaged("the value of sample " + std::to_string(id) + " has " +
                  std::to_string(range.length) + " bytes, and had " + std::to_string(length) +
                  " when it was measured");
  }
  if (length == 0) return;
  while (const uint8_t* const found = file_.find(range.begin, length)) {
    std::memcpy(out, found, length);
    if (file_.is_there({found, length})) return;  // else find() says so, or finds the file
  }
  file_.read(range.begin, length, out);
}

Record Column::record(uint64_t id) {
  if (storage_ != Storage::kRecord) {
    throw Error(ErrorKind::kState, path() + " has values, not records of shards.");
  }
  Record record;
  copy(id, reinterpret_cast<uint8_t*>(&record), sizeof(record));
  return record;
}

void Column::require_records() const {
  if (storage_ == Storage::kRecords) return;
  throw Error(ErrorKind::kState, path() + " has no lists of records.");
}

uint64_t Column::record_count() {
  require_records();
  if (size() == 0) return 0;
  const Range last = find(size() - 1);
  return (last.begin + last.length - file_.header().bytes_offset) / width_;
}

std::pair<uint64_t, uint64_t> Column::records_of(uint64_t id) {
  require_records();
  const Range range = find(id);
  const uint64_t first = (range.begin - file_.header().bytes_offset) / width_;
  return {first, first + range.length / width_};
}

Record Column::listed(uint64_t number) {
  const uint64_t count = record_count();
  if (number >= count) {
    throw Error(ErrorKind::kValue, "A record's number must be below " + std::to_string(count) +
                                       ". Found: " + std::to_string(number) + " (" + path() + ").");
  }
  return file_.value<Record>(file_.header().bytes_offset + number * width_);
}

void Column::verify() {
  file_.verify();
  if (!is_listed()) return;
  for (uint64_t id = 0; id < size(); ++id) find(id);
}

}  // namespace fastload
