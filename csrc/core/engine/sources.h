// Several packed datasets read as one: their sample ids go on from one to the next.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "cache/pixel_cache.h"
#include "shard/entries.h"
#include "shard/reader.h"

namespace fastload {

struct Source {
  Reader* reader = nullptr;     // borrowed
  Entries* entries = nullptr;   // borrowed; nullptr: none
  std::vector<int64_t> labels;  // the label that stands for each of the dataset's; empty: the same
  uint64_t first = 0;           // id of its first sample
  std::shared_ptr<PixelCache> pixels =
      nullptr;  // decoded pictures by the dataset's own ids; nullptr: none

  [[nodiscard]] int64_t label(int64_t own) const {
    return own < 0 || static_cast<uint64_t>(own) >= labels.size()
               ? own
               : labels[static_cast<size_t>(own)];
  }
};

// Safe to use from many threads.
class Sources {
 public:
  // `first` is set here. Throws Error(kValue) if there is no source.
  explicit Sources(std::vector<Source> sources) : sources_(std::move(sources)) {
    if (sources_.empty()) throw Error(ErrorKind::kValue, "A loader needs a dataset. Found: none.");
    for (size_t i = 1; i < sources_.size(); ++i) {
      sources_[i].first = sources_[i - 1].first + sources_[i - 1].reader->index().size();
    }
  }

  struct Place {
    const Source& source;
    uint64_t id;  // in that source
  };
  // Where a sample is. Ids behind the end are given to the last source, whose reader refuses them.
  [[nodiscard]] Place find(uint64_t id) const {
    size_t i = sources_.size() - 1;
    while (id < sources_[i].first) --i;
    return {sources_[i], id - sources_[i].first};
  }

 private:
  std::vector<Source> sources_;
};

}  // namespace fastload
