"""Batches of patches: pictures of all sizes cut up for models that take sequences of patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from fastload.collate.planned import Collated, Collation, Values, Wanted
from fastload.sample.fields import Image
from fastload.sample.layout import VALID, Sizes
from fastload.sample.schema import Field

_FORMS = ("naflex", "siglip2")
#: Integer dtypes by size, as which NumPy copies dtypes that it does not know.
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


@dataclass(frozen=True)
class Patches:
    """``DataLoader(collate=Patches(...))``: batches with each picture as a row of patches, after
    ``T.ResizeToPatches`` (``docs/guide/patches.md``). All other fields of a batch stay.

    Args:
        form: "naflex": ``patches``, ``patch_coord`` and ``patch_valid``, for timm's NaFlex models;
            "siglip2": ``pixel_values``, ``pixel_attention_mask`` and ``spatial_shapes``, for SigLIP 2 in
            transformers.
        patch: height and width of a patch in pixels.
        length: patches per row, filled up with zeros; None: as many as the batch's largest picture has.
        image: the image field, if a set has several.

    Raises:
        ValueError: there is no such form, or a number is below 1.
    """

    form: str = "naflex"
    patch: int = 16
    length: int | None = None
    image: str | None = None

    #: Batches keep their fields, texts among them.
    keeps_fields = True

    def __post_init__(self) -> None:
        if self.form not in _FORMS:
            raise ValueError(f"Patches' form must be one of {', '.join(_FORMS)}. Found: {self.form!r}.")
        for name, value in (("patch", self.patch), ("length", self.length)):
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"Patches.{name} must be an integer of at least 1. Found: {value!r}.")

    def planned(
        self, schema: Sequence[Field], asked: Wanted, views: Sequence[str], one_size: bool
    ) -> Collation:
        """Return the collation for a loader; see :meth:`fastload.collate.detection.Detection.planned`.

        Raises:
            ValueError: there is not exactly one picture field, or an argument does not go with patches.
        """
        if views:
            raise ValueError(
                f"collate=Patches cuts one picture per sample. Found: Views of {', '.join(views)}. Leave out "
                "one of them."
            )
        if asked.pictures.mode == "pad":
            raise ValueError(
                "Patches pads patches, not pictures. Found: Pad. Pass collate=Patches(...) alone."
            )
        images = [
            item.name for item in schema if isinstance(item.kind, Image) and self.image in (None, item.name)
        ]
        if len(images) != 1:
            have = ", ".join(map(str, schema))
            raise ValueError(
                f"collate=Patches needs one image field. Found: {len(images)} of {have}. Name it: "
                "Patches(image=NAME), and see that fields=[...] has it."
            )
        (kind,) = (item.kind for item in schema if item.name == images[0])
        assert isinstance(kind, Image)
        normal = self.form == "siglip2" and (kind.channels, kind.bits) == (3, 8)
        return Collation(
            partial(self._made, images[0], None), replace(asked, pictures=Sizes("list")), needs_origins=True,
            of_pixels=partial(partial, self._made, images[0]) if normal else None,
        )  # fmt: skip

    def _made(self, image: str, values: Values | None, delivered: Collated) -> dict[str, Any]:
        pictures: list[torch.Tensor] = delivered.batch[image]
        valid = delivered.host[VALID].tolist()
        grids = [self._grid(picture, place) for place, picture in enumerate(pictures)]
        grids = [grid if is_sample else (0, 0) for grid, is_sample in zip(grids, valid, strict=True)]
        counts = torch.tensor([rows * columns for rows, columns in grids], dtype=torch.int64, device="cpu")
        length = self._length(counts.tolist())
        rest = {
            name: value
            for name, value in delivered.batch.items()
            if name != image and not name.startswith(".")
        }
        valued = None if values is None else values(delivered.device)

        def cut() -> torch.Tensor:
            cells = self._cut(pictures, grids, length)
            return cells if valued is None else _without(valued(cells), counts.tolist())

        patches = delivered.device.run(cut)
        seen = torch.arange(length, device="cpu") < counts[:, None]
        if self.form == "siglip2":
            shapes = torch.tensor(grids, dtype=torch.int64, device="cpu").view(-1, 2)
            more = {"pixel_attention_mask": seen.to(torch.int32), "spatial_shapes": shapes}
            return {"pixel_values": patches, **delivered.device.move(more), **rest}
        more = {"patch_coord": _places(grids, length), "patch_valid": seen}
        return {"patches": patches, **delivered.device.move(more), **rest}

    def _grid(self, picture: torch.Tensor, place: int) -> tuple[int, int]:
        """Return the numbers of rows and columns of patches."""
        height, width = picture.shape[-2:]
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"Patches({self.patch}): the picture at position {place} of a batch has {height} x {width} "
                f"pixels (height x width), which is not a whole number of patches. Resize by "
                f"T.ResizeToPatches({self.patch}, most), or to multiples of {self.patch}."
            )
        return height // self.patch, width // self.patch

    def _length(self, counts: list[int]) -> int:
        most = max(counts, default=0)
        if self.length is None or most <= self.length:
            return most if self.length is None else self.length
        raise ValueError(
            f"Patches(length={self.length}): the picture at position {counts.index(most)} of a batch has "
            f"{most} patches. Resize by T.ResizeToPatches({self.patch}, {self.length}), or raise length."
        )

    def _cut(self, pictures: list[torch.Tensor], grids: list[tuple[int, int]], length: int) -> torch.Tensor:
        """Return (n, length, patch * patch * channels): each patch's pixels row by row, interleaved."""
        first = pictures[0]
        shape = (len(pictures), length, self.patch, self.patch, first.shape[0])
        out = torch.zeros(shape, dtype=first.dtype, device=first.device)
        for row, picture, (down, across) in zip(out, pictures, grids, strict=True):
            if down * across:
                cells = picture.view(-1, down, self.patch, across, self.patch)
                to = row[: down * across].view(down, across, *shape[2:])
                _copy(to, cells.permute(1, 3, 2, 4, 0))
        return out.flatten(2)


def _without(patches: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """Return the patches with zeros behind each picture's last, where pixels of 0 have left values."""
    for row, count in zip(patches, counts, strict=True):
        if count < len(row):
            row[count:].zero_()
    return patches


def _copy(to: torch.Tensor, source: torch.Tensor) -> None:
    """Copy with NumPy on the host: torch would wake all of its threads, which take cores that decode."""
    same = _SAME_SIZE.get(to.dtype.itemsize)
    if to.device.type != "cpu" or same is None:
        to.copy_(source)
    else:
        to.view(same).numpy()[...] = source.view(same).numpy()


def _places(grids: list[tuple[int, int]], length: int) -> torch.Tensor:
    """Return (n, length, 2) int64: row and column of each patch; zeros after the last."""
    result = torch.zeros((len(grids), length, 2), dtype=torch.int64, device="cpu")
    for picture, (rows, columns) in zip(result, grids, strict=True):
        places = torch.arange(rows * columns, device="cpu")
        picture[: rows * columns, 0] = places.div(max(columns, 1), rounding_mode="floor")
        picture[: rows * columns, 1] = places.remainder(max(columns, 1))
    return result
