"""benchmarks/starvation/copies.py: copies hidden behind kernels, on traces made here."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from starvation import copies


def event(kind: str, name: str, begin: float, length: float) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": length}


def test_union_and_cover_equal_a_count_of_cells() -> None:
    chance = random.Random(0)
    for _ in range(200):
        spans, others = (
            [
                (begin := chance.randrange(40), begin + chance.randrange(12))
                for _ in range(chance.randrange(6))
            ]
            for _ in range(2)
        )
        cells = [{cell for begin, end in some for cell in range(begin, end)} for some in (spans, others)]
        assert copies.covered(spans, others) == len(cells[0] & cells[1])
        union = copies.merged(spans)
        assert sum(end - begin for begin, end in union) == len(cells[0])
        assert all(a[1] < b[0] for a, b in itertools.pairwise(union))


def test_only_copies_to_the_device_count_and_only_kernels_hide_them() -> None:
    trace = {
        "traceEvents": [
            {"ph": "M", "name": "process_name"},
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 1000),
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 0, 9000),
            event("cpu_op", "aten::conv2d", 0, 9000),
            event("kernel", "first", 250, 500),
            event("kernel", "second", 700, 100),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 5000, 1000),
        ]
    }
    assert copies.hidden_copies(trace, 4) == {"copy_ms": 0.5, "copy_hidden": pytest.approx(550 / 2000)}


def test_without_copies_there_is_no_share() -> None:
    assert copies.hidden_copies({"traceEvents": [event("kernel", "k", 0, 5)]}, 1) == {"copy_ms": 0.0}
