#include "decode/coefficients/mask_codes.h"

namespace fastload {

// Found by package-merge (limits of 7 and 10 bits) on counts over 500 photographs of ImageNet, each
// count times 50 plus 1: tools/train_mask_codes.py, which finds them again.
const std::array<std::string_view, kCountContexts> kCountLengths{
    "124446666", "312457777", "631246677", "753133467", "554333332", "665332234",
    "776542223", "776543222", "777754321", "123646677", "312555677", "621355666",
    "632233456", "322444444", "553332334", "554442323", "554443322", "776664321",
};

const std::array<std::string_view, kByteContexts> kByteLengths{
    "05447855777598758586a8869886a996a9a9aaaaaaa9aaaaa7a8aaa9aaa8aaa8"
    "9987a997a987a997a987aa87a996a996aaaaaaaaaaaaaaaaaaa9aaa9aaa8aaa8"
    "9986a897a897a986a997a9a7a997a996aaaaaaaaaaaaaaa9aaaaaaa9aaa9aaa8"
    "aaa8aaa8aaa7aa96aaa8aaa7a9a6a995aaaaaaaaaaaaaaa9aaaaaaa9aaa8aaa7",
    "a9789a67aa97aa86a9a8aa97aaa7a996aaaaaaa9aaa9aaa8a8a9aaa8aaa8aaa7"
    "aaa8aa98aaa8aa96aaa8aa97aaa6a985aaaaaaa9aaa9aaa8aaa8aaa7aaa7a9a5"
    "aaa8aa97aaa7a985aaa8a996aaa7a985aaaaaaa9aaa9aaa7aaa9aaa7aaa7a9a6"
    "aaa8aaa7aaa7a985aaa7a996a996a873aaaaaaa8aaa8aaa6aaa8aaa6a9a6a884",
    "aaaaaa9aaaaaaaaaaaaaaaaaaaaaaaa8aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa8"
    "aaaaaaaaaaaaaaa9aaaaaaa9aaa9aaa7aaaaaaaaaaaaaaa9aaaaaaa8aaa8aaa5"
    "aaaaaaaaaaaaaaa8aaaaaaa9aaa9aaa7aaaaaaaaaaaaaaa8aaaaaaa8aaa8aaa5"
    "aaaaaaa9aaa9aaa7aaaaaaa7aaa7a994aaaaaaa9aaa9aaa6aaa9aaa6aaa6a771",
    "0276558734876697469977a966a977a968aa99aa89aaa9aa89aaaaaa99aaaaaa"
    "8aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa8aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "8aaaaaaaaaaaaaaa9aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "4465657555766575668776866687768588a898988898979799a9a9a898989796"
    "aaaaaaaaaaaaaaa9aaaaaaaaaaaaa9a9aaaaaaaaaaaaaaa9aaaaaaaaaaaaa9a8"
    "99a9a9a899a89897a9a9a9a898a89897aaaaaaa9aaa9a9a8aaaaa9a9a9a8a897"
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa9aaaaaaaaaaaaaaa9aaaaaaaaaaaaa9a8",
    "679787977797879688a998a8879887869aaaa9a999a9a8a7aaaaa9a899a89796"
    "9aaaaaaaaaaaa9a8aaaaaaa9a9a9a8a78aaaaaaaaaaaa9a7aaaaaaa9a9a8a895"
    "aaaaaaa9a9a9a9a7aaaaa9a999a89796aaaaaaa9aaa9a9a7aaaaa9a8a9a89784"
    "aaaaaaaaaaaaaaa8aaaaaaa9aaa9a895aaaaaaa9aaa9a996aaaaa9a798a69672",
    "0445466736676878599a8aaa599a8aaa58897989799a89899aaaaaaa9aaa9aaa"
    "5878798989999a99aaaaaaaaaaaaaaaa9aaaaa9aaaaaaaaaaaaaaaaaaaaaaaaa"
    "5767788878888998aaaaaaaaaaaaaaaa9aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "89999a99aaaaaaa9aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "2456567667777887899aaaaa8aaaaaa97889899889999998aaaaaaaaaaaaaaaa"
    "6888888899999998aaaaaaaaaaaaaaaa9aaaaaa9aaaaaa98aaaaaaaaaaaaaaaa"
    "6676777788888887aaaaaaaaaaaaaaa999999998aaa99997aaaaaaaaaaaaaaa9"
    "88989987a9989997aaaaaaaaaaaaaaa9aaa9aa98aaa9a997aaaaaaaaaaaaaaa9",
    "4778788879898998799a9aaa7a9a9a9979999a998aa999989aaaaaaa9aaa8998"
    "798999999a999998aaaaaaaaaaaaaa989aaaaa99aaa9a997aaaaaaa9aaa99986"
    "7888999899999997aaaaaaa9aaa9a9989aa9aaa8aaa9a997aaaaaaa8aaa8a886"
    "9998a997aaa8a996aaaaaaa8aaa8a985aaa9a997aa989885aaa9a996a9969662",
    "03463678589a588a687989899aaa9a9a5678899aaaaaaaaa9aa9aaaaaaaaaaaa"
    "457888aaaaaaaaaa9aaaaaaaaaaaaaaa88a9aaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "467889aaaaaaaaaa9aaaaaaaaaaaaaaa89aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "6799aaaaaaaaaaaaaaaaaaaaaaaaaaaaa9aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "156768998aaa9aaa899a9aaaaaaaaaaa6789aaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "568899aaaaaaaaaaaaaaaaaaaaaaaaaa88a9aaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "568889aaaaaaaaaa9aaaaaaaaaaaaaaa88a9aaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "779899aaaaaaaaaaaaaaaaaaaaaaaaaa99a9aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "46777889899a999978999999aaaa9a9977889999aaaaaaa999a9a9a8aaaaaaa8"
    "67888898a9aaa9a999a9a9a8aaaaa9a888989898aaa9a9a8a9a8a997aaa8a896"
    "5788889899aaa9a99999a9a9aaaaa9a8889899a8aaa9a9a8a9a8a997aaa9a896"
    "77879898a9a9a9a898989897a9a8a89687979896a9a7a896a8979785a8969673",
    "0446466747787888477879997888899847787888798999987999999989989987"
    "5789899989999a998999aaa9999999987999aaa99aa9a9979aa9a99899989886"
    "599a9aaaaaaaaaaa9aaaaaaaaaaaaaaa9aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "8aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "3557677768888888677888888999999857788988899999987888899889999987"
    "5788899989999a99899999999aa99998789999999aa999988999999899988886"
    "688889999aaaaa998999aa99aaaaaa988999aaa9aaaaaa999aa9aa98aa999987"
    "79999a99aaaaaa989aaaaaa8aaa9a98789aaaaa9aaa9a997aaa9a997a9978775",
    "46787888899999987899999999a9aa98678899989999a9988898a99899a8a997"
    "6788999999a9aa988999a9a9aaa9a9977888999899a8a9978898a99799979885"
    "68999aaa9aaaaaa999aaaaa9aaaaaaa88899aaa9aaa9a99899a9a9a8aaa8a896"
    "7899a9a9aaa9aaa899a9a9a8aaa8a996889898979998a8869897988598869663",
};

namespace {

constexpr int kMost = 10;  // bits of the longest code

// Canonical codes of one context, and the table that reads them.
template <size_t kValues, size_t kEntries>
void build(std::string_view lengths, std::array<MaskCode, kValues>& codes,
           std::array<uint16_t, kEntries>& table) {
  uint32_t next = 0;
  for (int length = 1; length <= kMost; ++length) {
    next <<= 1;
    for (size_t value = 0; value < kValues; ++value) {
      const char digit = lengths[value];
      if ((digit <= '9' ? digit - '0' : digit - 'a' + 10) != length) continue;
      uint32_t reversed = 0;
      for (int bit = 0; bit < length; ++bit) reversed |= (next >> bit & 1) << (length - 1 - bit);
      codes[value] = {static_cast<uint16_t>(reversed), static_cast<uint8_t>(length)};
      for (size_t entry = reversed; entry < kEntries; entry += size_t{1} << length) {
        table[entry] = static_cast<uint16_t>(static_cast<size_t>(length) << 8 | value);
      }
      ++next;
    }
  }
}

MaskCodes build_all() {
  MaskCodes all{};
  for (size_t c = 0; c < kCountContexts; ++c) {
    build(kCountLengths[c], all.write_counts[c], all.counts[c]);
  }
  for (size_t c = 0; c < kByteContexts; ++c) {
    build(kByteLengths[c], all.write_bytes[c], all.bytes[c]);
  }
  return all;
}

}  // namespace

const MaskCodes& mask_codes() {
  static const MaskCodes all = build_all();
  return all;
}

}  // namespace fastload
