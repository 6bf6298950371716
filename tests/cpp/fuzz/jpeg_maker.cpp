#include "jpeg_maker.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <iterator>
// jpeglib.h needs size_t and FILE from <cstdio>.
#include <jpeglib.h>

namespace fastload::fuzz {

int pick(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

namespace {

// libjpeg leaves by longjmp: members without destructors only.
struct Writer {
  jpeg_compress_struct cinfo;
  jpeg_error_mgr errors;
  std::jmp_buf jump;
  unsigned char* out;
  unsigned long size;
};

void set_sampling(jpeg_compress_struct& cinfo, Random& random) {
  static constexpr int kUsual[] = {0x11, 0x21, 0x22, 0x12};
  const bool usual = pick(random, 0, 7) != 0;
  for (int c = 0; c < cinfo.num_components; ++c) {
    jpeg_component_info& component = cinfo.comp_info[c];
    const int factors = usual ? (c == 0 ? kUsual[pick(random, 0, 3)] : 0x11)
                              : pick(random, 1, 4) << 4 | pick(random, 1, 4);
    component.h_samp_factor = factors >> 4;
    component.v_samp_factor = factors & 15;
  }
}

void set_quantisation(jpeg_compress_struct& cinfo, Random& random) {
  unsigned steps[DCTSIZE2];
  // 16-bit steps make an extended sequential file of it.
  const int high = pick(random, 0, 9) == 0 ? 65535 : pick(random, 0, 1) != 0 ? 255 : 16;
  for (int table = 0; table < 2; ++table) {
    for (unsigned& step : steps) step = static_cast<unsigned>(pick(random, 1, high));
    jpeg_add_quant_table(&cinfo, table, steps, 100, FALSE);
  }
}

// Code lengths of a random prefix code: leaves of a tree that grows by splitting any leaf. One more
// leaf than symbols, because the code of all ones must stay free.
std::vector<int> code_lengths(Random& random, size_t symbols) {
  std::vector<int> leaves{0};
  const bool deep = pick(random, 0, 1) != 0;
  while (leaves.size() < symbols + 1) {
    const auto last = static_cast<int>(leaves.size()) - 1;
    auto leaf = static_cast<size_t>(pick(random, 0, last));
    if (deep) leaf = std::min(leaf, static_cast<size_t>(pick(random, 0, last)));
    if (leaves[leaf] == 16) continue;
    ++leaves[leaf];
    leaves.push_back(leaves[leaf]);
  }
  std::sort(leaves.begin(), leaves.end());
  leaves.pop_back();
  return leaves;
}

// All symbols in any order, with codes of any length.
void set_huffman(jpeg_compress_struct& cinfo, JHUFF_TBL*& table, size_t symbols, Random& random) {
  if (table == nullptr) table = jpeg_alloc_huff_table(reinterpret_cast<j_common_ptr>(&cinfo));
  std::fill(std::begin(table->bits), std::end(table->bits), UINT8{0});
  for (const int length : code_lengths(random, symbols)) ++table->bits[length];
  for (size_t i = 0; i < symbols; ++i) table->huffval[i] = static_cast<UINT8>(i);
  std::shuffle(table->huffval, table->huffval + symbols, random);
}

void set_coding(jpeg_compress_struct& cinfo, Random& random) {
  if (pick(random, 0, 9) == 0) {
    jpeg_simple_progression(&cinfo);
    return;
  }
  cinfo.optimize_coding = pick(random, 0, 1) != 0 ? TRUE : FALSE;
  if (cinfo.optimize_coding || pick(random, 0, 2) == 0) return;
  for (size_t i = 0; i < 2; ++i) {
    set_huffman(cinfo, cinfo.dc_huff_tbl_ptrs[i], 12, random);
    set_huffman(cinfo, cinfo.ac_huff_tbl_ptrs[i], 256, random);
  }
}

void set_layout(jpeg_compress_struct& cinfo, Random& random) {
  static constexpr int kComponents[] = {3, 3, 3, 3, 1, 1, 4};
  const int components = kComponents[pick(random, 0, 6)];
  cinfo.image_width = static_cast<JDIMENSION>(pick(random, 1, pick(random, 0, 1) != 0 ? 20 : 80));
  cinfo.image_height = static_cast<JDIMENSION>(pick(random, 1, pick(random, 0, 1) != 0 ? 20 : 80));
  cinfo.input_components = components;
  cinfo.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_YCbCr : JCS_CMYK;
  jpeg_set_defaults(&cinfo);
  set_sampling(cinfo, random);
  set_quantisation(cinfo, random);
  set_coding(cinfo, random);
  if (pick(random, 0, 2) == 0) cinfo.restart_interval = static_cast<unsigned>(pick(random, 1, 9));
}

void fill(JBLOCK& block, Random& random, int filled, int reach) {
  for (JCOEF& value : block) value = 0;
  for (int i = 0; i < filled; ++i) {
    const int value = pick(random, 0, 15) == 0 ? (pick(random, 0, 1) != 0 ? 1023 : -1023)
                                               : pick(random, -reach, reach);
    block[pick(random, 0, DCTSIZE2 - 1)] = static_cast<JCOEF>(value);
  }
}

// The file's coefficients, a virtual array for each component.
jvirt_barray_ptr* make_coefficients(jpeg_compress_struct& cinfo, Random& random) {
  auto* const common = reinterpret_cast<j_common_ptr>(&cinfo);
  auto* const arrays = static_cast<jvirt_barray_ptr*>(
      (*cinfo.mem->alloc_small)(common, JPOOL_IMAGE, sizeof(jvirt_barray_ptr) * MAX_COMPONENTS));
  int most_h = 1, most_v = 1;
  for (int c = 0; c < cinfo.num_components; ++c) {
    most_h = std::max(most_h, cinfo.comp_info[c].h_samp_factor);
    most_v = std::max(most_v, cinfo.comp_info[c].v_samp_factor);
  }
  const auto mcus = [](JDIMENSION side, int most) {
    const auto mcu = static_cast<JDIMENSION>(most * DCTSIZE);
    return (side + mcu - 1) / mcu;
  };
  JDIMENSION columns[MAX_COMPONENTS], rows[MAX_COMPONENTS];
  for (int c = 0; c < cinfo.num_components; ++c) {
    const auto h = static_cast<JDIMENSION>(cinfo.comp_info[c].h_samp_factor);
    const auto v = static_cast<JDIMENSION>(cinfo.comp_info[c].v_samp_factor);
    columns[c] = mcus(cinfo.image_width, most_h) * h;
    rows[c] = mcus(cinfo.image_height, most_v) * v;
    arrays[c] =
        (*cinfo.mem->request_virt_barray)(common, JPOOL_IMAGE, TRUE, columns[c], rows[c], v);
  }
  (*cinfo.mem->realize_virt_arrays)(common);
  const int filled = pick(random, 0, pick(random, 0, 2) == 0 ? 64 : 6);
  const int reach = pick(random, 0, 1) != 0 ? 1023 : pick(random, 1, 40);
  for (int c = 0; c < cinfo.num_components; ++c) {
    for (JDIMENSION y = 0; y < rows[c]; ++y) {
      JBLOCKARRAY row = (*cinfo.mem->access_virt_barray)(common, arrays[c], y, 1, TRUE);
      for (JDIMENSION x = 0; x < columns[c]; ++x) fill(row[0][x], random, filled, reach);
    }
  }
  return arrays;
}

bool write(Writer& w, Random& random) {
  w.cinfo.err = jpeg_std_error(&w.errors);
  w.cinfo.client_data = &w;
  w.errors.error_exit = [](j_common_ptr info) {
    std::longjmp(static_cast<Writer*>(info->client_data)->jump, 1);
  };
  w.errors.output_message = [](j_common_ptr) {};
  if (setjmp(w.jump) != 0) return false;  // e.g. sampling factors that no encoder takes
  jpeg_create_compress(&w.cinfo);
  jpeg_mem_dest(&w.cinfo, &w.out, &w.size);
  set_layout(w.cinfo, random);
  jpeg_write_coefficients(&w.cinfo, make_coefficients(w.cinfo, random));
  jpeg_finish_compress(&w.cinfo);
  return true;
}

}  // namespace

std::vector<uint8_t> make_jpeg(Random& random) {
  Writer w = {};
  std::vector<uint8_t> file;
  if (write(w, random)) file.assign(w.out, w.out + w.size);
  jpeg_destroy_compress(&w.cinfo);
  std::free(w.out);
  return file;
}

}  // namespace fastload::fuzz
