// Encoded records of whole batches, with the windows to cut, for a decoder that is not ours.
//
// DESIGN. Another decoder (NVIDIA DALI) gets what it decodes to the pixels that our own decoder
// gives, up to rounding: whole baseline JPEGs of 8 bits, gray or in three components. All other
// records of a batch are left to our own decoder, which has a verdict on each of them; so are those
// of which it has been learnt that the other decoder fails (refuse()), a share of the rest, drawn
// by sample, and what exceeds a budget of decoded bytes. Records are views of the mapping or of
// buffers that were read ahead; a RecordBatch keeps them alive.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "decode/decode.h"
#include "engine/sources.h"
#include "read_ahead/read_ahead.h"
#include "transform/view.h"

namespace fastload {

// Which samples of a batch, and how they are drawn.
struct RecordRequest {
  std::span<const int64_t> ids;     // sample ids; negative: none
  std::span<const uint32_t> draws;  // SampleRng::draw of each, or empty: all 0
  uint64_t epoch = 0;
  double share = 0;                    // of the samples that our own decoder takes, in [0, 1]
  uint64_t most_bytes = ~uint64_t{0};  // of decoded pictures, at most
};

// What the other decoder gets: for each record the rectangle to decode, and which part of that
// becomes the sample, mirrored where end < start.
struct RecordBatch {
  std::vector<int64_t> positions;  // in the batch, ascending
  std::vector<Bytes> records;
  std::vector<int32_t> start;    // (n, 2): top row and left column, pixels of the picture
  std::vector<int32_t> shape;    // (n, 2): rows and columns
  std::vector<float> roi_start;  // (n, 2): row and column in the rectangle
  std::vector<float> roi_end;    // (n, 2)
  std::deque<std::vector<uint8_t>> scratch;       // owns records that were just read
  std::vector<std::shared_ptr<const void>> held;  // owns records that were read ahead
};

// Safe to use from many threads.
class RecordFeed {
 public:
  struct Plan {
    GeometrySpec geometry;
    int out_width = 0;  // pixels of a sample
    int out_height = 0;
    uint64_t seed = 0;
    DecodeLimits limits;
  };
  // The readers in `sources` must outlive the feed.
  RecordFeed(Sources sources, const Plan& plan, const ReadAheadPlan& read_ahead);

  // As Engine::announce and forget. Samples that our own decoder will take are not read.
  std::shared_ptr<void> announce(const RecordRequest& request);
  void forget(const std::shared_ptr<void>& announced) noexcept { ahead_.drop(announced); }
  // The records of a batch for the other decoder. `announced` is what announce() returned for it,
  // or nullptr. A record that cannot be read or recognised is left out: our own decoder, which
  // reads it again, says what is wrong.
  std::unique_ptr<RecordBatch> fetch(const RecordRequest& request,
                                     const std::shared_ptr<void>& announced);

  // The other decoder is given these samples no more.
  void refuse(std::span<const int64_t> ids);
  // From now on it gets only samples of accept(): ones that were decoded before.
  void require_accepted() { accepted_only_ = true; }
  void accept(std::span<const int64_t> ids);

  [[nodiscard]] ReadAhead::Counts read_ahead() const { return ahead_.counts(); }
  // Ends the reading threads. Idempotent.
  void close() { ahead_.close(); }

 private:
  [[nodiscard]] bool is_wanted(const RecordRequest& request, const PhiloxKey& key, size_t i) const;
  bool add(const RecordRequest& request, const PhiloxKey& key, size_t i, void* group,
           uint64_t& bytes, RecordBatch& batch);
  bool has_all_rows(const Source& source, uint64_t own, uint64_t id, Bytes record,
                    const ImageInfo& info);

  const Sources sources_;
  const Plan plan_;
  Decoder checker_;
  ReadAhead ahead_;
  mutable std::mutex verdicts_;                   // guards the checker and what follows
  std::vector<bool> refused_, accepted_, whole_;  // by sample id, as long as needed
  bool accepted_only_ = false;
};

}  // namespace fastload
