"""What a consumer gets of a batch: images and labels, or a dict by field; and single samples of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch.utils.data import default_collate

from fastload.sample.layout import VALID, FieldLayout, SampleLayout, sizes_name

#: The fields of a set that has one image and one label, in a batch's memory.
IMAGE, LABEL = "image", "label"
_SMALL = 8  # fields that together are less than this part of a batch are copied out of it


@dataclass(frozen=True)
class Delivery:
    """From a batch's memory to what the consumer holds.

    Args:
        layout: of a sample.
        is_pair: batches are (images, labels), samples (image, label); else both are dicts by field name.
    """

    layout: SampleLayout
    is_pair: bool

    def batch(self, raw: Mapping[str, Any], nbytes: int = 0) -> Any:
        """A batch of :meth:`fastload.sample.layout.BatchLayout.raw`, with objects instead of bytes.

        Args:
            raw: the batch.
            nbytes: of the memory that it lies in. Small fields get memory of their own, so that labels that
                somebody keeps do not keep the pictures; 0: they do not.
        """
        if self.is_pair:
            return raw[IMAGE], _kept(raw[LABEL], nbytes // _SMALL)
        found = self.layout.finished(raw)
        least = _least_left([size for value in found.values() for size in _sizes(value)], nbytes)
        return {name: _kept(value, least) for name, value in found.items()}

    def samples(self, raw: Mapping[str, Any]) -> list[Any]:
        """The samples of a batch, one by one, for Python callables.

        (image, label as an int), or dicts: numbers as Python's, arrays, boxes, points and pictures as
        tensors, objects as they are, and whether it is a sample at all. Padded pictures lose their padding.
        """
        if self.is_pair:
            return list(zip(raw[IMAGE], raw[LABEL].tolist(), strict=True))
        found = self.layout.finished(raw)
        fields = [field for field in self.layout.fields if not field.is_origin]
        columns = [_column(field, found) for field in fields]
        names = [*(field.name for field in fields), VALID]
        columns.append(raw[VALID].tolist())
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def collated(self, samples: Sequence[Any]) -> Any:
        """The batch of samples that callables have made, by torch's rules and, for rows and objects, ours.

        Fields that the callables have added are collated by torch's ``default_collate``.
        """
        if self.is_pair or not all(isinstance(sample, Mapping) for sample in samples):
            return default_collate(list(samples))
        known = {field.name: field for field in self.layout.fields}
        found: dict[str, Any] = {}
        sizes: dict[str, Any] = {}
        for name in samples[0]:
            field, values = known.get(name), [sample[name] for sample in samples]
            if field is not None and field.mode == "pad" and _are_pictures(values):
                found[name], sizes[sizes_name(name)] = _padded(field, values)
            else:
                found[name] = _collated(field, values)
        valid = {VALID: found.pop(VALID)} if VALID in found else {}
        return {**found, **sizes, **valid}


def _least_left(sizes: Sequence[int], nbytes: int) -> int:
    """The least size of a field that stays in a batch of ``nbytes``: smaller ones are little together.

    Those of one size are treated alike. Many small crops of a picture may be most of a batch: to copy them
    would take longer than to decode them.
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
    """``value`` in memory of its own, where it is smaller than ``least`` bytes."""
    if isinstance(value, torch.Tensor):
        return value.clone() if value.nbytes < least else value
    from fastload.sample.ragged import Ragged

    if isinstance(value, Ragged):
        return value.mapped(lambda part: _kept(part, least))
    return value


def _column(field: FieldLayout, found: Mapping[str, Any]) -> Iterable[Any]:
    """One field's value for each sample."""
    value = found[field.name]
    if field.form == "fixed" and not field.shape:
        return value.tolist()  # type: ignore[no-any-return]
    if field.mode == "pad":
        sizes = found[sizes_name(field.name)].tolist()
        return [picture[..., :height, :width] for picture, (height, width) in zip(value, sizes, strict=True)]
    return value  # type: ignore[no-any-return]


def _are_pictures(values: Sequence[Any]) -> bool:
    """Whether callables have left pictures or masks as tensors."""
    return all(isinstance(value, torch.Tensor) and value.dim() >= 2 for value in values)


def _padded(field: FieldLayout, values: Sequence[torch.Tensor]) -> tuple[Any, torch.Tensor]:
    """Pictures in one tensor, filled up as the core fills them, or each sample's masks; and their heights
    and widths.

    Raises:
        ValueError: one is larger than there is room for.
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
