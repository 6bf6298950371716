"""Which records the doctor reads to measure storage, of sets from which samples were dropped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from growing_sets import Grown

from fastload.diagnose.storage import _ids, _ranges
from fastload.shard.dataset import PackedFiles


def test_dropped_records_are_not_read(tmp_path: Path) -> None:
    """Ids are counted through the parts, and a range is where its sample's bytes lie."""
    grown, other = Grown.begun(tmp_path / "set", 12), Grown.begun(tmp_path / "other", 7)
    grown.append(4)
    grown.drop([0, 5, 15])
    parts = (PackedFiles(grown.folder), PackedFiles(other.folder))
    subject: Any = SimpleNamespace(parts=parts)
    left = [(0, i) for i in range(16) if i not in (0, 5, 15)] + [(1, i) for i in range(7)]
    ids = _ids(subject)
    assert ids.tolist() == [16 * part + i for part, i in left]
    order = np.random.default_rng(0).permutation(len(left))
    for (path, offset, length), place in zip(_ranges(subject, ids[order]), order.tolist(), strict=True):
        part, sample = left[place]
        data = path.read_bytes()[offset : offset + length]
        assert data == parts[part].stored(sample)
