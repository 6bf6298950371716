"""A filled batch with some of its samples removed or replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fastload.sample.layout import VALID, FieldLayout, SampleLayout, sizes_name
from fastload.sample.ragged import Ragged

Raw = Mapping[str, Any]


def mended(layout: SampleLayout, raw: Raw, changes: Mapping[int, Raw | None]) -> dict[str, Any]:
    """Return a batch with other samples at some positions.

    Args:
        layout: the layout of a sample.
        raw: the batch from :meth:`fastload.sample.layout.BatchLayout.raw`; its tensors are written to.
        changes: by position a batch of one sample; None: no sample.

    Returns:
        The batch. A position without a sample has no rows, no bytes of objects, and the fields' blanks.
    """
    batch = dict(raw)
    for field in layout.fields:
        parts = {at: None if new is None else new[field.name] for at, new in changes.items()}
        value = raw[field.name]
        if field.form == "masks" and not field.has_offsets:
            batch[field.name] = _with_masks(field, batch, changes)
        elif isinstance(value, Ragged):
            batch[field.name] = _with_rows(value, parts)
        elif isinstance(value, list):
            batch[field.name] = [
                old if (new := parts.get(at)) is None else new[0] for at, old in enumerate(value)
            ]
            for at, new in parts.items():
                if new is None:
                    batch[field.name][at].fill_(field.blank)
        else:
            if field.mode == "pad":
                value = _with_sizes(field, batch, changes)
            batch[field.name] = _written(field, value, parts)
    for at, new in changes.items():
        batch[VALID][at] = new is not None
    return batch


def _with_rows(value: Ragged, parts: Mapping[int, Ragged | None]) -> Ragged:
    rows = value.to_list()
    for at, new in parts.items():
        rows[at] = value.values[:0] if new is None else new.values
    return Ragged.from_list(rows)


def _with_masks(field: FieldLayout, batch: dict[str, Any], changes: Mapping[int, Raw | None]) -> Any:
    """Return the masks of each sample's objects, none without a sample, and update sizes in place."""
    value = batch[field.name]
    samples = list(value)
    for at, new in changes.items():
        samples[at] = samples[at][:0] if new is None else new[field.name][0]
    if isinstance(value, list):
        return samples
    sizes = batch[sizes_name(field.name)]
    for at, new in changes.items():
        if new is not None:
            sizes[at] = new[sizes_name(field.name)][0]
    height, width = field.padded_size(sizes.numpy())
    padded = []
    for masks in samples:
        room = torch.zeros(len(masks), height, width, dtype=masks.dtype, device="cpu")
        rows, columns = min(height, masks.shape[1]), min(width, masks.shape[2])
        room[:, :rows, :columns] = masks[:, :rows, :columns]
        padded.append(room)
    return Ragged.from_list(padded)


def _with_sizes(field: FieldLayout, batch: dict[str, Any], changes: Mapping[int, Raw | None]) -> torch.Tensor:
    """Return the pictures, with room for the new ones, and update sizes in place."""
    name = sizes_name(field.name)
    sizes = batch[name]
    for at, new in changes.items():
        if new is not None:
            sizes[at] = new[name][0]
    height, width = field.padded_size(sizes.numpy())
    old: torch.Tensor = batch[field.name]
    if old.shape[-2:] == (height, width):
        return old
    room = torch.full((*old.shape[:-2], height, width), field.blank, dtype=old.dtype, device="cpu")
    rows, columns = min(height, old.shape[-2]), min(width, old.shape[-1])
    room[..., :rows, :columns] = old[..., :rows, :columns]
    return room


def _written(
    field: FieldLayout, value: torch.Tensor, parts: Mapping[int, torch.Tensor | None]
) -> torch.Tensor:
    for at, new in parts.items():
        value[at] = field.blank
        if new is None:
            continue
        if field.form == "picture":
            height, width = new.shape[-2:]
            value[at, ..., :height, :width] = new[0]
        else:
            value[at] = new[0]
    return value
