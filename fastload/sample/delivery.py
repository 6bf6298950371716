"""Delivery of batches to consumers: images and labels, or a dict by field; and single samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch.utils.data import default_collate, default_convert

from fastload._native import _C
from fastload.sample.layout import VALID, FieldLayout, SampleLayout, sizes_name

#: The fields of a set with one image and one label, in a batch's memory.
IMAGE, LABEL = "image", "label"
_SMALL = 8  # fields that together are less than 1 / _SMALL of a batch are copied out of it


def image_and_label(
    dtype: torch.dtype, size: tuple[int, int] | None, blank_size: tuple[int, int] = (0, 0)
) -> SampleLayout:
    """Return the layout of samples that are one image and one label.

    Args:
        dtype: of the images.
        size: height and width of all images; None: they differ.
        blank_size: of an image that differs, at a position without a sample.
    """
    mode: Any = "list" if size is None else "stack"
    image = FieldLayout(IMAGE, "picture", dtype, (3, *(size or (0, 0))), mode=mode, blank_size=blank_size)
    return SampleLayout((image, FieldLayout(LABEL, "fixed", torch.int64, blank=_C.IGNORE_LABEL)))


@dataclass(frozen=True)
class Delivery:
    """The step from a batch's memory to what the consumer gets: dicts by field.

    Args:
        layout: the layout of a sample.
        unbatched: the consumer gets samples, from batches of one.
    """

    layout: SampleLayout
    unbatched: bool = False

    def batch(self, raw: Mapping[str, Any], nbytes: int = 0) -> Any:
        """Return a batch of :meth:`fastload.sample.layout.BatchLayout.raw`, with objects instead of bytes.

        Args:
            raw: the batch.
            nbytes: the size of its memory. Small fields are copied, so that labels that a user keeps do not
                keep the pictures alive; 0: they are not copied.
        """
        return self.collated(self.samples(raw)) if self.unbatched else self._shown(raw, nbytes)

    def _shown(self, raw: Mapping[str, Any], nbytes: int) -> Any:
        batch = self.layout.finished(raw)
        least = _least_left([size for value in batch.values() for size in _sizes(value)], nbytes)
        return {name: _kept(value, least) for name, value in batch.items()}

    def samples(self, raw: Mapping[str, Any]) -> list[Any]:
        """Return the samples of a batch, one by one, for Python callables.

        They are dicts with Python numbers, tensors for arrays, boxes, points and unpadded pictures, objects
        as they are, and whether the position is a sample.
        """
        batch = self.layout.finished(raw)
        fields = [field for field in self.layout.fields if not field.is_origin]
        columns = [_column(field, batch) for field in fields]
        names = [*(field.name for field in fields), VALID]
        columns.append(raw[VALID].tolist())
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def collated(self, samples: list[Any], collate_fn: Callable[[Any], Any] | None = None) -> Any:
        """Return what the consumer gets of a batch's samples, which callables may have changed.

        Args:
            samples: the samples.
            collate_fn: the user's; None: torch's rules and, for rows and objects, fastload's. Fields that the
                callables have added go to torch's ``default_collate``.
        """
        if self.unbatched:
            return (collate_fn or default_convert)(samples[0])  # type: ignore[no-untyped-call]
        if collate_fn is not None:
            return collate_fn(samples)
        if not all(isinstance(sample, Mapping) for sample in samples):
            return default_collate(samples)
        known = {field.name: field for field in self.layout.fields}
        batch: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        for name in samples[0]:
            field, values = known.get(name), [sample[name] for sample in samples]
            if field is not None and field.mode == "pad" and _are_pictures(values):
                batch[name], sizes[sizes_name(name)] = _padded(field, values)
            else:
                batch[name] = _collated(field, values)
        valid = {VALID: batch.pop(VALID)} if VALID in batch else {}
        return {**batch, **sizes, **valid}


class Pairs(Delivery):
    """The delivery of :func:`image_and_label`: batches are [images, labels], a list as torch's collate makes
    it; samples are (image, label)."""

    def _shown(self, raw: Mapping[str, Any], nbytes: int) -> Any:
        return [raw[IMAGE], _kept(raw[LABEL], nbytes // _SMALL)]

    def samples(self, raw: Mapping[str, Any]) -> list[Any]:
        """Return (image, label as an int) of each sample."""
        return list(zip(raw[IMAGE], raw[LABEL].tolist(), strict=True))


def _least_left(sizes: Sequence[int], nbytes: int) -> int:
    """Return the least size of fields that are not copied out of a batch of ``nbytes``.

    Fields of one size are treated alike. The smaller ones are little together: many small crops of a picture
    may be most of a batch, and to copy them would take longer than to decode them.
    """
    room = nbytes // _SMALL
    for size, alike in groupby(sorted(sizes)):
        room -= size * len(list(alike))
        if room <= 0:
            return size
    return nbytes


def _sizes(value: Any) -> list[int]:
    if isinstance(value, torch.Tensor):
        return [value.nbytes]
    from fastload.sample.ragged import Ragged

    return [value.values.nbytes, value.offsets.nbytes] if isinstance(value, Ragged) else []


def _kept(value: Any, least: int) -> Any:
    """Return ``value``, copied if it is smaller than ``least`` bytes."""
    if isinstance(value, torch.Tensor):
        return value.clone() if value.nbytes < least else value
    from fastload.sample.ragged import Ragged

    if isinstance(value, Ragged):
        return value.mapped(lambda part: _kept(part, least))
    return value


def _column(field: FieldLayout, batch: Mapping[str, Any]) -> Iterable[Any]:
    """Return a field's value for each sample."""
    value = batch[field.name]
    if field.form == "fixed" and not field.shape:
        return value.tolist()  # type: ignore[no-any-return]
    if field.mode == "pad":
        sizes = batch[sizes_name(field.name)].tolist()
        return [picture[..., :height, :width] for picture, (height, width) in zip(value, sizes, strict=True)]
    return value  # type: ignore[no-any-return]


def _are_pictures(values: Sequence[Any]) -> bool:
    """Return whether callables have left pictures or masks as tensors."""
    return all(isinstance(value, torch.Tensor) and value.dim() >= 2 for value in values)


def _padded(field: FieldLayout, values: Sequence[torch.Tensor]) -> tuple[Any, torch.Tensor]:
    """Return pictures in one tensor, padded as the core pads them, or each sample's masks; and their heights
    and widths.

    Raises:
        ValueError: one is larger than ``Pad`` allows.
    """
    sizes = torch.tensor([value.shape[-2:] for value in values], dtype=torch.int64, device="cpu")
    height, width = field.padded_size(sizes.numpy())
    blank = 0 if field.form == "masks" else field.blank
    parts = []
    for value in values:
        part = torch.full((*value.shape[:-2], height, width), blank, dtype=value.dtype, device="cpu")
        part[..., : value.shape[-2], : value.shape[-1]] = value
        parts.append(part)
    if field.form != "masks":
        return default_collate(parts), sizes
    from fastload.sample.ragged import Ragged

    return Ragged.from_list(parts), sizes


def _collated(field: FieldLayout | None, values: list[Any]) -> Any:
    if field is None:
        return default_collate(values)
    if field.form == "objects":
        return values
    tensors = all(isinstance(value, torch.Tensor) for value in values)
    mode = field.behind or field.mode
    if field.form == "masks" and (mode == "list" or len({value.shape[1:] for value in values}) > 1):
        return values
    if field.form in ("rows", "masks") and tensors:
        from fastload.sample.ragged import Ragged

        return Ragged.from_list(values)
    if tensors and len({value.shape for value in values}) > 1:
        return values  # pictures of several sizes
    if not field.shape and not tensors and all(isinstance(value, (int, float)) for value in values):
        return torch.tensor(values, dtype=field.dtype, device="cpu")
    return default_collate(values)
