"""Batches of values with different numbers of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

_SIGNED = {
    getattr(torch, f"uint{bits}"): getattr(torch, f"int{bits}")
    for bits in (16, 32, 64)
    if hasattr(torch, f"uint{bits}")  # torch 2.3 and newer
}


class Ragged:
    """The rows of all samples of a batch, sample by sample, and where each one's begin.

    Sample ``i`` has the rows ``values[offsets[i]:offsets[i + 1]]``; a sample may have none::

        for boxes in batch["boxes"]:        # (n, 4), n differs
            ...
        padded = batch["boxes"].to_padded(0.0)          # (batch, longest, 4)
        mask = torch.arange(padded.shape[1]) < batch["boxes"].lengths[:, None]

    ``torch.utils.data.default_collate`` joins several into one. They can be pickled, moved (``to``) and
    pinned (``pin_memory``), as frameworks expect of what is in a batch.

    Args:
        values: (rows, ...) the rows of all samples; any dtype.
        offsets: (samples + 1,) int64 on the same device: 0 first, never falling, ``rows`` last. They are
            only checked on the CPU: elsewhere the check would wait for the device.

    Raises:
        TypeError, ValueError: they are something else.
    """

    __slots__ = ("__weakref__", "_host", "_offsets", "_values")
    __hash__ = None  # type: ignore[assignment]  # its tensors may change

    def __init__(self, values: torch.Tensor, offsets: torch.Tensor) -> None:
        _check(values, offsets)
        self._values = values
        self._offsets = offsets
        self._host: torch.Tensor | None = None

    @classmethod
    def trusted(cls, values: torch.Tensor, offsets: torch.Tensor, host: torch.Tensor | None = None) -> Ragged:
        """Return one without checks, from parts that are known to fit.

        Args:
            values, offsets: see above.
            host: the offsets on the CPU, if ``offsets`` are on a device: access to a sample's rows then
                does not wait for it.
        """
        ragged = object.__new__(cls)
        ragged._values = values
        ragged._offsets = offsets
        ragged._host = host
        return ragged

    @classmethod
    def from_list(cls, rows: Sequence[torch.Tensor]) -> Ragged:
        """Return one from each sample's rows, (n, ...), which only differ in ``n``, and have one dtype.

        Raises:
            ValueError: there are no samples, or they do not fit together.
        """
        if not rows:
            raise ValueError("Ragged.from_list needs the rows of at least one sample. Found: none.")
        first = rows[0]
        for number, part in enumerate(rows):
            if part.dim() == 0 or part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
                raise ValueError(
                    f"Rows must be alike. Found: {_shape(part)} {part.dtype} for sample {number}, "
                    f"{_shape(first)} {first.dtype} for sample 0."
                )
        lengths = torch.tensor([len(part) for part in rows], dtype=torch.int64, device="cpu")
        return cls.trusted(torch.cat(list(rows)), _ends(lengths).to(first.device))

    # ---- Parts --------------------------------------------------------------------------------

    @property
    def values(self) -> torch.Tensor:
        """(rows, ...) the rows of all samples."""
        return self._values

    @property
    def offsets(self) -> torch.Tensor:
        """(samples + 1,) int64: where each sample's rows begin, and where the last one's end."""
        return self._offsets

    @property
    def lengths(self) -> torch.Tensor:
        """(samples,) int64: the number of rows of each sample."""
        return self._offsets.diff()

    def counts(self) -> list[int]:
        """Return the number of rows of each sample, as integers."""
        ends: list[int] = self._ends_on_host().tolist()
        return [end - begin for begin, end in pairwise(ends)]

    def _ends_on_host(self) -> torch.Tensor:
        return self._offsets if self._host is None else self._host

    def _known(self) -> torch.Tensor | None:
        """Return the offsets on the CPU, if they are known."""
        return self._offsets if self._host is None and self.device.type == "cpu" else self._host

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self._values.dtype

    @property
    def device(self) -> torch.device:
        """The device of values and offsets."""
        return self._values.device

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._offsets) - 1

    def __repr__(self) -> str:
        place = "" if self.device.type == "cpu" else f", device='{self.device}'"
        rows = f"{len(self)} samples, values {_shape(self._values)} {self.dtype}{place}"
        return f"Ragged({rows})"

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same rows for the same samples, of one dtype (NaN equals nothing)."""
        if not isinstance(other, Ragged):
            return NotImplemented
        return (
            self.dtype == other.dtype
            and torch.equal(self._offsets, other._offsets)
            and torch.equal(self._values, other._values)
        )

    def __getstate__(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._values, self._offsets

    def __setstate__(self, state: tuple[torch.Tensor, torch.Tensor]) -> None:
        self._values, self._offsets = state
        self._host = None

    # ---- Samples ------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: int) -> torch.Tensor: ...
    @overload
    def __getitem__(self, index: slice | torch.Tensor | Sequence[int]) -> Ragged: ...
    def __getitem__(self, index: Any) -> Any:
        """Return one sample's rows, a view, for an integer; for several samples a Ragged.

        Args:
            index: an integer, negative from the end; a slice; samples as a list or tensor of integers; or a
                (samples,) bool tensor.

        Raises:
            IndexError, TypeError: as a tensor's.
        """
        if isinstance(index, slice):
            return self._slice(index)
        if isinstance(index, (list, tuple)) or (isinstance(index, torch.Tensor) and index.dim() == 1):
            return self._chosen(torch.as_tensor(index, device=self.device))
        number = index.__index__()
        if not -len(self) <= number < len(self):
            raise IndexError(f"index {number} is out of range for {len(self)} samples.")
        first = number % len(self)
        begin, end = self._ends_on_host()[first : first + 2].tolist()
        return self._values[begin:end]

    def _slice(self, index: slice) -> Ragged:
        numbers = range(*index.indices(len(self)))
        if numbers.step != 1:
            return self._chosen(torch.tensor(numbers, dtype=torch.int64, device=self.device))
        stop = max(numbers.start, numbers.stop)
        ends = self._offsets[numbers.start : stop + 1]
        known = self._ends_on_host()[numbers.start : stop + 1]
        begin, end = known[[0, -1]].tolist()
        host = None if self._host is None else known - begin
        return Ragged.trusted(self._values[begin:end], ends - begin, host)

    def _chosen(self, index: torch.Tensor) -> Ragged:
        if index.numel() == 0:
            index = index.to(torch.int64)
        elif index.dtype == torch.bool and len(index) != len(self):
            raise IndexError(f"{len(index)} bools for {len(self)} samples.")
        begins, lengths = self._offsets[:-1][index], self.lengths[index]
        ends = _ends(lengths)
        rows = torch.arange(int(ends[-1]), device=self.device)
        if self.device.type == "cpu":
            # torch.repeat_interleave wakes all of torch's threads, even for small tensors, and they then
            # spin for a while on cores that decode.
            rows += torch.from_numpy(np.repeat((begins - ends[:-1]).numpy(), lengths.numpy()))
        else:
            rows += torch.repeat_interleave(begins - ends[:-1], lengths)
        if self.dtype in _SIGNED:  # torch 2.9 cannot index unsigned numbers
            return Ragged.trusted(self._values.view(_SIGNED[self.dtype])[rows].view(self.dtype), ends)
        return Ragged.trusted(self._values[rows], ends)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield each sample's rows, (n, ...), as views."""
        return iter(self.to_list())

    def to_list(self) -> list[torch.Tensor]:
        """Return each sample's rows, (n, ...), as views."""
        return list(torch.split(self._values, self.counts()))

    def to_padded(self, value: float = 0.0, max_rows: int | None = None) -> torch.Tensor:
        """Return (samples, longest, ...), with shorter samples filled up with ``value``.

        Args:
            value: fills the rows that samples do not have.
            max_rows: rows of the result, for a constant shape; None: those of the longest sample.

        Raises:
            ValueError: a sample has more than ``max_rows``.
        """
        lengths = self.lengths
        longest = int(lengths.max()) if len(self) else 0
        if max_rows is not None and longest > max_rows:
            raise ValueError(
                f"A sample has {longest} rows, and max_rows is {max_rows}: nothing is cut off silently. "
                "Raise max_rows, or leave rows out of the samples first."
            )
        shape = (len(self), longest if max_rows is None else max_rows, *self._values.shape[1:])
        padded = torch.full(shape, value, dtype=self.dtype, device=self.device)
        real = torch.arange(shape[1], device=self.device) < lengths.unsqueeze(1)
        if self.dtype in _SIGNED:  # torch cannot write unsigned numbers through a mask
            padded.view(_SIGNED[self.dtype])[real] = self._values.view(_SIGNED[self.dtype])
        else:
            padded[real] = self._values
        return padded

    def to_nested(self) -> torch.Tensor:
        """Return torch's nested tensor of jagged layout, (samples, j, ...), on the same memory."""
        nested: torch.Tensor = torch.nested.nested_tensor_from_jagged(self._values, self._offsets)
        return nested

    def mapped(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Ragged:
        """Return one with ``function`` applied to values and offsets; it must keep their numbers."""
        return Ragged.trusted(function(self._values), function(self._offsets), self._known())

    # ---- Memory -------------------------------------------------------------------------------

    def to(self, *arguments: Any, **named: Any) -> Ragged:
        """Convert the values as ``torch.Tensor.to`` does; offsets follow to the device, as int64."""
        values = self._values.to(*arguments, **named)
        non_blocking = bool(named.get("non_blocking", False))
        if values is self._values:
            return self
        offsets = self._offsets.to(values.device, non_blocking=non_blocking)
        return Ragged.trusted(values, offsets, self._known())

    def pin_memory(self, device: Any = None) -> Ragged:
        """Return one in pinned memory, as ``torch.Tensor.pin_memory`` does."""
        pinned = () if device is None else (device,)
        return Ragged.trusted(self._values.pin_memory(*pinned), self._offsets.pin_memory(*pinned))

    def is_pinned(self) -> bool:
        """Return whether the values are in pinned memory."""
        return bool(self._values.is_pinned())


def _ends(lengths: torch.Tensor) -> torch.Tensor:
    """Return (n + 1,) offsets of rows of these lengths."""
    ends = torch.zeros(len(lengths) + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=ends[1:])
    return ends


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))


def _check(values: torch.Tensor, offsets: torch.Tensor) -> None:
    if not isinstance(values, torch.Tensor) or not isinstance(offsets, torch.Tensor):
        raise TypeError(
            f"Ragged takes two tensors. Found: {type(values).__name__} and {type(offsets).__name__}."
        )
    if values.dim() == 0:
        raise ValueError("values must have a first dimension, the rows. Found: a tensor without dimensions.")
    if offsets.dim() != 1 or not len(offsets) or offsets.dtype != torch.int64:
        raise ValueError(
            "offsets must be int64 of shape (samples + 1,), also for no samples. "
            f"Found: {_shape(offsets)} {offsets.dtype}."
        )
    if offsets.device != values.device:
        raise ValueError(
            f"values and offsets must be on one device. Found: {values.device} and {offsets.device}."
        )
    if offsets.device.type != "cpu":
        return
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0 or last != len(values) or bool((offsets.diff() < 0).any()):
        raise ValueError(
            f"offsets must begin with 0, never fall, and end with {len(values)}, the number of rows. "
            f"Found: {first} first, {last} last{'' if (offsets.diff() >= 0).all() else ', and a fall'}."
        )


def _joined(batch: Sequence[Ragged], *, collate_fn_map: Any = None) -> Ragged:
    """Join several into one with the samples of all, in order, for ``default_collate``."""
    lengths = torch.cat([part.lengths for part in batch])
    return Ragged.trusted(torch.cat([part.values for part in batch]), _ends(lengths))


default_collate_fn_map[Ragged] = _joined
