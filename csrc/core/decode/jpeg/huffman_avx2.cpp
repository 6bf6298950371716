#if defined(__x86_64__)

#include "decode/jpeg/huffman_fill.h"

namespace fastload {

void fill_tables_avx2(SymbolWindow& dc, SymbolWindow& ac, HuffmanTables& tables) {
  fill_tables(dc, ac, tables);
}

}  // namespace fastload

#endif
