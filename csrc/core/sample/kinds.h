// The kinds of fields that a sample may have. The one table of them: Python gets it as
// _C.FIELD_KINDS, and FORMAT.md has the same words.
#pragma once

#include <array>
#include <cstdint>

namespace fastload {

enum class FieldKind : uint8_t {
  kImage = 0,
  kMask = 1,
  kLabel = 2,
  kScalar = 3,
  kArray = 4,
  kBoxes = 5,
  kPolygons = 6,
  kKeypoints = 7,
  kText = 8,
  kBytes = 9,
  kJson = 10,
  kLabels = 11,
  kTexts = 12,
  kImages = 13,
  kPicture = 14,
  kPictures = 15,
};

// How the values of a field lie in its column.
enum class Storage : uint8_t {
  kRecord,  // byte ranges of shards, as in index.fli
  kFixed,   // values of one width
  kRagged,  // rows of one width, each sample with a number of its own
  kRecords,  // likewise, and the rows are byte ranges of shards
};

struct KindRow {
  const char* name;
  FieldKind kind;
  Storage storage;  // an array whose first dimension is open is ragged
};

inline constexpr std::array<KindRow, 16> kFieldKinds{{
    {"image", FieldKind::kImage, Storage::kRecord},
    {"mask", FieldKind::kMask, Storage::kRecord},
    {"label", FieldKind::kLabel, Storage::kFixed},
    {"scalar", FieldKind::kScalar, Storage::kFixed},
    {"array", FieldKind::kArray, Storage::kFixed},
    {"boxes", FieldKind::kBoxes, Storage::kRagged},
    {"polygons", FieldKind::kPolygons, Storage::kRagged},
    {"keypoints", FieldKind::kKeypoints, Storage::kRagged},
    {"text", FieldKind::kText, Storage::kRagged},
    {"bytes", FieldKind::kBytes, Storage::kRagged},
    {"json", FieldKind::kJson, Storage::kRagged},
    {"labels", FieldKind::kLabels, Storage::kRagged},
    {"texts", FieldKind::kTexts, Storage::kRagged},
    {"images", FieldKind::kImages, Storage::kRecords},
    // An image and images that are shown otherwise than stored: who does not know how refuses them.
    {"picture", FieldKind::kPicture, Storage::kRecord},
    {"pictures", FieldKind::kPictures, Storage::kRecords},
}};

inline constexpr std::array<const char*, 4> kStorageNames{"record", "fixed", "ragged", "records"};

}  // namespace fastload
