"""A loop in a notebook's cell: the verdict names the cell's line."""

from __future__ import annotations

import linecache
from typing import Any

import fastload

CELL = """\
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            sum(number for number in range(100))
        return torch.zeros(2)

loader = DataLoader(Data(), 4, num_workers=1)
with fastload.diagnose(seconds=5) as d:
    for batch in loader:
        pass
"""


def test_the_line_of_a_cell_is_named() -> None:
    name = "<ipython-input-3-abc>"
    lines = CELL.splitlines(keepends=True)
    linecache.cache[name] = (len(CELL), None, lines, name)  # as IPython does
    names: dict[str, Any] = {"fastload": fastload, "__name__": "__main__"}
    try:
        exec(compile(CELL, name, "exec"), names)
        verdict = names["d"].verdict
    finally:
        del linecache.cache[name]
    assert verdict.limit == "python"
    assert verdict.place.spot.line in (10, 11, 12)
    assert "The Dataset's Python is the bottleneck: a notebook's cell, line 1" in str(verdict)
