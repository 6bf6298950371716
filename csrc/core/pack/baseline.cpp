#include "pack/baseline.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jerror.h>
#include <jpeglib.h>

#include <new>
#include <string>

#include "base/error.h"
#include "pack/ingest.h"

namespace fastload {
namespace {

constexpr size_t kFirstRoom = 1 << 16;  // bytes of output
constexpr unsigned kWholeSegment = 0xFFFF;

// Everything libjpeg's callbacks touch. No member that they change has a destructor, so that
// longjmp may leave them.
class Transcoder {
 public:
  Transcoder(Bytes file, const DecodeLimits& limits) : file_(file), limits_(limits) {
    in_.client_data = out_.client_data = this;
    install_errors();
  }
  ~Transcoder() {
    jpeg_destroy_compress(&out_);
    jpeg_destroy_decompress(&in_);
  }
  Transcoder(const Transcoder&) = delete;
  Transcoder& operator=(const Transcoder&) = delete;

  std::vector<uint8_t> transcode() {
    open();
    read_header();
    jvirt_barray_ptr* coefficients = nullptr;
    const auto header_end = last_segment();
    run([&] { coefficients = jpeg_read_coefficients(&in_); });
    if (in_.err->num_warnings > 0) refuse(message_.text);
    check_complete();
    if (last_segment() != header_end) refuse("there are APPn or COM segments between the scans");
    run([&] { write(coefficients); });
    written_.resize(written_.size() - destination_.free_in_buffer);
    return std::move(written_);
  }

 private:
  struct Message {
    char text[JMSG_LENGTH_MAX];
  };

  template <class Info>  // j_common_ptr, j_decompress_ptr or j_compress_ptr
  static Transcoder& of(Info info) {
    return *static_cast<Transcoder*>(info->client_data);
  }

  [[noreturn]] void leave(ErrorKind why) {
    kind_ = why;
    std::longjmp(jump_, 1);
  }

  [[noreturn]] static void refuse(const std::string& why) {
    throw Error(ErrorKind::kDecode, "cannot become a baseline JPEG: " + why);
  }

  // Runs libjpeg calls; a fatal error in them becomes an Error. `calls` must hold nothing with a
  // destructor: libjpeg leaves it by longjmp.
  template <class Calls>
  void run(Calls calls) {
    if (setjmp(jump_) != 0) {
      throw Error(kind_, std::string("cannot become a baseline JPEG: ") + message_.text);
    }
    calls();
  }

  void install_errors() {
    in_.err = out_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) {
      Transcoder& t = of(info);
      (*info->err->format_message)(info, t.message_.text);
      t.leave(info->err->msg_code == JERR_OUT_OF_MEMORY ? ErrorKind::kMemory : ErrorKind::kDecode);
    };
    // Level -1 is a warning about damaged data; the others are traces. The first one is kept.
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level >= 0 || info->err->num_warnings++ > 0) return;
      (*info->err->format_message)(info, of(info).message_.text);
    };
    errors_.output_message = [](j_common_ptr) {};
    // libjpeg calls this once for each row of blocks it reads, so a file of endless scans ends.
    progress_.progress_monitor = [](j_common_ptr info) {
      Transcoder& t = of(info);
      if (t.in_.input_scan_number <= t.limits_.max_scans) return;
      std::snprintf(t.message_.text, sizeof t.message_.text, "more than %d scans (max_scans)",
                    t.limits_.max_scans);
      t.leave(ErrorKind::kLimit);
    };
  }

  [[noreturn]] void leave(ErrorKind why, const char* words) {
    std::snprintf(message_.text, sizeof message_.text, "%s", words);
    leave(why);
  }

  // More room behind what is written, twice as much as before.
  void grow_or_leave() {
    const size_t used = written_.size();
    if (used >= kMaxRecordBytes) leave(ErrorKind::kLimit, "the output is too large");
    if (!resize(used == 0 ? kFirstRoom : 2 * used)) {
      leave(ErrorKind::kMemory, "there is no memory for the output");
    }
    destination_.next_output_byte = written_.data() + used;
    destination_.free_in_buffer = written_.size() - used;
  }

  // False: no memory. Exceptions must not pass libjpeg, nor longjmp a handler of them.
  bool resize(size_t size) noexcept {
    try {
      written_.resize(size);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void install_destination() {
    destination_.init_destination = [](j_compress_ptr info) { of(info).grow_or_leave(); };
    destination_.empty_output_buffer = [](j_compress_ptr info) -> boolean {
      of(info).grow_or_leave();
      return TRUE;
    };
    destination_.term_destination = [](j_compress_ptr) {};
    out_.dest = &destination_;
  }

  void open() {
    run([this] { jpeg_create_decompress(&in_); });
    run([this] { jpeg_create_compress(&out_); });
    // Creating clears everything but err and client_data.
    in_.progress = &progress_;
    install_destination();
    // Where the file ends early, this source warns and makes up an end: warnings are refused.
    run([this] { jpeg_mem_src(&in_, file_.data(), static_cast<unsigned long>(file_.size())); });
  }

  void read_header() {
    run([this] {
      jpeg_save_markers(&in_, JPEG_COM, kWholeSegment);
      for (int i = 0; i < 16; ++i) jpeg_save_markers(&in_, JPEG_APP0 + i, kWholeSegment);
      jpeg_read_header(&in_, TRUE);
    });
    if (!in_.progressive_mode) refuse("it is not progressive");
    const uint64_t pixels = uint64_t{in_.image_width} * in_.image_height;
    if (in_.image_width > limits_.max_side || in_.image_height > limits_.max_side ||
        pixels > limits_.max_pixels) {
      throw Error(ErrorKind::kLimit, "image of " + std::to_string(in_.image_width) + " x " +
                                         std::to_string(in_.image_height) +
                                         " pixels; the limits are " +
                                         std::to_string(limits_.max_pixels) + " pixels and " +
                                         std::to_string(limits_.max_side) + " a side");
    }
  }

  [[nodiscard]] jpeg_saved_marker_ptr last_segment() const {
    jpeg_saved_marker_ptr last = in_.marker_list;
    while (last != nullptr && last->next != nullptr) last = last->next;
    return last;
  }

  // A decoder smooths the blocks of a progressive file whose coefficients are not all known, and
  // would not smooth those of a sequential one.
  void check_complete() const {
    if (in_.coef_bits == nullptr) refuse("it has no scans");
    for (int component = 0; component < in_.num_components; ++component) {
      for (int k = 0; k < DCTSIZE2; ++k) {
        if (in_.coef_bits[component][k] != 0) refuse("scans are missing");
      }
    }
  }

  void write(jvirt_barray_ptr* coefficients) {
    jpeg_copy_critical_parameters(&in_, &out_);
    out_.optimize_coding = TRUE;
    // The file's own APP0 and APP14 follow, in their order, with all that is in them.
    out_.write_JFIF_header = FALSE;
    out_.write_Adobe_marker = FALSE;
    jpeg_write_coefficients(&out_, coefficients);
    for (auto segment = in_.marker_list; segment != nullptr; segment = segment->next) {
      jpeg_write_marker(&out_, segment->marker, segment->data, segment->data_length);
    }
    jpeg_finish_compress(&out_);
    jpeg_finish_decompress(&in_);
  }

  const Bytes file_;
  const DecodeLimits limits_;
  jpeg_decompress_struct in_{};
  jpeg_compress_struct out_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_destination_mgr destination_{};
  std::jmp_buf jump_{};
  ErrorKind kind_ = ErrorKind::kDecode;
  Message message_{};
  std::vector<uint8_t> written_;
};

}  // namespace

std::vector<uint8_t> to_baseline(Bytes file, const DecodeLimits& limits) {
  if (file.size() > kMaxRecordBytes) {
    throw Error(ErrorKind::kLimit, "JPEG of " + std::to_string(file.size()) +
                                       " bytes; the limit is " + std::to_string(kMaxRecordBytes));
  }
  return Transcoder(file, limits).transcode();
}

}  // namespace fastload
