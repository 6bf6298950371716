// Fields of samples: their bytes, and objects.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "convert.h"
#include "engine.h"
#include "gil.h"
#include "register.h"
#include "sample/kinds.h"
#include "sample/masks.h"
#include "sample/objects.h"
#include "transform/view_at_size.h"
#include "views.h"

namespace nb = nanobind;

namespace fastload::bindings {

// ---- Fields of any kind: the table of kinds, plans, places in a batch

namespace {

using MasksArg = nb::ndarray<const int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;
using SizesArg = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

// (offset, offsets (n + 1,) in masks, height, width) of one size; else (offset, offsets (n,) in
// bytes, (n, 3) counts, heights, widths).
void read_masks(const nb::tuple& parts, FieldPlace& place) {
  const auto offsets = nb::cast<IdsArg>(parts[1]);
  place.offsets.assign(offsets.data(), offsets.data() + offsets.size());
  if (nb::len(parts) == 4) {
    place.room = {nb::cast<int>(parts[2]), nb::cast<int>(parts[3])};
    return;
  }
  const auto sizes = nb::cast<MasksArg>(parts[2]);
  for (size_t i = 0; i < sizes.shape(0); ++i) {
    place.counts.push_back(sizes(i, 0));
    place.sizes.push_back({static_cast<int>(sizes(i, 1)), static_cast<int>(sizes(i, 2))});
  }
}

FieldPlace read_place(const FieldsPlan& plan, const FieldPlan& field, std::span<uint8_t> memory,
                      nb::handle item) {
  FieldPlace place;
  const auto numbers = [](nb::handle array) {
    const auto values = nb::cast<IdsArg>(array);
    return std::vector<int64_t>(values.data(), values.data() + values.size());
  };
  const auto parts = nb::cast<nb::tuple>(item);
  const auto offset = nb::cast<uint64_t>(parts[0]);
  if (offset > memory.size()) {
    throw Error(ErrorKind::kValue, "A field must begin in the " + std::to_string(memory.size()) +
                                       " bytes of memory. Found: offset " + std::to_string(offset) +
                                       ".");
  }
  place.memory = memory.subspan(offset);
  if (field.form == FieldPlan::Form::kMasks) {
    read_masks(parts, place);
    return place;
  }
  if (field.is_ragged()) {
    place.offsets = numbers(parts[1]);
    return place;
  }
  if (nb::len(parts) == 3) {
    place.offsets = numbers(parts[1]);
    const auto sizes = nb::cast<SizesArg>(parts[2]);
    for (size_t i = 0; i < sizes.shape(0); ++i) {
      place.sizes.push_back({static_cast<int>(sizes(i, 0)), static_cast<int>(sizes(i, 1))});
    }
    return place;
  }
  place.stride = nb::cast<uint64_t>(parts[1]);
  const ViewPlan& view = plan.views()[field.view];
  place.room = {view.out_height, view.out_width};
  place.row_bytes = field.pixel_bytes() * static_cast<size_t>(view.out_width);
  if (nb::len(parts) == 2) return place;
  place.row_bytes = nb::cast<uint64_t>(parts[2]);
  place.room = {nb::cast<int>(parts[3]), nb::cast<int>(parts[4])};
  return place;
}

uint64_t submit(PyEngine& self, nb::object memory, const nb::sequence& places, const IdsArg& ids,
                const std::optional<DrawsArg>& draws, uint64_t epoch, const PyAnnounced* announced,
                const std::optional<PartnersArg>& partners) {
  const auto array = nb::cast<MemoryArg>(memory);
  BatchRequest request;
  const FieldsPlan& plan = self.engine->plan().fields;
  for (size_t i = 0; i < std::min(nb::len(places), plan.fields().size()); ++i) {
    request.places.push_back(
        read_place(plan, plan.fields()[i], {array.data(), array.size()}, places[i]));
  }
  return queue(self, std::move(request), std::move(memory), ids, draws, epoch, announced, partners);
}

nb::list measure(PyEngine& self, const IdsArg& ids, const std::optional<DrawsArg>& draws,
                 uint64_t epoch, const std::optional<PartnersArg>& partners) {
  const FieldsPlan& plan = self.engine->plan().fields;
  std::vector<Measured> found;
  {
    const GilRelease release;
    const std::span<const uint32_t> all =
        draws ? std::span(draws->data(), draws->size()) : std::span<const uint32_t>();
    const std::span<const int64_t> others =
        partners ? std::span(partners->data(), partners->size()) : std::span<const int64_t>();
    found = self.engine->measure({ids.data(), ids.size()}, all, epoch, others);
  }
  nb::list list;
  for (Measured& one : found) {
    if (plan.fields()[list.size()].form == FieldPlan::Form::kMasks && one.offsets.empty()) {
      std::vector<int64_t> masks;
      for (size_t i = 0; i < one.sizes.size(); ++i) {
        masks.insert(masks.end(), {one.counts[i], one.sizes[i].height, one.sizes[i].width});
      }
      list.append(array(std::move(masks)).attr("reshape")(-1, 3));
    } else if (!one.offsets.empty()) {
      list.append(array(std::move(one.offsets)));
    } else if (plan.is_measured(plan.fields()[list.size()])) {
      std::vector<int64_t> sizes;
      for (const auto [height, width] : one.sizes) sizes.insert(sizes.end(), {height, width});
      list.append(array(std::move(sizes)).attr("reshape")(-1, 2));
    } else {
      list.append(nb::none());
    }
  }
  return list;
}

constexpr std::array<const char*, 11> kForms{"picture",      "label", "fixed", "ragged",
                                             "points",       "masks", "id",    "vision",
                                             "vision_sizes", "view",  "pad"};

enum class Share : uint8_t { kAuto, kNever };
constexpr std::array<const char*, 2> kShares{"auto", "never"};

void make_field(FieldPlan* self, const std::string& form, uint32_t view, uint32_t part,
                uint32_t width, const nb::bytes& blank, const StoreSpec& store,
                const FormatArg& format, bool nearest, int fill, const std::string& points,
                bool relative, std::vector<std::array<uint16_t, 2>> pairs, bool follows,
                const std::optional<std::string>& becomes,
                const std::optional<VisionRule>& vision, const std::string& dtype,
                std::string name, std::vector<uint32_t> steps, bool each_step) {
  new (self) FieldPlan{by_name<FieldPlan::Form>("form", kForms, form),
                       view,
                       part,
                       width,
                       {},
                       {to_format(format), nearest, {}, store, fill},
                       by_name<PointFormat>("points", kPointFormats, points),
                       relative,
                       std::move(pairs),
                       follows,
                       {}};
  if (vision) {
    self->vision =
        std::make_shared<VisionPlan>(*vision, by_name<DType>("dtype", kDTypes, dtype));
  }
  self->name = std::move(name);
  self->steps = std::move(steps);
  self->each_step = each_step;
  if (becomes) self->becomes = by_name<PointFormat>("becomes", kPointFormats, *becomes);
  const auto* const bytes = static_cast<const uint8_t*>(blank.data());
  self->blank.assign(bytes, bytes + blank.size());
}

void register_plans(nb::module_& m) {
  nb::class_<ViewPlan>(m, "ViewPlan", "A view of a sample; see sample/field_plan.h.")
      .def(nb::init<GeometrySpec, int, int, PixelSpec, PixelSpec, std::optional<ObjectsPlan>>(),
           nb::arg("geometry"), nb::arg("out_width"), nb::arg("out_height"),
           nb::arg("operations") = PixelSpec{}, nb::arg("source") = PixelSpec{},
           nb::arg("objects").none() = nb::none(),
           "out_width, out_height: of its pictures, 0: they differ. operations: on the pixels. "
           "source: on those of whole pictures, before the crop. objects: what becomes of them.");
  nb::class_<FieldPlan>(m, "FieldPlan", "A field of a view; see sample/field_plan.h.")
      .def("__init__", &make_field, nb::arg("form"), nb::kw_only(), nb::arg("view") = 0,
           nb::arg("part") = 0, nb::arg("width") = 0, nb::arg("blank") = nb::bytes("", 0),
           nb::arg("store") = StoreSpec(), nb::arg("format") = FormatArg(3, 8, false),
           nb::arg("nearest") = false, nb::arg("fill") = 0, nb::arg("points") = "xyxy",
           nb::arg("relative") = false, nb::arg("pairs") = std::vector<std::array<uint16_t, 2>>{},
           nb::arg("follows") = false, nb::arg("becomes").none() = nb::none(),
           nb::arg("vision").none() = nb::none(), nb::arg("dtype") = "float32",
           nb::arg("name") = "", nb::arg("steps") = std::vector<uint32_t>{},
           nb::arg("each_step") = false,
           "form: picture, label, fixed, ragged, points, masks, id, vision, vision_sizes, view or "
           "pad. part: of a picture its stream of "
           "records, else a column, or INDEX for the index's label. width: bytes of a value or "
           "row. blank: an element or value that positions without a sample have, b'' for a "
           "picture's "
           "fill, or zeros. format (channels, bits, ids), nearest, fill: of a picture, as cut(). "
           "points: xyxy, xywh, cxcywh, xy, xyv, polygons, rle or mixed. width of masks: bytes of "
           "each, "
           "or 0 where they differ in size. pairs: of points, which change places in a mirror. "
           "follows: its rows are those of the view's objects. becomes: the format of boxes in the "
           "batch, where it is another one. vision: a VisionRule, of vision and vision_sizes, whose "
           "part is a list of pictures; dtype: of its rows; name: of its field, for messages. "
           "steps: of pictures of one size, labels, fixed and pad: whose frame stands at each "
           "step, one after the other: 0 is the sample itself, k is partners[position, k - 1]; each_step: the "
           "picture at step t is of view + t, else all are of view. pad: a byte for each step, 1 "
           "where the partner's id has PAD_BIT.");
  m.attr("INDEX") = FieldPlan::kIndex;
  m.attr("PAD_BIT") = kPadBit;  // of a partner's id: the frame stands for one that there is not
}

}  // namespace

void add_fields(nb::class_<PyEngine>& engine) {
  engine
      .def(
          "__init__",
          [](PyEngine* self, const nb::sequence& sources, const nb::list& parts,
             std::vector<ViewPlan> views, std::vector<FieldPlan> fields, uint64_t seed, int threads,
             uint64_t max_pixels, nb::object fallback, int most_threads, std::vector<int> cpus,
             uint64_t read_ahead, double keep, uint32_t decoded_side, const nb::sequence& pixels,
             const std::string& decode_once, const std::optional<MosaicArg>& mosaic, size_t kept,
             const std::string& share) {
            make(self, read_sources(sources, pixels, decoded_side, parts),
                 sample_plan(FieldsPlan(std::move(views), std::move(fields)), seed, max_pixels,
                             decoded_side,
                             by_name<DecodeOnce>("decode_once", kDecodeOnce, decode_once), mosaic,
                             kept, by_name<Share>("share", kShares, share) == Share::kAuto),
                 {threads, most_threads, std::move(cpus), read_ahead, keep}, std::move(fallback),
                 nb::make_tuple(nb::list(sources), nb::list(parts), nb::list(pixels)));
          },
          nb::arg("sources"), nb::arg("parts"), nb::arg("views"), nb::arg("fields"),
          nb::arg("seed"), nb::arg("threads"), nb::arg("max_pixels"), nb::arg("fallback").none(),
          nb::arg("most_threads") = 0, nb::arg("cpus") = std::vector<int>{},
          nb::arg("read_ahead") = 0, nb::arg("keep") = 1.0, nb::arg("decoded_side") = 0,
          nb::arg("pixels") = nb::tuple(), nb::arg("decode_once") = "cheaper",
          nb::arg("mosaic").none() = nb::none(), nb::arg("kept") = 0, nb::arg("share") = "auto",
          "sources: [(Reader, Entries or None, labels)], labels: what stands for each label of the "
          "source, [] for the same. parts: for each source (the Readers of its second stream of "
          "records and so on, its Columns, its lists of pictures, each a Reader and its "
          "ListedRecords, or None for the index's own); [] where there are none. views: [ViewPlan]. fields: "
          "[FieldPlan]. threads: at once, of the process's pool; set_threads() goes up to "
          "most_threads. cpus: where the pool's threads run from now on, [] for anywhere. "
          "read_ahead: bytes of buffers, 0 for none. keep: share of the set that stays in the page "
          "cache once read. decoded_side: crops are cut from the picture scaled to this longest "
          "side; 0 for as it is, UNBOUNDED for no scaling. pixels: a CacheFile of that tier, or "
          "None, for each source; with decoded_side 0 one of coefficient records. decode_once: "
          "several views of a picture are decoded together where that is cheaper; always, never: "
          "tests and benchmarks. mosaic: as compose() takes it, or None. kept: bytes of its "
          "pictures that are kept for others. share: a record that several frames of a batch's "
          "windows are of is read and decoded once; never: tests and benchmarks.")
      .def("measure", &measure, nb::arg("ids"), nb::arg("draws").none(), nb::arg("epoch"),
           nb::arg("partners").none() = nb::none(),
           "For each field None, or where each sample's rows begin (n + 1,) int64, in rows, or "
           "heights and widths of pictures (n, 2) int64. Nothing is decoded.")
      .def("submit", &submit, nb::arg("memory"), nb::arg("places"), nb::arg("ids"),
           nb::arg("draws").none(), nb::arg("epoch"), nb::arg("announced").none() = nb::none(),
           nb::arg("partners").none() = nb::none(),
           "Queues a batch into memory (bytes,) uint8. places: for each field (offset, stride), or "
           "of rows (offset, offsets (n + 1,) int64 in rows), of padded pictures (offset, stride, "
           "row_stride, height, width), of a list of pictures (offset, offsets (n,), (n, 2) heights, "
           "widths) as measured; of masks (offset, offsets (n + 1,) in masks, height, width), or of "
           "lists (offset, offsets (n,), (n, 3) counts, heights, widths); offsets, strides in bytes. "
           "ids (n,) int64 are sample ids (-1: padding), draws (n,) uint32 or None. announced: what "
           "announce() returned for them. partners (n, k) int64: what each is put together with, -1 "
           "for none, or None; of an engine with steps the frames' sample ids, with PAD_BIT for "
           "padding. "
           "Returns its ticket.");
}

void register_fields(nb::module_& m) {
  nb::dict kinds;
  for (const KindRow& row : kFieldKinds) {
    const char* const storage = kStorageNames[static_cast<size_t>(row.storage)];
    kinds[row.name] = nb::make_tuple(static_cast<int>(row.kind), storage);
  }
  m.attr("FIELD_KINDS") = kinds;  // number and storage by name
  register_plans(m);
}

// ---- Objects of a sample outside of batches: their masks, and values of some of them

namespace {

using Numbers = std::vector<uint32_t>;

// The masks back to back.
nb::object draw_masks(const View& view, uint32_t width, uint32_t height, const std::string& name,
                      const BytesArg& values, const Numbers& objects,
                      const std::vector<MotionTuple>& cut, const std::vector<MotionTuple>& source) {
  const Motions motions{to_motions(source), to_motions(cut)};
  const auto view_at = [&](int w, int h) {
    return view_at_size(view, width, height, static_cast<uint32_t>(w), static_cast<uint32_t>(h));
  };
  const size_t bytes = static_cast<size_t>(view.made().height) *
                       static_cast<size_t>(view.made().width) * objects.size();
  std::vector<uint8_t> masks(bytes);
  MaskDrawer().draw(
      {values.data(), values.size()}, by_name<PointFormat>("format", kPointFormats, name), objects,
      {height,
       width,
       lines_of(view_at),
       &motions,
       {static_cast<int>(width), static_cast<int>(height)}},
      {masks.data(), static_cast<uint32_t>(objects.size()), view.made().height, view.made().width});
  return array(std::move(masks));
}

nb::object objects_of(const std::string& name, const BytesArg& values, const Numbers& objects) {
  const auto format = by_name<PointFormat>("format", kPointFormats, name);
  return array(Shapes({values.data(), values.size()}, format).of(objects));
}

// The rows that stay, and their boxes (rows * 4,) float32.
nb::tuple keep(const ObjectsPlan& plan, const View& view, uint32_t width, uint32_t height,
               const BytesArg& boxes, const BytesArg& without, const std::vector<MotionTuple>& cut,
               const std::vector<MotionTuple>& source) {
  const Motions motions{to_motions(source), to_motions(cut)};
  Kept kept;
  keep_objects({boxes.data(), boxes.size()}, {without.data(), without.size()}, plan,
               {&view, width, height, width, height, &motions}, kept);
  return nb::make_tuple(array(std::move(kept.rows)), array(std::move(kept.boxes)));
}

void make_plan(ObjectsPlan* self, uint32_t part, const std::string& format, bool relative,
               bool clip, bool clamp, bool drop, bool inside, double min_size, double min_area,
               std::optional<uint32_t> without) {
  const PointFormat form = by_name<PointFormat>("format", kPointFormats, format);
  new (self)
      ObjectsPlan{part, form, relative, clip, clamp, drop, inside, min_size, min_area, without};
}

}  // namespace

void register_objects(nb::module_& m) {
  nb::class_<ObjectsPlan>(m, "ObjectsPlan",
                          "What a view does to objects; see sample/objects_plan.h.")
      .def("__init__", &make_plan, nb::arg("part"), nb::kw_only(), nb::arg("format"),
           nb::arg("relative") = false, nb::arg("clip") = false, nb::arg("clamp") = false,
           nb::arg("drop") = false, nb::arg("inside") = false, nb::arg("min_size") = 1.0,
           nb::arg("min_area") = 1.0, nb::arg("without").none() = nb::none(),
           "part: the column of boxes, in that format. clip: by crops, pads and motions. clamp: "
           "where the picture ends. drop: those that are then too small, with inside those that "
           "reach over its border. without: a column of bools: objects that have it are dropped, "
           "too.");
  m.def(
      "keep_objects", &keep, nb::arg("plan"), nb::arg("view"), nb::arg("width"), nb::arg("height"),
      nb::arg("boxes"), nb::arg("without"), nb::arg("motions") = std::vector<MotionTuple>{},
      nb::arg("source") = std::vector<MotionTuple>{},
      "Which rows of a value of boxes stay, (n,) uint32, and their boxes, (4 n,) float32, under a "
      "view of a width x height picture. boxes: the value (bytes,) uint8; without: a byte a row, "
      "or none. motions, source: as view_points().");
  m.def("draw_masks", &draw_masks, nb::arg("view"), nb::arg("width"), nb::arg("height"),
        nb::arg("format"), nb::arg("values"), nb::arg("objects"),
        nb::arg("motions") = std::vector<MotionTuple>{},
        nb::arg("source") = std::vector<MotionTuple>{},
        "Masks (bytes,) uint8, 0 or 1, back to back, of these objects of a value (polygons, rle or "
        "mixed) under a view of a width x height picture. motions, source: as view_points().");
  m.def("objects_of", &objects_of, nb::arg("format"), nb::arg("values"), nb::arg("objects"),
        "The bytes of a value of polygons, rle or mixed that has these of its objects alone.");
}

}  // namespace fastload::bindings
