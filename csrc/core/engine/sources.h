// Several packed datasets read as one: their sample ids go on from one to the next.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cache/coefficient_cache.h"
#include "cache/pixel_cache.h"
#include "sample/column.h"
#include "shard/entries.h"
#include "shard/reader.h"

namespace fastload {

// Pictures of samples that have any number of them.
struct ListSource {
  Reader* reader = nullptr;          // borrowed; of all pictures
  ListedRecords* records = nullptr;  // borrowed; nullptr: each sample has one, its own
  uint64_t first = 0;                // number of its first record among those of all lists
};

struct Source {
  Reader* reader = nullptr;     // borrowed
  Entries* entries = nullptr;   // borrowed; nullptr: none
  std::vector<int64_t> labels;  // the label that stands for each of the dataset's; empty: the same
  uint64_t first = 0;           // id of its first sample
  std::shared_ptr<PixelCache> pixels =
      nullptr;                        // decoded pictures by the dataset's own ids; nullptr: none
  std::shared_ptr<CoefficientCache> coefficients =
      nullptr;                        // records by the dataset's own ids; nullptr: none
  std::vector<Reader*> further = {};  // of the second stream of records, and so on; borrowed
  std::vector<Column*> columns = {};  // borrowed
  std::vector<ListSource> lists = {};

  // Entry points, decoded pictures and coefficients are the first stream's.
  [[nodiscard]] Reader& stream(uint32_t number) const {
    return number == 0 ? *reader : *further[number - 1];
  }

  [[nodiscard]] int64_t label(int64_t own) const {
    return own < 0 || static_cast<uint64_t>(own) >= labels.size()
               ? own
               : labels[static_cast<size_t>(own)];
  }
};

// Safe to use from many threads.
class Sources {
 public:
  // Each `first` is set here. Throws Error(kValue) if there is no source, Error(kFormat) where a
  // source's parts are not of equally many samples.
  explicit Sources(std::vector<Source> sources) : sources_(std::move(sources)) {
    if (sources_.empty()) throw Error(ErrorKind::kValue, "A loader needs a dataset. Found: none.");
    for (Source& source : sources_) {
      source.first = total_;
      total_ += source.reader->index().size();
      for (const Reader* reader : source.further) check(source, reader->index());
      for (const Column* column : source.columns) check(source, *column);
      for (ListSource& list : source.lists) {
        list.first = listed_;
        listed_ += list.reader->index().size();
      }
    }
  }

  struct Home {
    const Source* source = nullptr;
    uint64_t id = 0;  // in that source
  };
  // How many samples there are.
  [[nodiscard]] uint64_t size() const { return total_; }
  [[nodiscard]] const std::vector<Source>& all() const { return sources_; }
  // Where a sample is. Ids behind the end are given to the last source, whose reader refuses them.
  [[nodiscard]] Home find(uint64_t id) const {
    size_t i = sources_.size() - 1;
    while (id < sources_[i].first) --i;
    return {&sources_[i], id - sources_[i].first};
  }

  // A record of a list of pictures.
  struct Listed {
    const ListSource* list = nullptr;
    uint64_t number = 0;  // in the list's reader
  };
  // By its number among those of all lists, of which there must be one.
  [[nodiscard]] Listed find_listed(uint64_t record) const {
    const ListSource* found = nullptr;
    for (const Source& source : sources_) {
      for (const ListSource& list : source.lists) {
        if (list.first <= record) found = &list;
      }
    }
    return {found, record - found->first};
  }

 private:
  static void check(const Source& source, const auto& part) {
    const RecordTable& index = source.reader->index();
    if (part.size() == index.size()) return;
    throw Error(ErrorKind::kFormat, part.path() + " has the values of " +
                                        std::to_string(part.size()) + " samples, " + index.path() +
                                        " has " + std::to_string(index.size()) + ". Pack again.");
  }

  std::vector<Source> sources_;
  uint64_t total_ = 0;
  uint64_t listed_ = 0;
};

}  // namespace fastload
