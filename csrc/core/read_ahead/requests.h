// What read_ahead.cpp and plan.cpp share: the requests of a batch, and one request to storage.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "read_ahead/read_ahead.h"

namespace fastload {

enum RequestState : int {
  kQueued,    // nobody has looked at it
  kLoading,   // a thread reads it
  kReady,     // in its buffer
  kResident,  // in memory anyway
  kFailed,    // could not be read
  kTaken,     // by decoding, or dropped
};

struct ReadAhead::Request {
  std::atomic<int> state{kQueued};
  std::shared_ptr<uint8_t> buffer;  // with kReady
  const uint8_t* bytes = nullptr;
  std::exception_ptr error;                    // with kFailed: asking again is of no use
  bool checked = false;                        // the bytes are the record's
  std::optional<LoadedBytes> loaded;           // which bytes of the record these are; nothing: all
  const std::atomic<bool>* dropped = nullptr;  // the group's
};

struct ReadAhead::Group {
  Group(std::vector<int64_t> record_ids, uint32_t records_a_sample, Needs record_needs,
        std::vector<uint32_t> first_records = {})
      : ids(std::move(record_ids)),
        together(records_a_sample),
        starts(std::move(first_records)),
        needs(std::move(record_needs)),
        requests(std::make_unique<Request[]>(ids.size())) {
    for (size_t i = 0; i < ids.size(); ++i) requests[i].dropped = &dropped;
  }

  [[nodiscard]] bool has(const Request& request) const {
    return &request >= requests.get() && &request < requests.get() + ids.size();
  }
  [[nodiscard]] bool is_loading() const {
    return std::any_of(requests.get(), requests.get() + ids.size(),
                       [](const Request& request) { return request.state == kLoading; });
  }

  // Behind the last record of the sample that has the one at `position`.
  [[nodiscard]] uint32_t end_of_sample(uint32_t position) const {
    if (starts.empty()) return position - position % together + together;
    return *std::ranges::upper_bound(starts, position);
  }

  std::vector<int64_t> ids;
  uint32_t together;             // ids of a sample, beside each other
  std::vector<uint32_t> starts;  // where samples have any number of ids: see announce()
  Needs needs;        // empty: all records are needed whole
  std::unique_ptr<Request[]> requests;
  std::atomic<bool> dropped{false};
};

// One range of a source, for one record or several neighbours.
struct ReadAhead::Job {
  struct Wanted {
    std::shared_ptr<Request> request;  // keeps its group alive
    uint64_t id;                       // in the reader
    Record record;
  };
  std::vector<Wanted> wanted;  // the one that is needed first, then its neighbours
  Origin origin{};             // of the first
  ByteSource* source = nullptr;
  uint64_t begin = 0, end = 0;  // bytes of the source
  std::shared_ptr<uint8_t> buffer;
  bool keep = false;                  // in the page cache
  bool in_tier = false;               // the source is the tier's, and `wanted` one record
  std::optional<LoadedBytes> loaded;  // of one record's bytes these alone; nothing: all
  const uint8_t* bytes = nullptr;     // in the buffer, once read
  std::exception_ptr error;           // see Request

  // Of one of the wanted.
  [[nodiscard]] Bytes bytes_of(const Wanted& wanted_one) const {
    if (loaded) return {bytes, loaded->size()};
    const uint64_t at = in_tier ? 0 : wanted_one.record.offset - begin;
    return {bytes + at, wanted_one.record.length};
  }
  // How many ranges it asks for.
  [[nodiscard]] size_t pieces() const { return loaded && loaded->begin != loaded->end ? 2 : 1; }
  // Of the buffer.
  [[nodiscard]] size_t room() const {
    return loaded ? loaded->size() : ByteSource::room(begin, end - begin);
  }
};

}  // namespace fastload
