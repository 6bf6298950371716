// The entropy-coded data of one JPEG as a sequence of MCUs that can be read from the nearest point
// where decoding may begin: an entry point, a restart marker, or the scan's first byte.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/cpu.h"
#include "decode/jpeg/bits.h"
#include "decode/jpeg/entropy.h"
#include "decode/jpeg/entry_points.h"

namespace fastload {

class JpegScan {
 public:
  // Builds the Huffman tables and unpacks the entries of the rows of MCUs before `rows`. Keeps the
  // views, not copies. `begin`: which byte of the file the first of these is, where what lies
  // before is not there; see can_begin_at(). Throws Error(kDecode) for bad tables, Error(kFormat)
  // for bad entries.
  void open(Bytes file, const JpegHeader& header, const EntryPoints& entries, SimdLevel level,
            int rows, size_t begin = 0);
  // Whether decode() from this MCU on has an entry to begin at whose bytes are there.
  [[nodiscard]] bool can_begin_at(int mcu) const;

  // How a caller describes where the blocks of MCUs go: tables and component of each block of one
  // MCU.
  [[nodiscard]] const HuffmanTables& tables(int component) const;
  [[nodiscard]] int component_of_block(int block) const {
    return block_component_[static_cast<size_t>(block)];
  }

  // Decodes the MCUs [mcu, mcu + count) (raster index) into targets[0 .. count * blocks_per_mcu),
  // followed by one target more; DC coefficients are whole afterwards. `places` puts coefficient 0
  // at 0. Throws Error(kDecode) where the data is damaged or an entry does not fit it.
  void decode(int mcu, int count, BlockTargets& targets, const CoefPlaces& places);

  // Moves to `mcu` (at most one behind the last), decoding what has to be passed over.
  void skip_to(int mcu);
  // Moves to `mcu` by skip_to() and says where it begins. Only from lower to higher MCUs, and not
  // for files with restart markers.
  EntryPoint entry_at(int mcu);

 private:
  void move_begin(size_t begin);
  void prepare_tables(size_t index, const JpegComponent& component);
  void seek(int mcu);
  void begin_at_entry(size_t index);
  void begin_at_restart(int index);
  size_t restart_offset(int index);
  void run(int count, BlockTargets& targets, size_t first, const CoefPlaces& places);
  [[nodiscard]] int segment_end() const;
  [[nodiscard]] int run_length(int wanted) const;
  void load_entry_segment(size_t begin, const EntryPoint& next);
  void load(int blocks);
  void add_predictors(const BlockTargets& targets, size_t begin, size_t end);
  void finish_entry_segment();
  void finish_restart_segment();
  void build_skip_targets();

  JpegHeader header_;
  Bytes file_;
  SimdLevel level_ = SimdLevel::kScalar;
  DecodeRun decode_run_ = nullptr;
  struct TableSource {
    HuffmanSpec dc, ac;
  };
  std::array<HuffmanTables, 3> tables_;
  std::array<TableSource, 3> table_sources_;  // what tables_ are built from
  std::array<int, 3> table_of_{};             // component -> index into tables_
  std::array<int, 6> block_component_{};

  std::vector<EntryPoint> entries_;  // empty: none
  int segment_mcus_ = 0;             // of the entries
  int segments_per_row_ = 0;
  std::vector<size_t> restarts_;  // offsets of the restart segments found so far

  ScanBytes bytes_;
  int mcu_ = 0;               // the next MCU in bytes_
  int segment_ = -1;          // the entry or restart segment that mcu_ lies in; -1: nothing is open
  size_t position_ = 0;       // bit in bytes_
  size_t segment_limit_ = 0;  // index in bytes_ of the next entry's byte
  std::array<int32_t, 3> predictors_{};

  size_t entry_source_ = 0;  // file offset of bytes_[entry_byte_], for entry_at()
  size_t entry_byte_ = 0;

  std::vector<int16_t> skip_coefs_;
  BlockTargets skip_targets_{};
};

}  // namespace fastload
