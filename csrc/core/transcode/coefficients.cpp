#include "transcode/coefficients.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/per_thread.h"
#include "decode/coefficients/record.h"
#include "transcode/coding_choice.h"
#include "transcode/jpeg_parts.h"
#include "transcode/rest.h"
#include "transcode/segment_writer.h"

namespace fastload {
namespace {

constexpr size_t kTogether = 8;  // segments unpacked at a time

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::kDecode, "cannot become a coefficient record: " + why);
}

void lay_out_segments(CoefficientRecord& record) {
  record.segment_mcus = coefficient_segment_mcus(record.header);
  record.segments_per_row =
      (record.header.mcus_per_row + record.segment_mcus - 1) / record.segment_mcus;
}

// What a thread keeps from one picture to the next: memory that is new costs more than what is
// written into it.
struct Workspace {
  JpegParts made;   // of a file
  JpegParts again;  // of a record
  std::vector<uint8_t> segments, file;

  static constexpr size_t kKeep = size_t{8} << 20;  // bytes of each vector

  // One huge file must not cost each thread its size for ever.
  void shrink() {
    made.blocks.shrink();
    again.blocks.shrink();
    for (std::vector<uint8_t>* const bytes : {&segments, &file, &made.rest, &again.rest}) {
      if (bytes->capacity() > kKeep) std::vector<uint8_t>().swap(*bytes);
    }
  }
};

// Gives the thread's own.
class BorrowedWorkspace {
 public:
  BorrowedWorkspace() : space_(per_thread<Workspace>()) {}
  ~BorrowedWorkspace() { space_.shrink(); }
  BorrowedWorkspace(const BorrowedWorkspace&) = delete;
  BorrowedWorkspace& operator=(const BorrowedWorkspace&) = delete;
  Workspace* operator->() const { return &space_; }
  Workspace& operator*() const { return space_; }

 private:
  Workspace& space_;
};

std::vector<uint8_t> write(const JpegParts& parts, CoefficientForm form,
                           std::vector<uint8_t>& segments) {
  CoefficientRecord record;
  record.header = parts.header;
  record.is_progressive = parts.is_progressive;
  record.coding.form = form;
  lay_out_segments(record);
  const BlockLists& blocks = parts.blocks;
  choose_coding(blocks, record);
  const MaskClasses classes(record.coding);
  auto& pack = FASTLOAD_KERNEL_AT(simd_level(), pack_segment);
  std::vector<uint16_t> lengths(record.segment_count());
  size_t used = 0, number = 0;
  for (size_t row = 0; row < static_cast<size_t>(record.header.mcu_rows); ++row) {
    for (size_t i = 0; i < blocks.segments_per_row(); ++i, ++number) {
      if (segments.size() < used + kMostSegmentBytes) {
        segments.resize(2 * used + kMostSegmentBytes);
      }
      const size_t size =
          pack(record.coding, classes, blocks.shape(i), blocks.segment(row, i), &segments[used]);
      lengths[number] = static_cast<uint16_t>(size);
      used += size;
    }
  }
  return write_record(record, lengths, Bytes(segments).first(used), parts.rest);
}

// The record's coefficients, where split_jpeg() had them.
void read(Bytes bytes, const DecodeLimits& limits, JpegParts& parts) {
  CoefficientRecord record;
  read_record(bytes, limits, record);
  check_record_crc(bytes);
  parts.header = record.header;
  parts.is_progressive = record.is_progressive;
  parts.rest.assign(record.rest.begin(), record.rest.end());
  parts.blocks.open(record.header);
  std::array<SegmentSource, kTogether> sources;
  auto& unpacked = per_thread<std::array<SegmentBlocks, kTogether>>();
  const SegmentKernels& kernels = segment_kernels(simd_level());
  const uint8_t* at = record.segments.data();
  const size_t in_row = parts.blocks.segments_per_row(), all = record.segment_count();
  for (size_t first = 0; first < all; first += kTogether) {
    const size_t count = std::min(kTogether, all - first);
    for (size_t i = 0; i < count; ++i, at += sources[i - 1].size) {
      sources[i] = {at, record.length(first + i), &parts.blocks.shape((first + i) % in_row)};
    }
    if (!kernels.unpack(record.coding, sources.data(), count, unpacked.data())) {
      throw Error(ErrorKind::kDecode, "coefficient record: a segment in row of MCUs " +
                                          std::to_string(first / in_row) + " is damaged");
    }
    for (size_t i = 0; i < count; ++i) {
      parts.blocks.add(unpacked[i], sources[i].shape->block_count);
    }
  }
  parts.blocks.close();
}

// The file of a record.
void rebuild(Bytes record, const DecodeLimits& limits, JpegParts& parts,
             std::vector<uint8_t>& file) {
  read(record, limits, parts);
  join_jpeg(parts, file);
}

}  // namespace

std::vector<uint8_t> to_coefficients(Bytes jpeg, CoefficientForm form, const DecodeLimits& limits,
                                     CoefficientProof proof) {
  const BorrowedWorkspace space;
  split_jpeg(jpeg, limits, space->made);
  if (proof == CoefficientProof::kPixels) {
    std::vector<uint8_t> record = write(space->made, form, space->segments);
    read(record, limits, space->again);
    if (is_same_picture(space->again, space->made)) return record;
    refuse("its coefficients would differ");
  }
  // Most encoders fill up bytes with ones, as T.81 says.
  for (const bool pads_with_ones : {true, false}) {
    set_padding(space->made.rest, pads_with_ones);
    std::vector<uint8_t> record = write(space->made, form, space->segments);
    rebuild(record, limits, space->again, space->file);
    if (std::equal(space->file.begin(), space->file.end(), jpeg.begin(), jpeg.end())) return record;
  }
  refuse("the file rebuilt from it would differ (its encoder made unusual choices)");
}

std::vector<uint8_t> to_jpeg(Bytes record, const DecodeLimits& limits) {
  const BorrowedWorkspace space;
  std::vector<uint8_t> file;
  rebuild(record, limits, space->again, file);
  return file;
}

}  // namespace fastload
