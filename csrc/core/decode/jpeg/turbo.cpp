#include "decode/jpeg/turbo.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jerror.h>
#include <jpeglib.h>

#include "base/error.h"
#include "decode/jpeg/cmyk.h"
#include "decode/rows.h"

namespace fastload {

// Everything libjpeg's callbacks touch. No member has a destructor, so that longjmp may leave it.
struct JpegTurbo::Session {
  jpeg_decompress_struct cinfo;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  ErrorKind kind;
  int max_scans;
  char message[JMSG_LENGTH_MAX];

  template <class Info>  // j_common_ptr or j_decompress_ptr
  static Session& of(Info cinfo) {
    return *static_cast<Session*>(cinfo->client_data);
  }

  [[noreturn]] void leave(ErrorKind why) {
    kind = why;
    std::longjmp(jump, 1);
  }

  [[noreturn]] void leave_early_end() {
    std::snprintf(message, sizeof message, "the file ends early");
    leave(ErrorKind::kDecode);
  }

  void refuse_missing_rows();

  // Runs libjpeg calls; a fatal error in them becomes an Error. `calls` must hold nothing with a
  // destructor: libjpeg leaves it by longjmp.
  template <class Calls>
  void run(Calls calls) {
    if (setjmp(jump) != 0) throw Error(kind, std::string("JPEG: ") + message);
    calls();
  }

  void install_errors();
  void install_source(Bytes bytes);
};

void JpegTurbo::Session::install_errors() {
  cinfo.err = jpeg_std_error(&errors);
  errors.error_exit = [](j_common_ptr info) {
    Session& s = of(info);
    (*info->err->format_message)(info, s.message);
    s.leave(info->err->msg_code == JERR_OUT_OF_MEMORY ? ErrorKind::kMemory : ErrorKind::kDecode);
  };
  // Level -1 is a warning about damaged data; the others are traces.
  errors.emit_message = [](j_common_ptr info, int level) {
    if (level >= 0) return;
    ++info->err->num_warnings;
    if (info->err->msg_code == JWRN_HIT_MARKER) of(info).refuse_missing_rows();
  };
  errors.output_message = [](j_common_ptr) {};
  progress = {};
  // libjpeg calls this once for each row of blocks it reads ahead, so a file of endless scans ends.
  progress.progress_monitor = [](j_common_ptr info) {
    Session& s = of(info);
    const int scans = s.cinfo.input_scan_number;
    if (scans <= s.max_scans) return;
    std::snprintf(s.message, sizeof s.message, "more than %d scans (max_scans)", s.max_scans);
    s.leave(ErrorKind::kLimit);
  };
}

// libjpeg only warns where a marker ends a scan early, and fills what is missing with gray: an
// end-of-image marker behind a cut, a header that says more rows than there are, damage that looks
// like a marker. Rows of blocks without any data are an error; the last row may have too little.
// A progressive file may end behind its first scans: all its rows are there, with less detail.
void JpegTurbo::Session::refuse_missing_rows() {
  if (cinfo.Ah != 0) return;  // a scan that refines what is there
  // At the next restart marker libjpeg finds its way again.
  const int marker = cinfo.unread_marker;
  if (cinfo.restart_interval > 0 && marker >= 0xD0 && marker <= 0xD7) return;
  if (cinfo.input_iMCU_row + 1 >= cinfo.total_iMCU_rows) return;
  const auto row_height = static_cast<JDIMENSION>(cinfo.max_v_samp_factor) * DCTSIZE;
  std::snprintf(message, sizeof message, "the image data ends before row %u of %u",
                (cinfo.input_iMCU_row + 1) * row_height, cinfo.image_height);
  leave(ErrorKind::kDecode);
}

void JpegTurbo::Session::install_source(Bytes bytes) {
  source = {};
  source.next_input_byte = bytes.data();
  source.bytes_in_buffer = bytes.size();
  source.init_source = [](j_decompress_ptr) {};
  source.term_source = [](j_decompress_ptr) {};
  source.resync_to_restart = jpeg_resync_to_restart;
  source.fill_input_buffer = [](j_decompress_ptr info) -> boolean { of(info).leave_early_end(); };
  source.skip_input_data = [](j_decompress_ptr info, long count) {
    if (count <= 0) return;
    jpeg_source_mgr& from = *info->src;
    if (static_cast<size_t>(count) > from.bytes_in_buffer) of(info).leave_early_end();
    from.next_input_byte += count;
    from.bytes_in_buffer -= static_cast<size_t>(count);
  };
  cinfo.src = &source;
}

// A decompressor from creation to destruction. One for each picture: a reused one would keep the
// tables of the picture before, and a file without tables would then decode differently.
struct JpegTurbo::Opened {
  Opened(Session& s, Bytes bytes, int max_scans) : session(s) {
    s.max_scans = max_scans;
    s.cinfo.client_data = &s;
    s.install_errors();
    try {
      s.run([&s] { jpeg_create_decompress(&s.cinfo); });
    } catch (...) {
      jpeg_destroy_decompress(&s.cinfo);  // it may have begun
      throw;
    }
    // jpeg_create_decompress clears everything but err and client_data.
    s.cinfo.progress = &s.progress;
    s.install_source(bytes);
  }
  ~Opened() { jpeg_destroy_decompress(&session.cinfo); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  Session& session;
};

namespace {

// Where the wanted columns lie in the rows that libjpeg gives.
struct Columns {
  size_t stride = 0;  // bytes
  size_t first = 0;   // pixels before the first wanted one
};

// Block smoothing (progressive files whose last scans are missing) looks at neighbouring blocks,
// which a crop or a skip would take away.
bool may_smooth(const jpeg_decompress_struct& cinfo) {
  if (!cinfo.progressive_mode || !cinfo.do_block_smoothing || cinfo.coef_bits == nullptr)
    return false;
  for (int component = 0; component < cinfo.num_components; ++component) {
    for (int k = 0; k < DCTSIZE2; ++k) {
      if (cinfo.coef_bits[component][k] != 0) return true;
    }
  }
  return false;
}

// Fancy upsampling mixes one neighbouring chroma column in, which is two columns of pixels. Narrow
// crops change libjpeg's choice of upsampler, so they are widened.
constexpr int kMargin = 2, kLeastWidth = 64;

void crop_columns(jpeg_decompress_struct& cinfo, Rect roi, JDIMENSION& first) {
  const int full = static_cast<int>(cinfo.output_width);
  int left = std::max(0, roi.x - kMargin);
  const int right = std::min(full, std::max(roi.x + roi.width + kMargin, left + kLeastWidth));
  left = std::max(0, std::min(left, right - kLeastWidth));
  if (right - left >= full) return;
  first = static_cast<JDIMENSION>(left);
  auto width = static_cast<JDIMENSION>(right - left);
  jpeg_crop_scanline(&cinfo, &first, &width);
}

void read_rows(jpeg_decompress_struct& cinfo, uint8_t* out, size_t stride, int count) {
  for (int done = 0; done < count;) {
    JSAMPROW rows[kChunkRows];
    const int wanted = std::min(count - done, kChunkRows);
    for (int i = 0; i < wanted; ++i) rows[i] = out + static_cast<size_t>(done + i) * stride;
    done += static_cast<int>(jpeg_read_scanlines(&cinfo, rows, static_cast<JDIMENSION>(wanted)));
  }
}

}  // namespace

JpegTurbo::JpegTurbo() : session_(std::make_unique<Session>()) {}
JpegTurbo::~JpegTurbo() = default;

bool JpegTurbo::decode(Bytes bytes, const ImageInfo& info, Rect roi, int max_scans, RowSink& sink,
                       bool gray) {
  Session& s = *session_;
  const Opened opened(s, bytes, max_scans);
  jpeg_decompress_struct& cinfo = s.cinfo;
  s.run([&] { jpeg_read_header(&cinfo, TRUE); });
  // The limits were checked on probe()'s sizes.
  if (cinfo.image_width != info.width || cinfo.image_height != info.height) {
    throw Error(ErrorKind::kDecode, "JPEG: two frame headers of different sizes");
  }
  const bool cmyk = cinfo.num_components == 4;
  if (gray && cinfo.num_components != 1) {
    throw Error(ErrorKind::kDecode, "JPEG: the header contradicts itself");
  }
  cinfo.out_color_space = cmyk ? JCS_CMYK : gray ? JCS_GRAYSCALE : JCS_RGB;
  cinfo.dct_method = JDCT_ISLOW;
  s.run([&] { jpeg_start_decompress(&cinfo); });

  JDIMENSION first_column = 0;
  const bool whole = may_smooth(cinfo);
  if (!whole) s.run([&] { crop_columns(cinfo, roi, first_column); });
  const size_t stride = size_t{cinfo.output_width} * static_cast<size_t>(cinfo.output_components);
  uint8_t* const rows = reserve_scratch(scratch_, stride * kChunkRows + RowSink::kSlack);

  if (!whole && roi.y > 0) {
    s.run([&] { jpeg_skip_scanlines(&cinfo, static_cast<JDIMENSION>(roi.y)); });
  }
  for (int y = whole ? 0 : roi.y; y < roi.y; ++y) s.run([&] { read_rows(cinfo, rows, 0, 1); });

  const uint8_t* const pixels = rows + (static_cast<size_t>(roi.x) - first_column) * (gray ? 1 : 3);
  for (int y = 0; y < roi.height; y += kChunkRows) {
    const int count = std::min(kChunkRows, roi.height - y);
    s.run([&] { read_rows(cinfo, rows, stride, count); });
    if (cmyk) cmyk_rows_to_rgb(rows, stride, cinfo.output_width, count);
    sink.rows(pixels, stride, y, count);
  }
  // Reads up to the end-of-image marker, so that a file cut behind its last row is not taken for
  // whole.
  if (cinfo.output_scanline == cinfo.output_height) s.run([&] { jpeg_finish_decompress(&cinfo); });
  return cinfo.err->num_warnings > 0;
}

}  // namespace fastload
