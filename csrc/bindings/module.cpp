// The extension module fastload._C: conversion of arguments and release of the GIL, no logic.
#include "register.h"

NB_MODULE(_C, m) {
  m.doc() = "fastload's C++ core";
  // At the interpreter's end a global, a cycle or a thread may still hold a loader. That is no
  // mistake, neither of the program's nor of these bindings', and nanobind's lines say that it is.
  nanobind::set_leak_warnings(false);
  fastload::bindings::register_gil(m);
  fastload::bindings::register_ticks(m);
  fastload::bindings::register_base(m);
  fastload::bindings::register_decode(m);
  fastload::bindings::register_jpeg(m);
  fastload::bindings::register_views(m);
  fastload::bindings::register_transform(m);
  fastload::bindings::register_pixels(m);
  fastload::bindings::register_cut(m);
  fastload::bindings::register_pack(m);
  fastload::bindings::register_packing(m);
  fastload::bindings::register_cache(m);
  fastload::bindings::register_remote(m);
  fastload::bindings::register_tier(m);
  fastload::bindings::register_shard(m);
  fastload::bindings::register_reader(m);
  fastload::bindings::register_entries(m);
  fastload::bindings::register_column(m);
  fastload::bindings::register_objects(m);
  fastload::bindings::register_fields(m);
  fastload::bindings::register_mosaic(m);
  fastload::bindings::register_points(m);
  fastload::bindings::register_engine(m);
  fastload::bindings::register_slots(m);
  fastload::bindings::register_filler(m);
  fastload::bindings::register_records(m);
  fastload::bindings::register_vision(m);
}
