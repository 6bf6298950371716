"""The engine of a loader: of one image and one label a sample, or of any fields."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastload._native import _C
from fastload.backends.fields import Streams, field_plans
from fastload.backends.options import Options
from fastload.cache.tier import decoded_side
from fastload.dataset.mixture import Packed
from fastload.dataset.pil import decode_with_pil
from fastload.machine.cpu_budget import ThreadPlan
from fastload.prefetch.read_ahead import ReadAheadPlan
from fastload.sample.delivery import Delivery
from fastload.transforms.plan import Plan

__all__ = ["make_engine"]


def make_engine(
    dataset: Packed,
    plan: Plan,
    options: Options,
    threads: ThreadPlan,
    ahead: ReadAheadPlan,
    pixels: list[Any],
    delivery: Delivery,
    size: tuple[int, int] | None,
) -> Any:
    """``_C.Engine``.

    Args:
        dataset: what to read, through its caches.
        plan, options, threads, ahead: the loader's.
        pixels: cache files of decoded pictures, for each source; none: [].
        delivery: what batches hold.
        size: height and width of all pictures; None: they differ.
    """
    common: dict[str, Any] = {
        "sources": dataset.sources,
        "seed": options.seed,
        "threads": threads.threads,
        "most_threads": threads.most,
        "cpus": list(threads.cpus),
        "max_pixels": options.max_pixels,
        "fallback": partial(decode_with_pil, max_pixels=options.max_pixels),
        "read_ahead": ahead.buffer_bytes,
        "keep": ahead.keep,
        "decoded_side": decoded_side(options.cache_decoded),
        "pixels": pixels,
    }
    height, width = size or (0, 0)
    if delivery.is_pair:
        return _C.Engine(
            geometry=plan.geometry_spec(),
            store=plan.store_spec(),
            out_height=height,
            out_width=width,
            operations=plan.pixel_spec(),
            **common,
        )
    schema, layout = dataset.schema, delivery.layout
    streams = Streams.of(schema, [schema[field.name] for field in layout.fields])
    view = _C.ViewPlan(plan.geometry_spec(), width, height, plan.pixel_spec())
    fields = field_plans(schema, layout, streams, plan)
    return _C.Engine(parts=streams.parts(dataset), views=[view], fields=fields, **common)
