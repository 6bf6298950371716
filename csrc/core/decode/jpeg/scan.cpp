#include "decode/jpeg/scan.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

constexpr size_t kMaxCodeBits = 16;  // T.81, C.2

// Zig-zag positions for skipped blocks: any layout will do.
const CoefPlaces kSkipPlaces = [] {
  CoefPlaces places;
  for (int k = 1; k <= 64; ++k) places.set(k, k - 1);
  return places;
}();

[[noreturn]] void damaged(const std::string& what, int mcu) {
  throw Error(ErrorKind::kDecode,
              "JPEG data: " + what + " before MCU " + std::to_string(mcu) + ".");
}

}  // namespace

void JpegScan::open(Bytes file, const JpegHeader& header, const EntryPoints& entries,
                    SimdLevel level, int rows, size_t begin) {
  header_ = header;
  file_ = file;
  level_ = level;
  decode_run_ = FASTLOAD_KERNEL_AT(level, decode_run);
  for (int c = 0; c < header.component_count; ++c) {
    const JpegComponent& component = header.components[static_cast<size_t>(c)];
    int same = 0;
    while (same < c && (header.components[static_cast<size_t>(same)].dc != component.dc ||
                        header.components[static_cast<size_t>(same)].ac != component.ac)) {
      ++same;
    }
    table_of_[static_cast<size_t>(c)] = same;
    if (same == c) prepare_tables(static_cast<size_t>(c), component);
  }
  const int luma_blocks = header.component_count == 1 ? 1 : header.blocks_per_mcu - 2;
  for (int b = 0; b < header.blocks_per_mcu; ++b) {
    block_component_[static_cast<size_t>(b)] = b < luma_blocks ? 0 : b - luma_blocks + 1;
  }
  entries_.clear();
  if (!entries.packed.empty() && header.restart_interval == 0) {
    unpack_entries(header, entries, begin + file.size(), rows, entries_);
    segment_mcus_ = fastload::segment_mcus(header, entries.spacing);
    segments_per_row_ = fastload::segments_per_row(header, entries.spacing);
  }
  if (begin > 0) move_begin(begin);
  restarts_.assign(1, header_.scan_begin);
  segment_ = -1;
  mcu_ = 0;
  build_skip_targets();
}

// Counts all places from `begin` on. Entries before it are left at 0, which is none:
// can_begin_at().
void JpegScan::move_begin(size_t begin) {
  const auto moved = [begin](size_t offset) { return offset > begin ? offset - begin : 0; };
  header_.scan_begin = moved(header_.scan_begin);
  for (EntryPoint& point : entries_) point.offset = moved(point.offset);
}

bool JpegScan::can_begin_at(int mcu) const {
  if (entries_.empty()) return false;
  const int row = mcu / header_.mcus_per_row, column = mcu % header_.mcus_per_row;
  const auto index = static_cast<size_t>(row * segments_per_row_ + column / segment_mcus_);
  // The byte before is looked at, too.
  return index < entries_.size() && entries_[index].offset > 0;
}

// Builds the tables of a component unless the image before had the same ones (many encoders always
// use the example tables of T.81, Annex K).
void JpegScan::prepare_tables(size_t index, const JpegComponent& component) {
  TableSource& source = table_sources_[index];
  const HuffmanSpec& dc = header_.dc[component.dc];
  const HuffmanSpec& ac = header_.ac[component.ac];
  if (source.dc == dc && source.ac == ac) return;
  source = TableSource{};  // present is false: nothing equals this if build_tables() throws
  build_tables(dc, ac, level_, tables_[index]);
  source = {dc, ac};
}

const HuffmanTables& JpegScan::tables(int component) const {
  return tables_[static_cast<size_t>(table_of_[static_cast<size_t>(component)])];
}

void JpegScan::build_skip_targets() {
  skip_coefs_.resize((kMaxRunBlocks + 1) * 64);
  for (size_t i = 0; i <= kMaxRunBlocks; ++i) {
    const int in_mcu = static_cast<int>(i) % header_.blocks_per_mcu;
    skip_targets_.set(i, tables(component_of_block(in_mcu)), skip_coefs_.data() + i * 64);
  }
}

// The MCUs that one run takes: up to `wanted` of the open segment.
int JpegScan::run_length(int wanted) const {
  const int most = static_cast<int>(kMaxRunBlocks) / header_.blocks_per_mcu;
  return std::min({wanted, segment_end() - mcu_, most});
}

void JpegScan::decode(int mcu, int count, BlockTargets& targets, const CoefPlaces& places) {
  skip_to(mcu);
  size_t first = 0;
  while (count > 0) {
    seek(mcu_);
    const int n = run_length(count);
    run(n, targets, first, places);
    first += static_cast<size_t>(n * header_.blocks_per_mcu);
    count -= n;
  }
}

void JpegScan::skip_to(int mcu) {
  if (mcu < header_.mcus_per_row * header_.mcu_rows) seek(mcu);
  while (mcu_ < mcu) {
    seek(mcu_);
    run(run_length(mcu - mcu_), skip_targets_, 0, kSkipPlaces);
  }
}

EntryPoint JpegScan::entry_at(int mcu) {
  skip_to(mcu);
  // Each FF before the position stands for two bytes of the file.
  const size_t byte = position_ / 8;
  bytes_.require(byte + 1);
  const uint8_t* const data = bytes_.data();
  entry_source_ += byte - entry_byte_ +
                   static_cast<size_t>(std::count(data + entry_byte_, data + byte, uint8_t{0xFF}));
  entry_byte_ = byte;
  EntryPoint point;
  point.offset = entry_source_;
  point.bit = static_cast<int>(position_ % 8);
  for (int c = 0; c < header_.component_count; ++c) {
    point.predictors[static_cast<size_t>(c)] = predictors_[static_cast<size_t>(c)];
  }
  return point;
}

// Opens the segment nearest before `mcu`, unless the current position is nearer.
void JpegScan::seek(int mcu) {
  if (!entries_.empty()) {
    const int row = mcu / header_.mcus_per_row, column = mcu % header_.mcus_per_row;
    const int wanted = row * segments_per_row_ + column / segment_mcus_;
    if (wanted != segment_ || mcu < mcu_) begin_at_entry(static_cast<size_t>(wanted));
    return;
  }
  const int wanted = header_.restart_interval > 0 ? mcu / header_.restart_interval : 0;
  if (wanted != segment_ || mcu < mcu_) begin_at_restart(wanted);
}

void JpegScan::begin_at_entry(size_t index) {
  const EntryPoint& point = entries_.at(index);
  // A position between FF and 00 is not one; the byte before the scan belongs to the header.
  if (point.offset > header_.scan_begin && file_[point.offset - 1] == 0xFF) {
    damaged("an entry point lies inside a stuffed byte", mcu_);
  }
  const int row = static_cast<int>(index) / segments_per_row_;
  const int column = static_cast<int>(index) % segments_per_row_ * segment_mcus_;
  const bool follows = segment_ >= 0 && static_cast<size_t>(segment_) + 1 == index &&
                       mcu_ == row * header_.mcus_per_row + column;
  if (!follows) {  // else finish_entry_segment() has shown that bytes_ is there already
    bytes_.open(file_, point.offset, level_);
    position_ = static_cast<size_t>(point.bit);
    segment_limit_ = 0;
    for (size_t c = 0; c < 3; ++c) predictors_[c] = point.predictors[c];
  }
  segment_ = static_cast<int>(index);
  mcu_ = row * header_.mcus_per_row + column;
  if (index + 1 < entries_.size()) load_entry_segment(point.offset, entries_[index + 1]);
}

// Takes the segment's bytes and notes where in them the next one begins.
void JpegScan::load_entry_segment(size_t begin, const EntryPoint& next) {
  if (next.offset != begin) {
    if (file_[next.offset - 1] == 0xFF) damaged("an entry point lies inside a stuffed byte", mcu_);
    bytes_.take_until(next.offset);
    if (bytes_.offset() < next.offset) damaged("a marker lies before an entry point", mcu_);
    segment_limit_ = bytes_.size();
  }
  // The byte that the next segment begins in may hold the last bits of this one.
  if (next.bit > 0) bytes_.take_until(next.offset + (file_[next.offset] == 0xFF ? 2 : 1));
}

void JpegScan::begin_at_restart(int index) {
  bytes_.open(file_, restart_offset(index), level_);
  position_ = 0;
  predictors_ = {};
  segment_ = index;
  mcu_ = index * header_.restart_interval;
  entry_source_ = bytes_.offset();
  entry_byte_ = 0;
}

// Where the restart segment begins; finds the markers on the way.
size_t JpegScan::restart_offset(int index) {
  while (restarts_.size() <= static_cast<size_t>(index)) {
    size_t at = restarts_.back();
    for (;;) {
      const void* found =
          at < file_.size() ? std::memchr(file_.data() + at, 0xFF, file_.size() - at) : nullptr;
      if (found == nullptr)
        damaged("a restart marker is missing", index * header_.restart_interval);
      at = static_cast<size_t>(static_cast<const uint8_t*>(found) - file_.data()) + 1;
      const int code = at < file_.size() ? file_[at] : 0xD9;
      if (code == 0 || code == 0xFF) continue;  // a stuffed byte; fill bytes before a marker
      if (code != 0xD0 + static_cast<int>((restarts_.size() - 1) & 7)) {
        damaged("a restart marker is missing or out of order", index * header_.restart_interval);
      }
      break;
    }
    restarts_.push_back(at + 1);
  }
  return restarts_[static_cast<size_t>(index)];
}

// The first MCU behind the open segment.
int JpegScan::segment_end() const {
  const int all = header_.mcus_per_row * header_.mcu_rows;
  if (!entries_.empty()) {
    const int row = segment_ / segments_per_row_;
    const int column = (segment_ % segments_per_row_ + 1) * segment_mcus_;
    return row * header_.mcus_per_row + std::min(column, header_.mcus_per_row);
  }
  if (header_.restart_interval == 0) return all;
  return static_cast<int>(std::min<int64_t>(all, int64_t{segment_ + 1} * header_.restart_interval));
}

void JpegScan::run(int count, BlockTargets& targets, size_t first, const CoefPlaces& places) {
  const int blocks = count * header_.blocks_per_mcu;
  const size_t end = first + static_cast<size_t>(blocks);
  load(blocks);
  const bool legal = decode_run_(bytes_.data(), position_, targets, first, end, places.data());
  // What lies behind the data is rubbish, and it is not to be seen in the error: a code is illegal
  // only if the data has all its bits.
  const size_t size = bytes_.size() * 8;
  if (!legal && position_ + kMaxCodeBits <= size) {
    damaged("an illegal Huffman code", mcu_ + count);
  }
  if (!legal || position_ > size) damaged("the data ends", mcu_ + count);
  add_predictors(targets, first, end);
  mcu_ += count;
  if (mcu_ != segment_end()) return;
  if (!entries_.empty()) {
    finish_entry_segment();
  } else if (header_.restart_interval > 0 && mcu_ < header_.mcus_per_row * header_.mcu_rows) {
    finish_restart_segment();
  }
}

// Makes what `blocks` blocks can take at most available, or all that the segment has.
void JpegScan::load(int blocks) {
  if (static_cast<size_t>(segment_) + 1 < entries_.size()) return;  // begin_at_entry() took all
  bytes_.require(position_ / 8 + static_cast<size_t>(blocks) * kMaxBlockBytes + 16);
}

// Turns the differences of the targets [begin, end), whole MCUs, into DC coefficients.
void JpegScan::add_predictors(const BlockTargets& targets, size_t begin, size_t end) {
  const auto in_mcu = static_cast<size_t>(header_.blocks_per_mcu);
  size_t first = begin;  // the component's blocks in an MCU follow each other
  for (int c = 0; c < header_.component_count; ++c) {
    const JpegComponent& component = header_.components[static_cast<size_t>(c)];
    const auto blocks = static_cast<size_t>(component.h * component.v);
    // libjpeg keeps the sum in an int and stores its low 16 bits.
    auto predictor = static_cast<uint32_t>(predictors_[static_cast<size_t>(c)]);
    for (size_t mcu = first; mcu < end; mcu += in_mcu) {
      for (size_t i = mcu; i < mcu + blocks; ++i) {
        int16_t& dc = targets.coefs[i][0];
        predictor += static_cast<uint32_t>(int32_t{dc});
        dc = static_cast<int16_t>(predictor);
      }
    }
    predictors_[static_cast<size_t>(c)] = static_cast<int32_t>(predictor);
    first += blocks;
  }
}

// A segment ends exactly where the next entry says, with its predictors: else the entries belong to
// another file or are damaged.
void JpegScan::finish_entry_segment() {
  const auto next = static_cast<size_t>(segment_) + 1;
  if (next >= entries_.size()) return;
  const EntryPoint& point = entries_[next];
  bool same = position_ == segment_limit_ * 8 + static_cast<size_t>(point.bit);
  for (int c = 0; c < header_.component_count; ++c) {
    same = same && predictors_[static_cast<size_t>(c)] == point.predictors[static_cast<size_t>(c)];
  }
  if (!same) damaged("the entry points do not fit the data", mcu_);
}

// Before a restart marker lie at most 7 padding bits.
void JpegScan::finish_restart_segment() {
  bytes_.require(position_ / 8 + 2);
  if (!bytes_.ended() || bytes_.size() * 8 - position_ >= 8) {
    damaged("a restart segment is longer than its MCUs", mcu_);
  }
  restart_offset(segment_ + 1);
}

}  // namespace fastload
