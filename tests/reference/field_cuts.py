"""Pictures of single samples, cut the slow way: a view drawn alone, and the cutter over the decoder."""

from __future__ import annotations

from typing import Any

import numpy as np
from field_jobs import Wanted
from transform_reference import View

from fastload._native import _C
from fastload.shard.dataset import PackedFiles

__all__ = ["cut", "size_of", "view_of"]


def size_of(files: PackedFiles, field: str, sample: int) -> tuple[int, int]:
    _, width, height, *_ = _C.probe(np.frombuffer(files.value_bytes(field, sample), np.uint8))
    return width, height


def view_of(
    files: PackedFiles, sample: int, spec: Any, number: int = 0, seed: int = 5, epoch: int = 0, draw: int = 0
) -> View:
    size = size_of(files, "image", sample)
    return _C.draw_view(_C.GeometrySpec(**spec), *size, seed, epoch, sample, draw, number)


def at_size(view: View, drawn: tuple[int, int], size: tuple[int, int]) -> View:
    """The view of a picture of another size: the crop's corners rounded, halves up."""
    if drawn == size:
        return view
    crop = []
    for begin, length, old, new in zip(view[0][:2], view[0][2:], drawn, size, strict=True):
        first, end = (int(np.floor(at * new / old + 0.5)) for at in (begin, begin + length))
        first = min(first, new - 1)
        crop.append((first, max(end - first, 1)))
    (x, width), (y, height) = crop
    return ((x, y, width, height), *view[1:])


def cut(
    files: PackedFiles, name: str, wanted: Wanted, sample: int, view: View, drawn: int | None = None
) -> np.ndarray:
    """The field's picture, by the decoder and the cutter, which have slow references of their own.

    Args:
        drawn: the sample whose first picture the view was drawn of, if that is another one.
    """
    plan = wanted.plan
    data = np.frombuffer(files.value_bytes(name, sample), np.uint8)
    at = at_size(
        view, size_of(files, "image", sample if drawn is None else drawn), size_of(files, name, sample)
    )
    found = _C.cut(
        data, at, plan.get("format", (3, 8, False)), _C.StoreSpec(), nearest=plan.get("nearest", False),
        fill=plan.get("fill", 0),
    )  # fmt: skip
    return np.asarray(found).reshape(view[2][3], view[2][2], *wanted.shape)
