// What the bindings of Engine and RecordFeed share: sources in, counts of reading ahead out.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/bounded.h"
#include "cache/coefficient_cache.h"
#include "engine/sources.h"
#include "read_ahead/read_ahead.h"

namespace fastload::bindings {

// From [(Reader, Entries or None, list of labels)].
inline std::vector<Source> source_list(const nanobind::sequence& list) {
  std::vector<Source> sources;
  for (const nanobind::handle item : list) {
    auto [reader, entries, labels] =
        nanobind::cast<std::tuple<Reader*, Entries*, std::vector<int64_t>>>(item);
    if (reader == nullptr) throw Error(ErrorKind::kValue, "A source's reader must not be None.");
    sources.push_back({reader, entries, std::move(labels)});
  }
  return sources;
}

inline Sources read_sources(const nanobind::sequence& list) { return Sources(source_list(list)); }

// The same with caches of pictures: for each source a CacheFile or None, or no list of them. `side`
// as SamplePlan::decoded_side; 0: the files hold coefficient records. `parts`: for each source (the
// Readers of its further streams of records, its Columns, (Reader, ListedRecords) of its lists of
// pictures), or no list of them.
inline Sources read_sources(const nanobind::sequence& list, const nanobind::sequence& caches,
                            uint32_t side, const nanobind::list& parts = nanobind::list()) {
  std::vector<Source> sources = source_list(list);
  const auto fits = [&](size_t count) { return count == 0 || count == sources.size(); };
  if (!fits(nanobind::len(caches)) || !fits(parts.size())) {
    throw Error(ErrorKind::kValue,
                "Each source needs a pixel cache, or None, and its parts, or there are none.");
  }
  for (size_t i = 0; i < nanobind::len(caches); ++i) {
    auto* const file = nanobind::cast<CacheFile*>(caches[i]);
    if (file == nullptr) continue;
    const RecordTable& index = sources[i].reader->index();
    if (side == 0) {
      sources[i].coefficients =
          std::make_shared<CoefficientCache>(*file, index.size(), index.digest(),
                                             sources[i].reader->shown());
    } else {
      sources[i].pixels = std::make_shared<PixelCache>(*file, decoded_tier(side), index.size());
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    using Lists = std::vector<std::tuple<Reader*, ListedRecords*>>;
    auto [further, columns, lists] =
        nanobind::cast<std::tuple<std::vector<Reader*>, std::vector<Column*>, Lists>>(parts[i]);
    sources[i].further = std::move(further);
    sources[i].columns = std::move(columns);
    for (const auto& [reader, records] : lists) sources[i].lists.push_back({reader, records});
  }
  return Sources(std::move(sources));
}

inline nanobind::dict read_ahead_dict(const ReadAhead::Counts& counts) {
  nanobind::dict result;
  result["resident"] = counts.resident;
  result["ahead"] = counts.ahead;
  result["requests"] = counts.requests;
  result["bytes"] = counts.bytes;
  result["late"] = counts.late;
  result["waits"] = counts.waits;
  result["parts"] = counts.parts;
  result["part_bytes"] = counts.part_bytes;
  result["parts_of"] = counts.parts_of;
  result["parts_whole"] = counts.parts_whole;
  result["buffer_bytes"] = counts.buffer_bytes;
  result["buffer_peak"] = counts.buffer_peak;
  result["threads"] = counts.threads;
  return result;
}

}  // namespace fastload::bindings
