"""The slow, obvious loader of sets with any fields: lists, pictures by Pillow, one sample at a time.

A set is a schema and a list of dicts: pictures and masks as (H, W, C) and (H, W) arrays, the others as their
values. A batch is what ``DataLoader`` delivers for them. Of the core nothing is used but the drawn view,
which ``tests/transform`` compares with a reference of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from fastload import Ragged
from fastload._native import _C
from fastload.sample.schema import Field, Schema
from fastload.transforms.plan import Plan, compile_plan

Sample = Mapping[str, Any]
BLANK_LABEL = -100


@dataclass(frozen=True)
class Sizes:
    """What becomes of pictures of several sizes; see ``DataLoader(sizes=...)``."""

    mode: str = "stack"  # "pad", "list", "most"
    multiple: int = 32
    most: tuple[int, int] = (0, 0)


class Reference:
    """A loader over samples in memory.

    Args:
        schema: the fields.
        samples: the set.
        transform: of the loader.
        seed, sizes: of the loader.
    """

    def __init__(
        self,
        schema: Any,
        samples: Sequence[Sample],
        transform: Any = None,
        seed: int = 0,
        sizes: Sizes = Sizes(),
    ) -> None:
        self.schema = Schema.of(schema)
        self.samples = samples
        self.plan: Plan = compile_plan(transform)
        self.seed = seed
        self.sizes = sizes

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
        sample = self.samples[number]
        height, width = sample[self.schema.index_field.name].shape[:2]
        spec = self.plan.geometry_spec()
        view = _C.draw_view(spec, width, height, self.seed, epoch, number, draw)
        return {
            field.name: self._shown(field, sample[field.name], view, (height, width)) for field in self.schema
        }

    def _shown(self, field: Field, value: Any, view: Any, size: tuple[int, int]) -> Any:
        kind: Any = field.kind
        if kind.name == "image":
            return self._stored(shown_picture(value, view, self.plan.filter))
        if kind.name == "mask":
            mask = shown_mask(value, view, kind.ignore)
            return torch.from_numpy(mask.astype(np.uint8 if kind.bits == 8 else np.int32))
        if kind.name == "boxes":
            return torch.from_numpy(shown_boxes(value, view, kind, size))
        if kind.name == "keypoints":
            return torch.from_numpy(shown_points(value, view, field.item_shape))
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
        if mode == "list":
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


def _window(pixels: np.ndarray, window: Any, flip: bool, outside: int) -> np.ndarray:
    x, y, width, height = window
    out = np.full((height, width, pixels.shape[2]), outside, pixels.dtype)
    top, left = max(y, 0), max(x, 0)
    inside = pixels[top : max(y + height, 0), left : max(x + width, 0)]
    out[top - y : top - y + inside.shape[0], left - x : left - x + inside.shape[1]] = inside
    return out[:, ::-1] if flip else out


def _moved(xy: np.ndarray, view: Any) -> np.ndarray:
    """(..., 2) points under a view, float64."""
    (x, y, w, h), (width, height), window, flip = view
    moved = (xy.astype(np.float64) - [x, y]) * [width / w, height / h] - [window[0], window[1]]
    if flip:
        moved[..., 0] = window[2] - moved[..., 0]
    return moved


def shown_boxes(boxes: np.ndarray, view: Any, kind: Any, size: tuple[int, int]) -> np.ndarray:
    """(n, 4) boxes under a view, in their own format; nothing is clipped."""
    values = np.asarray(boxes, np.float32).reshape(-1, 4).astype(np.float64)
    if kind.relative:
        values = values * [size[1], size[0], size[1], size[0]]
    if kind.format == "xywh":
        values = np.concatenate([values[:, :2], values[:, :2] + values[:, 2:]], 1)
    elif kind.format == "cxcywh":
        values = np.concatenate([values[:, :2] - values[:, 2:] / 2, values[:, :2] + values[:, 2:] / 2], 1)
    corners = _moved(values.reshape(-1, 2, 2), view)
    low, high = corners.min(1), corners.max(1)
    if kind.format == "xywh":
        result = np.concatenate([low, high - low], 1)
    elif kind.format == "cxcywh":
        result = np.concatenate([(low + high) / 2, high - low], 1)
    else:
        result = np.concatenate([low, high], 1)
    if kind.relative:
        result = result / [view[2][2], view[2][3], view[2][2], view[2][3]]
    return result.astype(np.float32)


def shown_points(points: np.ndarray, view: Any, shape: tuple[int, ...]) -> np.ndarray:
    """(n, points, 2 or 3) keypoints under a view; visibility stays."""
    values = np.asarray(points, np.float32).reshape(-1, *shape)
    moved = values.copy()
    moved[..., :2] = _moved(values[..., :2], view).astype(np.float32)
    return moved
