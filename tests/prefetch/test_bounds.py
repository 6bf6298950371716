"""Options at their ends: a huge prefetch_factor, a tiny timeout, too many threads, a bad log."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import DataLoader, OnError, errors
from fastload import transforms as T
from fastload.backends import native as engines
from fastload.prefetch import feeder

CROP = T.RandomResizedCrop(16)


@pytest.mark.parametrize("depth", [1_000, 1_000_000])
def test_a_huge_prefetch_factor_looks_no_further_than_there_is_work(folder: Path, depth: int) -> None:
    loader = DataLoader(folder, 4, seed=1, num_workers=1, transform=CROP, prefetch_factor=depth)
    iterator = iter(loader)
    next(iterator)
    queued = len(loader._epochs.backend.feeder._queue)  # type: ignore[union-attr]
    assert 13 + 12 <= queued <= 13 + 12 + 256  # this epoch and the next, or enough of many short ones
    assert sum(1 for _ in iterator) == 12
    loader.close()


def test_a_timeout_below_the_poll_fires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fired = threading.Event()

    def timed_out(text: str) -> errors.NotDelivered:
        fired.set()
        return errors.NotDelivered(text)

    def slow(data: bytes, max_pixels: int) -> np.ndarray[Any, Any]:
        assert fired.wait(60)
        return np.zeros((70, 70, 3), np.uint8)

    monkeypatch.setattr(engines, "decode_with_pil", slow)
    monkeypatch.setattr(feeder, "NotDelivered", timed_out)
    dataset = plain_pack(tmp_path, [encoded(picture(i, 70, 70), "GIF") for i in range(4)], range(4))
    loader = DataLoader(dataset, 4, num_workers=1, transform=CROP, timeout=1e-9)
    with pytest.raises(RuntimeError, match="timed out after 1e-09 seconds"):
        next(iter(loader))
    assert fired.is_set()
    loader.close()


def test_too_many_threads_are_named_once(folder: Path) -> None:
    loader = DataLoader(folder, 4, num_workers=10**6, transform=CROP)
    with pytest.raises(ValueError, match=r"must be 1 to 4096\. Found: 1000000\.$"):
        next(iter(loader))


def test_a_log_that_cannot_be_written_is_an_error_before_the_first_batch(
    folder: Path, tmp_path: Path
) -> None:
    for path in (tmp_path / "missing" / "log.jsonl", tmp_path):
        loader = DataLoader(folder, 4, transform=CROP, on_error=OnError("skip", log=path))
        with pytest.raises(OSError, match="OnError.log cannot be appended to"):
            next(iter(loader))
        loader.close()
    log = tmp_path / "log.jsonl"
    with DataLoader(folder, 4, transform=CROP, on_error=OnError("skip", log=log)) as loader:
        next(iter(loader))
    assert log.read_text() == ""
