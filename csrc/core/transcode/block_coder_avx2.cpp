#if defined(__x86_64__)

#include "transcode/block_coder_loop.h"

namespace fastload {

uint8_t* code_blocks_avx2(const BlockRun& run, const std::array<BlockCodes, 3>& codes,
                          CoderState& state, uint8_t* to) {
  return code_blocks(run, codes, state, to);
}

}  // namespace fastload

#endif
