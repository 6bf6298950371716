#include "engine/needs.h"

#include <algorithm>

#include "base/error.h"
#include "decode/jpeg/entry_points.h"
#include "decode/jpeg/planes.h"
#include "engine/shared_picture.h"
#include "engine/tile_objects.h"

namespace fastload {
namespace {

// One batch; shared by all who ask.
struct Announced {
  const Sources& sources;
  const SamplePlan& plan;
  const std::vector<int64_t> ids;
  const std::vector<uint32_t> draws;
  const PhiloxKey key;
};

// The picture's rows and columns that the views' fields of the first stream need together; nothing
// where an operation may want all.
std::optional<Rect> part_needed(const Announced& batch, size_t sample, const Record& record) {
  const FieldsPlan& fields = batch.plan.fields;
  const auto id = static_cast<uint64_t>(batch.ids[sample]);
  const uint32_t draw = batch.draws.empty() ? 0 : batch.draws[sample];
  std::vector<Rect> parts;
  for (const FieldsPlan::Frame& frame : fields.streams().front().frames) {
    const FieldPlan& field = fields.fields()[frame.field];
    const ViewPlan& view_plan = fields.views()[field.view];
    if (!view_plan.source.empty() || !field.picture.source.empty()) return {};
    const SampleRng rng{batch.key, id, draw, static_cast<uint8_t>(field.view)};
    std::vector<BoxXyxy> boxes;
    if (view_plan.geometry.needs_boxes()) {
      const Extent size{record.width, record.height};
      boxes = boxes_of(batch.sources.find(id), *view_plan.objects, size, size, {});
    }
    const View view = draw_view(view_plan.geometry, {record.width, record.height, boxes}, rng);
    parts.push_back(decoded_rect(view, field.picture.nearest));
  }
  return around(parts);
}

// What the facts in entries.fli and the index say of the header.
std::optional<JpegHeader> header_of(const RecordParts& parts, const Record& record) {
  const bool gray = parts.components == 1;
  const auto is_side = [](int side) { return side == 8 || side == 16; };
  if ((!gray && parts.components != 3) || !is_side(parts.mcu_width) || !is_side(parts.mcu_height) ||
      parts.scan_begin >= record.length) {
    return {};
  }
  JpegHeader header;
  header.width = record.width;
  header.height = record.height;
  header.component_count = parts.components;
  header.components[0].h = static_cast<uint8_t>(parts.mcu_width / 8);
  header.components[0].v = static_cast<uint8_t>(parts.mcu_height / 8);
  header.scan_begin = parts.scan_begin;
  header.mcu_width = parts.mcu_width;
  header.mcu_height = parts.mcu_height;
  header.mcus_per_row = (header.width + header.mcu_width - 1) / header.mcu_width;
  header.mcu_rows = (header.height + header.mcu_height - 1) / header.mcu_height;
  return header;
}

LoadedBytes in_parts(size_t head, ByteRange scan, size_t part, size_t length, size_t gap) {
  const auto up = [&](size_t end) { return std::min(length, (end + part - 1) / part * part); };
  LoadedBytes loaded;
  loaded.head = up(head);
  loaded.begin = scan.begin / part * part;
  loaded.end = up(scan.end);
  if (loaded.begin <= loaded.head + gap) {
    loaded.head = loaded.begin = loaded.end = std::max(loaded.head, loaded.end);
  }
  return loaded;
}

std::optional<LoadedBytes> needed(const Announced& batch, size_t sample,
                                  const ReadAhead::Origin& origin, const Record& record,
                                  size_t gap) try {
  if (record.width == 0 || record.height == 0) return {};
  std::vector<uint8_t> scratch;
  const std::optional<RecordParts> parts =
      origin.entries->find_parts(origin.id, record.length, scratch);
  if (!parts) return {};
  const std::optional<JpegHeader> header = header_of(*parts, record);
  const std::optional<Rect> part = part_needed(batch, sample, record);
  if (!header || !part) return {};
  std::vector<uint8_t> packed;
  const EntryPoints entries{origin.entries->find(origin.id, packed),
                            static_cast<int>(origin.entries->spacing())};
  const McuWindow window = needed_mcus(*header, *part);
  const std::optional<ByteRange> scan =
      bytes_of_rows(*header, entries, record.length, {window.row_begin, window.row_end});
  if (!scan) return {};
  return in_parts(parts->scan_begin, *scan, parts->part_bytes, record.length, gap);
} catch (const Error&) {
  return {};  // decoding reports it
}

}  // namespace

ReadAhead::Needs needs_of(const Sources& sources, const SamplePlan& plan,
                          const std::vector<int64_t>& ids, const std::vector<uint32_t>& draws,
                          uint64_t epoch) {
  const std::vector<FieldsPlan::Stream>& streams = plan.fields.streams();
  const bool first = !streams.empty() && streams.front().number == 0;
  const bool any = std::ranges::any_of(sources.all(), [](const Source& source) {
    return source.entries != nullptr && source.entries->part_bytes() != 0;
  });
  // What is kept decoded is decoded whole.
  if (!any || !first || plan.decoded_side != 0) return nullptr;
  const auto batch = std::make_shared<const Announced>(
      Announced{sources, plan, ids, draws, epoch_key(plan.seed, epoch)});
  const auto together = static_cast<uint32_t>(streams.size());
  return [batch, together](uint32_t position, const ReadAhead::Origin& origin, const Record& record,
                           size_t gap) -> std::optional<LoadedBytes> {
    if (position % together != 0 || record.flags != 0) return {};  // another stream; see the index
    return needed(*batch, position / together, origin, record, gap);
  };
}

}  // namespace fastload
