"""``fastload.valid``: a batch without padding and without skipped samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

from fastload._native import _C
from fastload.sample.layout import PACK_OFFSETS, VALID
from fastload.sample.ragged import Ragged

Batch = TypeVar("Batch")
_LABELS = ("labels", "label", "targets", "target")


def valid(batch: Batch) -> Batch:
    """Return ``batch`` without the rows that are not samples: ranks' padding, and skipped bad samples.

    These rows have the label -100 (``fastload.IGNORE_LABEL``); losses ignore it, but metrics count them::

        for batch in val_loader:
            images, labels = fastload.valid(batch)
            accuracy.update(model(images), labels)

    ``pack_offsets`` of a :class:`fastload.PackingSampler` follow; a padded pack is then empty.
    Ranks may then have different numbers of rows, even none in an epoch's last batch.
    ``DataLoader(padding="drop")`` makes no padding in the first place.

    Args:
        batch: a dict of a set's fields; a tuple or list whose last tensor of shape (n,) holds the labels;
            or a mapping with the labels under "labels", "label", "targets" or "target". Rows are along the
            first dimension.

    Returns:
        The same kind of batch, or the same object if all rows stay. Lists with an entry for each row lose
        entries, too; anything of another length is kept as it is.

    Raises:
        TypeError: the batch has no labels.
    """
    by_field = isinstance(batch, Mapping) and isinstance(batch.get(VALID), torch.Tensor)
    kept: Any = batch[VALID] if by_field else _labels_of(batch) != _C.IGNORE_LABEL  # type: ignore[index]
    if bool(kept.all()):
        return batch
    if by_field:
        whole = getattr(batch, "of_pictures", ())  # see fastload.vlm.batches.PictureBatch
        rows = {
            name: value if name in whole else _field_rows(value, kept)
            for name, value in batch.items()  # type: ignore[attr-defined]
        }
        if PACK_OFFSETS in rows:
            rows[PACK_OFFSETS] = _moved_up(batch[PACK_OFFSETS], kept)  # type: ignore[index]
        return rows  # type: ignore[return-value]
    return _rows(batch, kept)  # type: ignore[no-any-return]


def _moved_up(offsets: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return where packs begin among the rows that stay."""
    before = torch.nn.functional.pad(kept.to(torch.int64).cumsum(0), (1, 0))
    return before.to(offsets.device)[offsets]


def _field_rows(value: Any, kept: torch.Tensor) -> Any:
    """Select rows of one field of a batch: a tensor, a Ragged, or a list with an entry per sample."""
    if isinstance(value, list) and len(value) == len(kept):
        return [one for one, keep in zip(value, kept.tolist(), strict=True) if keep]
    if isinstance(value, Ragged):
        return value[kept.to(value.device)]
    return _rows(value, kept)


def _labels_of(batch: Any) -> torch.Tensor:
    candidate: Any = None
    if isinstance(batch, Mapping):
        candidate = next((batch[name] for name in _LABELS if name in batch), None)
    elif isinstance(batch, (tuple, list)):
        candidate = next((part for part in reversed(batch) if _is_labels(part)), None)
    if not _is_labels(candidate):
        raise TypeError(
            "valid() looks for labels: a tensor of integers of shape (n,), last in a tuple or list or under "
            f"one of {', '.join(_LABELS)}. Found: {_described(batch)}."
        )
    labels: torch.Tensor = candidate
    return labels


def _is_labels(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.dim() == 1 and not part.dtype.is_floating_point


def _described(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a mapping of {sorted(map(str, batch))}"
    if isinstance(batch, (tuple, list)):
        return f"a {type(batch).__name__} of {', '.join(type(part).__name__ for part in batch) or 'nothing'}"
    return type(batch).__name__


def _rows(part: Any, kept: torch.Tensor) -> Any:
    if isinstance(part, torch.Tensor):
        return part[kept.to(part.device)] if part.dim() and len(part) == len(kept) else part
    if isinstance(part, Mapping):
        return {name: _rows(value, kept) for name, value in part.items()}
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*(_rows(value, kept) for value in part))
    if isinstance(part, (tuple, list)) and any(_holds_tensors(value) for value in part):
        return type(part)(_rows(value, kept) for value in part)
    if isinstance(part, (tuple, list)) and len(part) == len(kept):  # names, texts: one for each row
        return type(part)(value for value, keep in zip(part, kept.tolist(), strict=True) if keep)
    return part


def _holds_tensors(part: Any) -> bool:
    return isinstance(part, (torch.Tensor, Mapping, tuple, list))
