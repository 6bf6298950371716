"""What is asked for of a store, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_server import Fault, FaultServer, Request, Rule
from plain_pack import plain_pack
from quick_stores import quick

from fastload import DataLoader, PackedDataset
from fastload._native import _C
from fastload.errors import SampleError

BATCH = 32
LATENCY = 0.2


def raw_set(folder: Path, count: int, side: int) -> PackedDataset:
    """Raw pictures whose labels are their numbers."""
    length = 3 * side * side
    noise = np.random.default_rng(0).integers(0, 256, count * length, dtype=np.uint8).tobytes()
    blobs = [noise[at : at + length] for at in range(0, len(noise), length)]
    return plain_pack(folder, blobs, list(range(count)), raw_size=(side, side))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """Whose records are too long to be read along."""
    return raw_set(tmp_path_factory.mktemp("large"), 300, side=80)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """Whose records are not."""
    return raw_set(tmp_path_factory.mktemp("tiny"), 2_000, side=10)


def far_loader(local: PackedDataset, shelf: FaultServer, shuffle: Any, **changes: float) -> Any:
    """A loader over the set, whose records are in the store; and that."""
    store = _C.RemoteStore(shelf.url, "s3://set", signing="none", schedule=quick(**changes))
    dataset = PackedDataset(local.folder)
    shards = [(shard.file, shard.size, "") for shard in dataset.manifest.shards]
    dataset.reader = _C.Reader(dataset.index, shards, store)
    return DataLoader(dataset, batch_size=BATCH, num_workers=2, seed=1, shuffle=shuffle), store


def asked_for(request: Request, offsets: set[int]) -> set[int]:
    """Those of the offsets that the request's range holds."""
    first, last = request.headers["range"].removeprefix("bytes=").split("-")
    return {offset for offset in offsets if int(first) <= offset <= int(last)}


@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_the_first_batch_has_the_line_for_itself(large: PackedDataset, shuffle: bool | str) -> None:
    """What comes behind it is asked for when it is there."""
    with FaultServer(folder=large.folder, latency=LATENCY) as shelf:
        made, store = far_loader(large, shelf, shuffle)
        with made:
            batches = iter(made)
            labels = next(batches)[1].tolist()
            next(batches)
            requests = sorted(shelf.requests, key=lambda request: request.time)
        store.close()
    begins = {int(large.records[sample]["offset"]) for sample in labels}
    first = next(at for at, request in enumerate(requests) if not asked_for(request, begins))
    assert set().union(*(asked_for(request, begins) for request in requests[:first])) == begins
    # A decoding thread may ask for what it needs just when that is asked for ahead, too.
    assert first <= BATCH + 2
    assert requests[first].time - requests[0].time >= LATENCY


@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_tiny_records_are_asked_for_together(tiny: PackedDataset, shuffle: bool | str) -> None:
    """Also where those between them are not needed yet."""
    with FaultServer(folder=tiny.folder, latency=LATENCY) as shelf:
        made, store = far_loader(tiny, shelf, shuffle)
        with made, DataLoader(tiny, batch_size=BATCH, num_workers=2, seed=1, shuffle=shuffle) as local:
            for (images, labels), (others, same) in zip(made, local, strict=True):
                np.testing.assert_array_equal(images, others)
                np.testing.assert_array_equal(labels, same)
            read = made.stats()["read_ahead"]
        store.close()
    assert read["ahead"] > 1_000
    assert read["requests"] < read["ahead"] / 8


def test_what_was_tried_to_the_end_is_not_tried_again(tiny: PackedDataset) -> None:
    """What reading ahead could not have in all its time is an error at once when it is decoded."""
    with FaultServer(folder=tiny.folder) as shelf:
        shelf.rules.append(Rule(Fault(status=500)))
        made, store = far_loader(tiny, shelf, False, patience=300, longest_pause=50)
        with made, pytest.raises(SampleError, match="data.bin.*It was tried [0-9]+ times in [0-9.]+ s"):
            next(iter(made))
        failed = store.counts()["failed"]
        store.close()
    assert 1 <= failed <= 4  # the batch's range, and what its threads came to before it was asked for
