"""The unit of work is a sample: one slow sample stalls nobody, and the order does not change."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from plain_engine import PlainSlot, plain_engine
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.backends import native as engines

SIDE = 150  # over 64 KiB a sample: smaller ones are claimed in groups
COUNT = 200  # samples
SLOW = 5  # the one that waits to be let go


class Gate:
    """A decoder in whose hands one sample stays until it is opened. Counts what passes meanwhile."""

    def __init__(self, slow: bytes) -> None:
        self.slow = slow
        self.opened = threading.Event()
        self.entered = threading.Event()
        self.passed = 0
        self.lock = threading.Lock()

    def __call__(self, data: bytes, max_pixels: int = 0) -> np.ndarray[Any, Any]:
        if bytes(data) == self.slow:
            self.entered.set()
            assert self.opened.wait(60)
        else:
            with self.lock:
                self.passed += not self.opened.is_set()
        return np.zeros((SIDE, SIDE, 3), np.uint8)


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    """GIFs, which the core gives to the fallback decoder; number 5 is another picture than the rest."""
    quick, slow = (encoded(picture(seed, SIDE, SIDE), "GIF") for seed in (0, 1))
    return [slow if i == SLOW else quick for i in range(COUNT)]


@pytest.fixture(scope="module")
def dataset(blobs: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    return plain_pack(tmp_path_factory.mktemp("slow"), blobs, range(COUNT))


def test_all_other_samples_of_all_batches_are_done_meanwhile(
    dataset: PackedDataset, blobs: list[bytes]
) -> None:
    """With two threads: one is in the slow sample, the other does the 199 others."""
    gate = Gate(blobs[SLOW])
    engine = plain_engine(dataset.sources, SIDE, SIDE, threads=2, max_pixels=100_000, fallback=gate)
    size, tickets = 20, []
    for first in range(0, COUNT, size):
        tickets.append(PlainSlot(size, 3 * SIDE * SIDE).submit(engine, range(first, first + size)))
    for ticket in tickets[1:]:
        assert engine.wait(ticket, 60.0)
    assert gate.entered.is_set()
    assert not engine.wait(tickets[0], 0.0)
    assert gate.passed == COUNT - 1
    gate.opened.set()
    assert engine.wait(tickets[0], 60.0)
    assert all(engine.collect(ticket) == [] for ticket in tickets)
    engine.close()


@pytest.mark.parametrize("ahead", [1, 4])
def test_the_loader_decodes_all_it_may_while_it_waits(
    dataset: PackedDataset, blobs: list[bytes], ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch and ``prefetch_factor`` more; then they come in order."""
    gate = Gate(blobs[SLOW])
    monkeypatch.setattr(engines, "decode_with_pil", gate)
    loader = DataLoader(dataset, 20, num_workers=2, prefetch_factor=ahead, transform=T.CenterCrop(SIDE))
    wanted = (ahead + 1) * 20 - 1

    def open_when_done() -> None:
        assert gate.entered.wait(60)
        while gate.passed < wanted:
            threading.Event().wait(0.001)
        gate.opened.set()

    opener = threading.Thread(target=open_when_done)
    opener.start()
    assert [int(label) for _, labels in loader for label in labels] == list(range(COUNT))
    opener.join()
    assert gate.passed == wanted
    loader.close()


def test_one_thread_is_enough_to_get_through(
    dataset: PackedDataset, blobs: list[bytes], tmp_path: Path
) -> None:
    gate = Gate(blobs[SLOW])
    gate.opened.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "decode_with_pil", gate)
        loader = DataLoader(dataset, 20, num_workers=1, transform=T.CenterCrop(SIDE))
        assert sum(len(labels) for _, labels in loader) == COUNT
        loader.close()
