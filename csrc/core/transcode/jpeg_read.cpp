#include "transcode/jpeg_read.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jerror.h>
#include <jpeglib.h>

#include <array>
#include <string>

#include "base/error.h"

namespace fastload {
namespace {

// Everything libjpeg's callbacks touch. No member that they change has a destructor, so that
// longjmp may leave them.
class Reader {
 public:
  Reader(const DecodeLimits& limits, JpegParts& parts) : limits_(limits), parts_(parts) {
    in_.client_data = this;
    in_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) {
      Reader& reader = of(info);
      (*info->err->format_message)(info, reader.message_.text);
      reader.leave(info->err->msg_code == JERR_OUT_OF_MEMORY ? ErrorKind::kMemory
                                                             : ErrorKind::kDecode);
    };
    // Level -1 is a warning about damaged data; the others are traces. The first one is kept.
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level >= 0 || info->err->num_warnings++ > 0) return;
      (*info->err->format_message)(info, of(info).message_.text);
    };
    errors_.output_message = [](j_common_ptr) {};
    // libjpeg calls this once for each row of blocks it reads, so a file of endless scans ends.
    progress_.progress_monitor = [](j_common_ptr info) {
      Reader& reader = of(info);
      if (reader.in_.input_scan_number <= reader.limits_.max_scans) return;
      std::snprintf(reader.message_.text, sizeof reader.message_.text,
                    "more than %d scans (max_scans)", reader.limits_.max_scans);
      reader.leave(ErrorKind::kLimit);
    };
  }
  ~Reader() { jpeg_destroy_decompress(&in_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void read(Bytes file) {
    jvirt_barray_ptr* coefficients = nullptr;
    run([&] {
      jpeg_create_decompress(&in_);
      in_.progress = &progress_;
      jpeg_mem_src(&in_, file.data(), static_cast<unsigned long>(file.size()));
      jpeg_read_header(&in_, TRUE);
    });
    check_frame();
    run([&] { coefficients = jpeg_read_coefficients(&in_); });
    if (in_.err->num_warnings > 0) refuse(message_.text);
    check_complete();
    run([&] { copy(coefficients); });
  }

 private:
  struct Message {
    char text[JMSG_LENGTH_MAX];
  };

  static Reader& of(j_common_ptr info) { return *static_cast<Reader*>(info->client_data); }

  [[noreturn]] void leave(ErrorKind why) {
    kind_ = why;
    std::longjmp(jump_, 1);
  }

  [[noreturn]] static void refuse(const std::string& why) {
    throw Error(ErrorKind::kDecode, "cannot become a coefficient record: " + why);
  }

  // Runs libjpeg calls; a fatal error in them becomes an Error. `calls` must hold nothing with a
  // destructor: libjpeg leaves it by longjmp.
  template <class Calls>
  void run(Calls calls) {
    if (setjmp(jump_) != 0) {
      throw Error(kind_, std::string("cannot become a coefficient record: ") + message_.text);
    }
    calls();
  }

  // libjpeg's own reading of the header must be ours.
  void check_frame() {
    const JpegHeader& header = parts_.header;
    if (static_cast<int>(in_.image_width) != header.width ||
        static_cast<int>(in_.image_height) != header.height ||
        in_.num_components != header.component_count || in_.arith_code != FALSE) {
      refuse("its header contradicts itself");
    }
  }

  // A decoder smooths the blocks of a progressive file whose coefficients are not all known.
  void check_complete() const {
    if (!parts_.header.is_progressive) return;
    if (in_.coef_bits == nullptr) refuse("it has no scans");
    for (int component = 0; component < in_.num_components; ++component) {
      for (int k = 0; k < DCTSIZE2; ++k) {
        if (in_.coef_bits[component][k] != 0) refuse("scans are missing");
      }
    }
  }

  void copy(jvirt_barray_ptr* coefficients) {
    const JpegHeader& header = parts_.header;
    const BlockLists& lists = parts_.blocks;
    std::array<JBLOCKARRAY, 3> lines{};
    for (int row = 0; row < header.mcu_rows; ++row) {
      for (size_t c = 0; c < static_cast<size_t>(in_.num_components); ++c) {
        const JDIMENSION rows = header.components[c].v;
        lines[c] =
            (*in_.mem->access_virt_barray)(reinterpret_cast<j_common_ptr>(&in_), coefficients[c],
                                           static_cast<JDIMENSION>(row) * rows, rows, FALSE);
      }
      for (size_t segment = 0; segment < lists.segments_per_row(); ++segment) {
        copy_segment(lines, segment);
      }
    }
  }

  void copy_segment(const std::array<JBLOCKARRAY, 3>& lines, size_t segment) {
    const SegmentShape& shape = parts_.blocks.shape(segment);
    alignas(64) std::array<int16_t, kMaxSegmentBlocks * 64> coefs;
    int16_t* to = coefs.data();
    size_t in_mcu = 0;
    for (size_t r = 0; r < shape.rows; ++r) {
      const size_t c = shape.component[r];
      in_mcu = r > 0 && shape.component[r - 1] == c ? in_mcu + 1 : 0;
      const size_t first = segment * static_cast<size_t>(parts_.blocks.segment_mcus()) *
                           parts_.header.components[c].h;
      for (size_t i = 0; i < shape.blocks[r]; ++i, to += 64) {
        const JCOEF* const block = lines[c][in_mcu][first + i];
        for (size_t k = 0; k < 64; ++k) to[k] = block[kZigzag[k]];
      }
    }
    parts_.blocks.add(coefs.data(), shape.block_count);
  }

  const DecodeLimits limits_;
  JpegParts& parts_;
  jpeg_decompress_struct in_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  ErrorKind kind_ = ErrorKind::kDecode;
  Message message_{};
};

}  // namespace

void read_coefficients(Bytes file, const DecodeLimits& limits, JpegParts& parts) {
  Reader(limits, parts).read(file);
}

}  // namespace fastload
