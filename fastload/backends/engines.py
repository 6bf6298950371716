"""The engine of a loader: of one image and one label a sample, or of any fields."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastload._native import _C
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
    kept: int = 0,
) -> Any:
    """``_C.Engine``.

    Args:
        dataset: what to read, through its caches.
        plan, options, threads, ahead: the loader's.
        pixels: cache files of decoded pictures, for each source; none: [].
        delivery: what batches hold.
        kept: bytes of pictures of mosaics that stay for other samples.
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
        "mosaic": plan.mosaic.as_tuple() if plan.mosaic is not None else None,
        "kept": kept,
    }
    if delivery.is_pair:
        height, width = delivery.layout.picture_size(0)
        return _C.Engine(
            geometry=plan.geometry_spec(),
            store=plan.store_spec(),
            out_height=height,
            out_width=width,
            operations=plan.pixel_spec(),
            source=plan.source_spec(),
            **common,
        )
    from fastload.backends.fields import engine_parts

    parts, views, fields = engine_parts(dataset, delivery.layout, plan, options.objects)
    return _C.Engine(parts=parts, views=views, fields=fields, **common)
