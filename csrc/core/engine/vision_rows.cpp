#include "engine/vision_rows.h"

#include <algorithm>
#include <algorithm>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "engine/views.h"

namespace fastload {
namespace {

// One picture of a sample: its record, its number in the reader, and in the sample's list, of which
// places without a picture count.
struct Listed {
  Record record;
  uint64_t number;
  uint64_t place;
};

std::vector<Listed> pictures_of(const Sources::Home& home, const FieldPlan& field) {
  const auto& [source, own] = home;
  const ListSource& list = source->lists[field.part];
  std::vector<Listed> found;
  if (list.records == nullptr) {
    found.push_back({list.reader->index().record(own), own, 0});
    return found;
  }
  const auto [first, last] = list.records->records_of(own);
  for (uint64_t number = first; number < last; ++number) {
    const Record record = list.records->record(number);
    if (record.length > 0) found.push_back({record, number, number - first});
  }
  return found;
}

// Says which of the sample's pictures is meant: the number of its place in the list.
template <class Do>
void with_place(const FieldPlan& field, const Listed& picture, const Do& what) try {
  what();
} catch (const Error& error) {
  throw Error(error.kind(), "field '" + field.name + "', picture " +
                                std::to_string(picture.place) + ": " + error.what());
}

// A size that the rule has no answer for is the picture's fault, as one that is too large is.
VisionSizes sizes_of(const FieldPlan& field, const Extent& size, size_t count) try {
  return plan(field.vision->rule(), static_cast<int>(size.width), static_cast<int>(size.height),
              static_cast<int>(count));
} catch (const Error& error) {
  if (error.kind() != ErrorKind::kValue) throw;
  throw Error(ErrorKind::kLimit, error.what());
}

Extent size_of(const ListSource& list, const Listed& picture, Decoder& decoder,
               std::vector<uint8_t>& scratch) {
  const Record& record = picture.record;
  if (record.width != 0 && record.height != 0) return {record.width, record.height};
  const Bytes bytes = list.reader->read(picture.number, scratch);
  const ImageInfo info = decoder.open(bytes, {}, list.reader->shown());
  return {info.width, info.height};
}

// Throws what the rule says of one of the pictures, if that is why the sample has no room: then it
// was measured as if it had none.
void check_sizes(const FieldPlan& field, const std::vector<Listed>& pictures) {
  for (const Listed& picture : pictures) {
    const Extent size{picture.record.width, picture.record.height};
    if (size.width == 0 || size.height == 0) continue;
    with_place(field, picture, [&] { sizes_of(field, size, pictures.size()); });
  }
}

[[noreturn]] void no_room(int64_t found, int64_t room) {
  throw Error(ErrorKind::kFormat,
              "it makes " + std::to_string(found) + " rows, and " + std::to_string(room) +
                  " were left when it was measured: its size is not the one in the index. Pack "
                  "again");
}

}  // namespace

void add_vision_records(const Sources::Home& home, const FieldsPlan& plan,
                        std::vector<int64_t>& records) {
  const size_t before = records.size();
  const std::vector<ListSource>& lists = home.source->lists;
  try {
    for (uint32_t part = 0; part < lists.size(); ++part) {
      const auto reads = [part](const FieldPlan& field) {
        return field.form == FieldPlan::Form::kVision && field.part == part;
      };
      const auto field = std::ranges::find_if(plan.fields(), reads);
      if (field == plan.fields().end()) continue;
      for (const Listed& one : pictures_of(home, *field)) {
        records.push_back(static_cast<int64_t>(lists[part].first + one.number));
      }
    }
  } catch (const Error&) {
    records.resize(before);
  }
}

VisionCount count_vision(const Sources::Home& home, const FieldPlan& field, Decoder& decoder,
                         std::vector<uint8_t>& scratch) {
  const std::vector<Listed> pictures = pictures_of(home, field);
  VisionCount count{0, static_cast<int64_t>(pictures.size())};
  for (const Listed& one : pictures) {
    const ListSource& list = home.source->lists[field.part];
    const VisionSizes sizes = sizes_of(field, size_of(list, one, decoder, scratch), pictures.size());
    count.rows += std::max(sizes.rows, field.vision->rows_each());
  }
  return count;
}

void VisionRows::produce(const FieldsPlan& plan, const Job& job) {
  for (size_t number = 0; number < plan.fields().size(); ++number) {
    const FieldPlan& field = plan.fields()[number];
    if (!field.is_vision()) continue;
    const std::span<uint8_t> room = job.batch.place(number).rows(job.position, field.width);
    if (field.form == FieldPlan::Form::kVision) {
      cut(field, job, room);
    } else {
      describe(field, job.home, room);
    }
  }
}

// The record's bytes, which may have been read ahead: then `held` owns them.
Bytes VisionRows::read(const Job& job, const ListSource& list, uint64_t number,
                       std::shared_ptr<const void>& held) {
  const uint64_t start = now_ns();
  void* const group = job.batch.ahead().get();
  const auto position =
      ReadAhead::find(group, job.position, static_cast<int64_t>(list.first + number));
  const Bytes bytes = ahead_.read(position ? group : nullptr, position.value_or(0),
                                  {list.reader, nullptr, number}, scratch_.record, held);
  stats_.add_time(Stage::kShard, now_ns() - start);
  ThreadStats::add(stats_.bytes, bytes.size());
  return bytes;
}

void VisionRows::cut(const FieldPlan& field, const Job& job, std::span<uint8_t> room) {
  const std::vector<Listed> pictures = pictures_of(job.home, field);
  const ListSource& list = job.home.source->lists[field.part];
  if (room.empty()) check_sizes(field, pictures);
  Decoder& decoder = scratch_.decoder;
  size_t at = 0;
  for (const Listed& picture : pictures) {
    with_place(field, picture, [&] {
      const uint64_t number = picture.number;
      std::shared_ptr<const void> held;
      const Bytes bytes = read(job, list, number, held);
      const ImageInfo info = open_record(decoder, bytes, picture.record, list.reader->shown());
      const VisionSizes sizes = sizes_of(field, {info.width, info.height}, pictures.size());
      const size_t own = static_cast<size_t>(sizes.rows) * field.width;
      const size_t size =
          std::max(own, static_cast<size_t>(field.vision->rows_each()) * field.width);
      if (size > room.size() - at) {
        no_room(sizes.rows, static_cast<int64_t>((room.size() - at) / field.width));
      }
      scratch_.vision.begin(*field.vision, sizes, room.data() + at);
      decoder.decode(scratch_.vision.source(), scratch_.vision);
      scratch_.vision.end();
      std::memset(room.data() + at + own, 0, size - own);
      if (held == nullptr) {
        static_cast<void>(list.reader->is_there(number, bytes, scratch_.record));
      }
      at += size;
    });
  }
  if (at != room.size()) {
    no_room(static_cast<int64_t>(at / field.width), static_cast<int64_t>(room.size() / field.width));
  }
}

void VisionRows::describe(const FieldPlan& field, const Sources::Home& home,
                          std::span<uint8_t> room) {
  const std::vector<Listed> pictures = pictures_of(home, field);
  if (pictures.size() * sizeof(VisionFacts) != room.size()) {
    no_room(static_cast<int64_t>(pictures.size()),
            static_cast<int64_t>(room.size() / sizeof(VisionFacts)));
  }
  uint8_t* to = room.data();
  for (const Listed& picture : pictures) {
    with_place(field, picture, [&] {
      const ListSource& list = home.source->lists[field.part];
      const Extent size = size_of(list, picture, scratch_.decoder, scratch_.record);
      const VisionSizes sizes = sizes_of(field, size, pictures.size());
      const VisionFacts facts{sizes.rows,   sizes.grid_height, sizes.grid_width,
                              sizes.tokens, size.height,       size.width};
      std::memcpy(to, &facts, sizeof(facts));
      to += sizeof(facts);
    });
  }
}

}  // namespace fastload
