"""The slow, obvious loader of sets with any fields: lists, pictures by Pillow, one sample at a time.

A set is a schema and a list of dicts of values, pictures as the bytes of their files. A batch is what
``DataLoader`` delivers for them. Of the core nothing is used but the drawn view, which ``tests/transform``
compares with a reference of its own.
"""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from points_reference import boxes, points

from fastload import Ragged
from fastload._native import _C
from fastload.sample.schema import Field, Schema
from fastload.transforms.compiler import compile_plan
from fastload.transforms.plan import Plan

Sample = Mapping[str, Any]
BLANK_LABEL = -100


@dataclass(frozen=True)
class Sizes:
    """What becomes of pictures of several sizes; see ``DataLoader(collate=...)``."""

    mode: str = "stack"  # "pad", "ragged", "most"
    multiple: int = 32
    most: tuple[int, int] = (0, 0)


class Reference:
    """A loader over samples in memory.

    Args:
        schema: the fields.
        samples: the set.
        transform: of the loader.
        seed, sizes: of the loader.
        view: which of the sample's views the transform is for.
    """

    def __init__(
        self,
        schema: Any,
        samples: Sequence[Sample],
        transform: Any = None,
        seed: int = 0,
        sizes: Sizes = Sizes(),
        view: int = 0,
    ) -> None:
        self.schema = Schema.of(schema)
        self.samples = samples
        self.plan: Plan = compile_plan(transform)
        self.seed = seed
        self.sizes = sizes
        self.view = view

    def batch(
        self, ids: Sequence[int], epoch: int = 0, draws: Sequence[int] | None = None, names: Any = None
    ) -> dict[str, Any]:
        """The batch of these samples; -1 is a position without one."""
        drawn = [0] * len(ids) if draws is None else list(draws)
        shown = [
            None if sample < 0 else self.sample(sample, epoch, draw)
            for sample, draw in zip(ids, drawn, strict=True)
        ]
        found: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        for name in self.schema.names if names is None else names:
            values = [None if one is None else one[name] for one in shown]
            found[name] = self._joined(self.schema[name], values, sizes)
        valid = torch.tensor([sample >= 0 for sample in ids], dtype=torch.bool)
        return {**found, **sizes, "valid": valid}

    def sample(self, number: int, epoch: int = 0, draw: int = 0) -> dict[str, Any]:
        """One sample under its view."""
        sample, first = self.samples[number], self.schema.index_field
        height, width = pixels_of(first, sample[first.name]).shape[:2]
        spec = self.plan.geometry_spec()
        view = _C.draw_view(spec, width, height, self.seed, epoch, number, draw, self.view)
        return {
            field.name: self._shown(field, sample[field.name], view, (width, height)) for field in self.schema
        }

    def _shown(self, field: Field, value: Any, view: Any, size: tuple[int, int]) -> Any:
        kind: Any = field.kind
        if kind.name in ("image", "mask"):
            pixels = pixels_of(field, value)
            view = scaled(view, size, (pixels.shape[1], pixels.shape[0]))
            if kind.name == "image":
                return self._stored(shown_picture(pixels, view, self.plan.filter))
            mask = shown_mask(pixels, view, kind.ignore)
            return torch.from_numpy(mask.astype(np.uint8 if kind.bits == 8 else np.int32))
        if kind.name == "boxes":
            rows = np.asarray(value, np.float32).reshape(-1, 4)
            return torch.from_numpy(boxes(rows, view, size, kind.format, kind.relative))
        if kind.name == "keypoints":
            rows = np.asarray(value, np.float32).reshape(-1, *field.item_shape)
            return torch.from_numpy(points(rows, view, size))
        if kind.name == "polygons" and kind.format == "polygons":
            return [[points(np.asarray(p, np.float32), view, size) for p in polygons] for polygons in value]
        if kind.name == "polygons":
            return [shown_area(area, view, size) for area in value]
        if kind.name in ("label", "scalar", "array"):
            shape = (-1, *field.item_shape) if kind.has_rows else field.item_shape
            return torch.from_numpy(np.array(value, numbers_of(field)).reshape(shape))
        return value if kind.name != "json" else json.loads(json.dumps(value))

    def _stored(self, pixels: np.ndarray) -> torch.Tensor:
        """(C, H, W) of the plan's dtype; uint8 and float32 are all that tests of delivery need."""
        picture = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)
        plan = self.plan
        if plan.dtype == "uint8":
            return picture
        values = picture.double()
        if plan.scale or plan.normalize:
            values = values / 255
        if plan.normalize:
            mean, std = (torch.tensor(part).double().view(3, 1, 1) for part in (plan.mean, plan.std))
            values = (values - mean) / std
        return values.float().to(getattr(torch, plan.dtype))

    def _joined(self, field: Field, values: list[Any], sizes: dict[str, Any]) -> Any:
        name, dtype = field.kind.name, getattr(torch, numbers_of(field))
        if name in ("text", "bytes", "json", "polygons"):
            empty = {"text": "", "bytes": b"", "json": None, "polygons": []}[name]
            return [empty if value is None else value for value in values]
        if field.kind.has_rows:
            nothing = torch.zeros(0, *field.item_shape, dtype=dtype)
            return Ragged.from_list([nothing if value is None else value for value in values])
        if name in ("image", "mask"):
            return self._pictures(field, values, sizes)
        none = torch.full(field.item_shape, BLANK_LABEL if name == "label" else 0, dtype=dtype)
        return torch.stack([none if value is None else value for value in values])

    def _pictures(self, field: Field, values: list[Any], sizes: dict[str, Any]) -> Any:
        name, blank = field.name, getattr(field.kind, "ignore", 0)
        some = next((value for value in values if value is not None), None)
        first = self.sample(0)[name] if some is None else some
        mode = self.sizes.mode
        if mode == "stack":
            return torch.stack([torch.full_like(first, blank) if v is None else v for v in values])
        found = [first[..., :0, :0] if value is None else value for value in values]
        if mode == "ragged":
            return found
        sides = torch.tensor([value.shape[-2:] for value in found], dtype=torch.int64)
        unit = self.sizes.multiple
        height, width = (-(-side // unit) * unit for side in sides.max(0)[0].tolist())
        if mode == "most":
            height, width = self.sizes.most
        room = torch.full((len(found), *first.shape[:-2], height, width), blank, dtype=first.dtype)
        for padded, value in zip(room, found, strict=True):
            padded[..., : value.shape[-2], : value.shape[-1]] = value
        sizes[f"{name}_sizes"] = sides
        return room


def numbers_of(field: Field) -> str:
    """The dtype of a field's numbers in a batch."""
    return "int64" if field.kind.name == "label" else field.item_dtype.name


def pixels_of(field: Field, data: bytes) -> np.ndarray:
    """(H, W, C) pixels of a picture's file, (H, W) ids of a mask's."""
    picture = Image.open(io.BytesIO(data))
    if field.kind.name == "mask":
        return np.asarray(picture)
    channels = field.item_shape[0]
    return np.asarray(picture.convert({1: "L", 3: "RGB"}[channels])).reshape(*picture.size[::-1], channels)


def scaled(view: Any, drawn: tuple[int, int], size: tuple[int, int]) -> Any:
    """A view that was drawn of a picture of ``drawn`` (width, height), for one of ``size``."""
    if drawn == size:
        return view
    (x, y, w, h), *rest = view
    corners = []
    for begin, length, before, after in zip((x, y), (w, h), drawn, size, strict=True):
        low = math.floor(begin * after / before + 0.5)
        high = math.floor((begin + length) * after / before + 0.5)
        low = min(low, after - 1)
        corners.append((low, max(high, low + 1) - low))
    (x, w), (y, h) = corners
    return ((x, y, w, h), *rest)


def shown_picture(pixels: np.ndarray, view: Any, name: str) -> np.ndarray:
    """The sample that a view shows of an (H, W, C) uint8 picture; zero where it leaves it."""
    (x, y, w, h), (width, height), window, flip = view
    cut = Image.fromarray(pixels[y : y + h, x : x + w].squeeze())
    method = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[name]
    resized = np.asarray(cut.resize((width, height), method)).reshape(height, width, -1)
    return _window(resized, window, flip, 0)


def shown_mask(ids: np.ndarray, view: Any, ignore: int) -> np.ndarray:
    """The same of an (H, W) mask, by nearest ids; ``ignore`` where the view leaves it."""
    (x, y, w, h), (width, height), window, flip = view
    cut = Image.fromarray(ids[y : y + h, x : x + w].astype(np.int32), "I")
    resized = np.asarray(cut.resize((width, height), Image.Resampling.NEAREST)).reshape(height, width, 1)
    return _window(resized, window, flip, ignore)[..., 0]


def shown_area(area: Mapping[str, Any], view: Any, drawn: tuple[int, int]) -> dict[str, list[int]]:
    """The same of an object's run lengths, which are cut as a mask of 0 and 1."""
    height, width = area["size"]
    values = [number % 2 for number in range(len(area["counts"]))]
    inside = np.repeat(np.array(values, np.uint8), area["counts"]).reshape(width, height).T
    (x, y, w, h), (resized_width, resized_height), window, flip = scaled(view, drawn, (width, height))
    cut = Image.fromarray(np.ascontiguousarray(inside[y : y + h, x : x + w]))
    resized = np.asarray(cut.resize((resized_width, resized_height), Image.Resampling.NEAREST))
    shown = np.rot90(_window(resized[..., None], window, flip, 0)[..., 0], getattr(view, "quarter", 0))
    counts = [len(list(run)) for _, run in itertools.groupby(shown.ravel(order="F").tolist())]
    return {"size": list(shown.shape), "counts": [0] * int(shown[0, 0]) + counts}


def _window(pixels: np.ndarray, window: Any, flip: bool, outside: int) -> np.ndarray:
    x, y, width, height = window
    out = np.full((height, width, pixels.shape[2]), outside, pixels.dtype)
    top, left = max(y, 0), max(x, 0)
    inside = pixels[top : max(y + height, 0), left : max(x + width, 0)]
    out[top - y : top - y + inside.shape[0], left - x : left - x + inside.shape[1]] = inside
    return out[:, ::-1] if flip else out
