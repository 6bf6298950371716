"""Damaged containers given to ``fastload index``: an error or the truth, never a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from attack_rules import Rule, breaks
from pack_trees import encoded, environment, make_tree

from fastload.errors import FormatError
from fastload.packing import PackOptions, pack
from fastload.shard.hdf5 import REFERENCE, heap_ranges

DAMAGED = Rule(
    "SECURITY.md",
    "What is trusted",
    "it must not crash the process, corrupt memory, run code, or take memory without a bound",
)
HEAP = Rule("FORMAT.md", "HDF5: `NAME-00000-of-00008.h5`", "a row is one piece of the file there, too.")

MUTANTS = 60
DRIVER = """
import json, sys
from pathlib import Path
import numpy as np
from fastload.errors import FastloadError
from fastload.packing.foreign import IndexOptions, index_files
import os
os.fsync = lambda descriptor: None
source, folder, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
data, rng, outcomes = source.read_bytes(), np.random.default_rng(7), {"error": 0, "read": 0}
payload = np.load(folder / "payload.npy")
target = folder / source.name
for number in range(count):
    mutant = bytearray(data)
    for at in rng.choice(np.flatnonzero(~payload), int(rng.integers(1, 6))):
        mutant[at] = int(rng.integers(0, 256))
    target.write_bytes(mutant)
    try:
        index_files([target], folder / f"out{number}", IndexOptions(on_error="skip"))
        outcomes["read"] += 1
    except FastloadError:
        outcomes["error"] += 1
print(json.dumps(outcomes))
"""


@breaks(DAMAGED)
@pytest.mark.parametrize("format_name", ["arrow", "lmdb", "hdf5"])
def test_mutants_of_the_structure(tmp_path: Path, format_name: str) -> None:
    if format_name == "lmdb":
        pytest.importorskip("lmdb.verify")
    make_tree(tmp_path / "source", {f"c/{i:02d}.jpg": encoded(i) for i in range(20)})
    [result] = pack(tmp_path / "source", tmp_path / "set", PackOptions(format=format_name, num_proc=1))
    shard = tmp_path / "set" / result.manifest.shards[0].file
    records = np.frombuffer((tmp_path / "set" / "index.fli").read_bytes(), np.dtype("<u8,<u4,V20"), 20, 4096)
    payload = np.zeros(shard.stat().st_size, bool)
    for offset, length, _ in records:
        payload[int(offset) : int(offset) + int(length)] = True
    np.save(tmp_path / "payload.npy", payload)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, shard, tmp_path, str(MUTANTS)],
        capture_output=True, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode} (negative: a signal)\n{done.stderr[-2000:]}"
    outcomes = json.loads(done.stdout)
    assert outcomes["error"] + outcomes["read"] == MUTANTS


def references(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array(list(rows), REFERENCE)


@pytest.fixture
def heap(tmp_path: Path) -> tuple[Path, int]:
    """A file with one global heap collection of three objects, and the collection's address."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        rows = file.create_dataset("image", (3,), h5py.vlen_dtype(np.uint8))
        for i in range(3):
            rows[i] = np.full(100 + i, i, np.uint8)
    return tmp_path / "a.h5", (tmp_path / "a.h5").read_bytes().index(b"GCOL")


def test_heap_of_the_fixture(heap: tuple[Path, int]) -> None:
    path, collection = heap
    offsets, lengths = heap_ranges(
        path, references((100, collection, 1), (0, 2**64 - 1, 9), (102, collection, 3))
    )
    data = path.read_bytes()
    assert data[int(offsets[0]) : int(offsets[0]) + 100] == bytes(100)
    assert data[int(offsets[2]) : int(offsets[2]) + 102] == bytes([2]) * 102
    assert lengths.tolist() == [100, 0, 102]


@breaks(HEAP)
@pytest.mark.parametrize(
    ("length", "shift", "number"),
    [
        (100, 1, 1), (100, 10**9, 1), (100, 2**63, 1), (100, -(2**20), 1), (100, 0, 9), (100, 0, 0),
        (109, 0, 1), (2**32 - 1, 0, 1), (100, 0, 2**32 - 1), (100, 16, 1),
    ],
)  # fmt: skip
def test_references_that_lead_elsewhere(heap: tuple[Path, int], length: int, shift: int, number: int) -> None:
    path, collection = heap
    with pytest.raises(FormatError, match="points to no object"):
        heap_ranges(path, references((length, (collection + shift) % 2**64, number)))


@breaks(HEAP)
@pytest.mark.parametrize("size", [0, 1, 15, 2**31, 2**63, 2**64 - 1, 2**64 - 8])
@pytest.mark.parametrize("field", [8, 24])  # the collection's size, the first object's
def test_heap_sizes_that_lie(heap: tuple[Path, int], size: int, field: int) -> None:
    path, collection = heap
    data = bytearray(path.read_bytes())
    data[collection + field : collection + field + 8] = size.to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(FormatError, match="points to no object"):
        heap_ranges(path, references((100, collection, 1), (101, collection, 2)))
