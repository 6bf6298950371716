"""Engines of any fields for tests, and their batches taken apart: slots without a layout in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C

ALIGN = 64
TIMEOUT = 60.0


@dataclass
class Wanted:
    """A field of a job, and how its part of a batch is read.

    Args:
        plan: arguments of ``_C.FieldPlan``.
        dtype: of a number.
        shape: of a value or a row; of a picture the channels.
        mode: of pictures that differ: "pad" or "list".
    """

    plan: dict[str, Any]
    dtype: Any = np.uint8
    shape: tuple[int, ...] = ()
    mode: str = "stack"


@dataclass
class Job:
    """An engine of some fields."""

    sources: Any
    parts: list[tuple[list[Any], ...]]  # readers of further streams, columns; and lists of pictures
    views: list[tuple[dict[str, Any], int, int]]  # geometry, width, height
    fields: dict[str, Wanted]
    seed: int = 5
    threads: int = 2
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        views = [_C.ViewPlan(_C.GeometrySpec(**spec), width, height) for spec, width, height in self.views]
        plans = [_C.FieldPlan(**wanted.plan) for wanted in self.fields.values()]
        limits = {"max_pixels": 10**8, "fallback": None, "threads": self.threads, **self.more}
        parts = [(*given, *[[]] * (3 - len(given))) for given in self.parts]
        self.engine = _C.Engine(self.sources, parts, views, plans, seed=self.seed, **limits)

    def batch(
        self, ids: Sequence[int], epoch: int = 0, draws: Any = None, garbage: int = 0xAB, partners: Any = None
    ) -> tuple[dict[str, Any], list[Any]]:
        """One batch: by field an array, or a list of one a sample; and its faults."""
        numbers = np.array(ids, np.int64)
        partners = None if partners is None else np.array(partners, np.int64)
        drawn = None if draws is None else np.array(draws, np.uint32)
        measured = self.engine.measure(numbers, drawn, epoch, partners)
        places, cuts, end = [], {}, 0
        for (name, wanted), known in zip(self.fields.items(), measured, strict=True):
            place, cut, size = self._place(wanted, known, len(ids), end)
            places.append(place)
            cuts[name] = cut
            end = -(-(end + size) // ALIGN) * ALIGN
        memory = np.full(end, garbage, np.uint8)
        ticket = self.engine.submit(memory, places, numbers, drawn, epoch, None, partners)
        assert self.engine.wait(ticket, TIMEOUT)
        faults = self.engine.collect(ticket)
        return {name: cut(memory) for name, cut in cuts.items()}, faults

    def _place(self, wanted: Wanted, known: Any, count: int, begin: int) -> tuple[Any, Any, int]:
        item = np.dtype(wanted.dtype).itemsize
        form, steps = wanted.plan["form"], wanted.plan.get("steps", ())
        steps = (len(steps),) if steps else ()
        if form in ("ragged", "points"):
            width = wanted.plan["width"]
            ends = known * width

            def rows(memory: Any) -> list[Any]:
                data = memory[begin:]
                return [
                    data[a:b].view(wanted.dtype).reshape(-1, *wanted.shape)
                    for a, b in pairwise(ends.tolist())
                ]

            return (begin, known), rows, int(ends[-1])
        if form != "picture":
            assert known is None
            stride = max(item * int(np.prod(wanted.shape, dtype=int)) * (steps or (1,))[0], 1)
            shape = (count, *steps, *wanted.shape)

            def fixed(memory: Any) -> Any:
                return memory[begin : begin + count * stride].view(wanted.dtype).reshape(shape)

            return (begin, stride), fixed, count * stride
        return self._picture(wanted, known, count, begin, item)

    def _picture(self, wanted: Wanted, known: Any, count: int, begin: int, item: int) -> tuple[Any, Any, int]:
        pixel = item * int(np.prod(wanted.shape, dtype=int))

        def read(memory: npt.NDArray[np.uint8], at: int, height: int, width: int) -> Any:
            part = memory[at : at + height * width * pixel].view(wanted.dtype)
            return part.reshape(height, width, *wanted.shape)

        if known is None:
            _, width, height = self.views[wanted.plan.get("view", 0)]
        else:
            height, width = known.max(0).tolist() if count else (0, 0)
        if wanted.mode == "list":
            lengths = -(-(known[:, 0] * known[:, 1] * pixel) // ALIGN) * ALIGN
            offsets = np.cumsum(lengths) - lengths

            def pictures(memory: Any) -> list[Any]:
                return [
                    read(memory, begin + int(at), *size)
                    for at, size in zip(offsets, known.tolist(), strict=True)
                ]

            return (begin, offsets, known), pictures, int(lengths.sum())
        if wanted.mode == "pad":
            height, width = height + 3, width + 5
        steps = wanted.plan.get("steps")
        frames, frame = len(steps or [0]), height * width * pixel
        stride = frames * frame

        def stack(memory: Any) -> Any:
            found = [read(memory, begin + i * frame, height, width) for i in range(count * frames)]
            if not found:
                return np.zeros((0, height, width, *wanted.shape), wanted.dtype)
            stacked = np.stack(found)
            return stacked.reshape(count, frames, *stacked.shape[1:]) if steps else stacked

        if wanted.mode == "pad":
            return (begin, stride, width * pixel, height, width), stack, count * stride
        return (begin, stride), stack, count * stride
