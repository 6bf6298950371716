// One register function for each stage of the core; module.cpp calls them all.
#pragma once

#include <nanobind/nanobind.h>

namespace fastload::bindings {

void register_gil(nanobind::module_& m);
void register_ticks(nanobind::module_& m);
void register_base(nanobind::module_& m);
void register_cache(nanobind::module_& m);
void register_entries(nanobind::module_& m);
void register_decode(nanobind::module_& m);
void register_jpeg(nanobind::module_& m);
void register_views(nanobind::module_& m);
void register_transform(nanobind::module_& m);
void register_pixels(nanobind::module_& m);
void register_cut(nanobind::module_& m);
void register_pack(nanobind::module_& m);
void register_packing(nanobind::module_& m);
void register_remote(nanobind::module_& m);
void register_tier(nanobind::module_& m);
void register_shard(nanobind::module_& m);
void register_reader(nanobind::module_& m);
void register_column(nanobind::module_& m);
void register_mosaic(nanobind::module_& m);
void register_fields(nanobind::module_& m);
void register_points(nanobind::module_& m);
void register_objects(nanobind::module_& m);
void register_engine(nanobind::module_& m);
void register_slots(nanobind::module_& m);
void register_filler(nanobind::module_& m);
void register_records(nanobind::module_& m);
void register_vision(nanobind::module_& m);

}  // namespace fastload::bindings
