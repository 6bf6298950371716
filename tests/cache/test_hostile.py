"""Headers that lie, with checksums that are right: a file is refused, or whatever it gives lies within it."""

from __future__ import annotations

import numpy as np
import pytest
from attack_rules import Rule, breaks
from cache_folder import OpenFolder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload._native import _C
from fastload.cache.files import attach, create
from fastload.cache.layout import ENTRY, HEADER, encoded
from fastload.errors import CacheError

HEADER_RULE = Rule(
    "FORMAT.md",
    "Header",
    "that the file and each stripe have the size that follows from it, and that every region lies inside",
)
PLACE_RULE = Rule(
    "FORMAT.md",
    "Table",
    "A reader MUST check `place_crc` and that the place lies in the records' region before it reads "
    "or writes there",
)

NAME = "set.flc"
COUNT = 50
BLOBS = [bytes([i]) * (i + 1) for i in range(COUNT)]
FIELDS = [
    name for name in HEADER.names or () if HEADER[name].kind == "u" and name not in ("major", "header_bytes")
]
VALUES = st.one_of(
    st.integers(0, 20_000),
    st.sampled_from([2**64 - 1, 2**63, 2**64 - 32, 2**32, 8192, 12288, 16384]),
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    return plain_pack(tmp_path_factory.mktemp("set"), BLOBS, probe=False)


@pytest.fixture
def whole(memory: OpenFolder, dataset: PackedDataset) -> bytes:
    """A cache file that has all records."""
    cache = create(memory, NAME, encoded(dataset), 1 << 30)
    for sample, blob in enumerate(BLOBS):
        data = np.frombuffer(blob, np.uint8)
        cache.store(sample, data, _C.crc32c(data))
    return (memory.path / NAME).read_bytes()


def write(memory: OpenFolder, file: bytearray, header: np.ndarray) -> None:
    file[: HEADER.itemsize] = header.tobytes()
    file[8188:8192] = _C.crc32c(np.frombuffer(file[:8188], np.uint8)).to_bytes(4, "little")
    (memory.path / NAME).write_bytes(file)


@breaks(HEADER_RULE)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=3))
def test_any_header(
    memory: OpenFolder, dataset: PackedDataset, whole: bytes, changes: dict[str, int]
) -> None:
    header = np.frombuffer(whole, HEADER, 1).copy()
    for name, value in changes.items():
        header[name] = value % 2 ** (8 * HEADER[name].itemsize)
    write(memory, bytearray(whole), header)
    try:
        cache = attach(memory, NAME)
    except CacheError:
        return
    for sample in range(min(len(cache), 2 * COUNT)):
        found = cache.find(sample)
        assert found is None or found in whole
        cache.store(sample, np.zeros(1, np.uint8), 0)
    for table in (0, 1):
        begin, size = cache.copy_range(table)
        assert begin + size <= len(whole)
    try:
        used = PackedDataset(dataset.folder).with_caches([cache])
    except ValueError:
        return
    assert [used.read(sample) for sample in range(COUNT)] == BLOBS


@breaks(PLACE_RULE)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, COUNT - 1), VALUES, st.integers(0, 2**32 - 1)), min_size=1, max_size=20)
)
def test_any_place_with_a_checksum_that_is_right(
    memory: OpenFolder, dataset: PackedDataset, whole: bytes, places: list[tuple[int, int, int]]
) -> None:
    file = bytearray(whole)
    table = np.frombuffer(file, ENTRY, COUNT, 12288)
    for sample, offset, length in places:
        table["offset"][sample], table["length"][sample] = offset, length
    _C.seal_cache_places(table.view(np.uint8).reshape(-1, 32), 0)
    del table
    (memory.path / NAME).write_bytes(file)
    used = PackedDataset(dataset.folder).with_caches([attach(memory, NAME)])
    # Places that overlap are written one over the other: of such a file only its bounds are sure.
    for _ in range(2):
        assert [len(used.read(sample)) for sample in range(COUNT)] == [len(blob) for blob in BLOBS]
    for sample in range(COUNT):
        found = used.cache.find(sample)
        assert found is None or len(found) <= len(whole) - 12288
