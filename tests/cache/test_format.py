"""A file that was made, read by nothing but FORMAT.md: struct, and the CRC one byte at a time."""

from __future__ import annotations

import itertools
import struct
import weakref

import numpy as np
import pytest
from cache_folder import OpenFolder
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload._native import _C
from fastload.cache.files import create
from fastload.cache.layout import Contents, encoded
from fastload.cache.opening import copy_table

COUNT = 100


def crc(data: bytes) -> int:
    return int(_C.crc32c_table(np.frombuffer(data, np.uint8)))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    rng = np.random.default_rng(0)
    blobs = [rng.bytes(1 + i * 10) for i in range(COUNT)]
    return plain_pack(tmp_path_factory.mktemp("a set with a näme"), blobs, probe=False)


@pytest.mark.parametrize("limit", [1 << 30, 60_000])
def test_a_file_is_what_the_format_says(memory: OpenFolder, dataset: PackedDataset, limit: int) -> None:
    cache = create(memory, "x.flc", encoded(dataset), limit)
    for sample in range(COUNT):
        blob = np.frombuffer(dataset.read(sample), np.uint8)
        cache.store(sample, blob, _C.crc32c(blob))
    copy_table(weakref.ref(cache), 0, dataset.folder / "index.fli")
    file = (memory.path / "x.flc").read_bytes()
    magic, major, minor, header_bytes, *words = struct.unpack_from("<8sHHI12Q", file)
    size, count, table, index_at, index_size, entries_at, entries_size, data_at, data_size, room, total, _ = (
        words
    )
    digest, source_bytes, dataset_id, tier = struct.unpack_from("<II32s32s", file, 112)
    assert (magic, major, minor, header_bytes) == (b"FLCACHE1", 1, 0, 8192)
    assert (size, count, table, digest) == (len(file), COUNT, 12288, dataset.index.digest)
    assert size <= limit
    assert (dataset_id.decode(), tier.rstrip(b"\0")) == (dataset.id, b"encoded")
    assert file[512 : 512 + source_bytes].decode() == str(dataset.folder)
    assert struct.unpack_from("<Q", file, 256) == (limit,)
    assert not any(file[184:256] + file[264:512] + file[512 + source_bytes : 8188])
    assert crc(file[:8188]) == int.from_bytes(file[8188:8192], "little")
    assert file[index_at : index_at + index_size] == (dataset.folder / "index.fli").read_bytes()
    assert (entries_at % 4096, entries_size, data_at % 4096, data_at + data_size) == (0, 0, 0, size)
    assert struct.unpack_from("<II", file, 8192) == (1, 0)
    places = []
    for sample in range(COUNT):
        at = table + 32 * sample
        offset, length, width, height, place_crc, record_crc, state, zero = struct.unpack_from(
            "<QIHHIIII", file, at
        )
        blob = dataset.read(sample)
        assert (length, width, height, zero) == (len(blob), 0, 0, 0)
        assert place_crc == crc(file[at : at + 16] + sample.to_bytes(8, "little"))
        assert record_crc == crc(blob)
        assert state == (offset != 2**64 - 1)
        if state:
            assert file[offset : offset + length] == blob
            places.append((offset, offset + length))
    assert (places[0][0], places[-1][1]) == (data_at, size)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(places))
    assert struct.unpack_from("<QQ", file, 8256) == (room, data_size)
    assert len(places) == room
    assert total == sum(range(1, COUNT * 10, 10))


def test_pixels_have_their_size_in_the_table(memory: OpenFolder, dataset: PackedDataset) -> None:
    sizes = np.array([(3 + i, 2) for i in range(COUNT)], np.uint16)
    lengths = sizes.astype(np.uint32).prod(axis=1, dtype=np.uint32) * 3
    lengths[5] = 0  # not known: no place
    contents = Contents(dataset.id, "decoded-500", dataset.folder, dataset.index.digest, lengths, sizes=sizes)
    cache = create(memory, "y.flc", contents, 1 << 30)
    assert [cache.has_room(sample) for sample in range(COUNT)] == [sample != 5 for sample in range(COUNT)]
    pixels = np.arange(lengths[9], dtype=np.uint8)
    cache.store(9, pixels, 1234)
    file = (memory.path / "y.flc").read_bytes()
    offset, length, width, height, _, record_crc, state = struct.unpack_from("<QIHHIII", file, 12288 + 32 * 9)
    assert (length, width, height, record_crc, state) == (72, 12, 2, 1234, 1)
    assert file[offset : offset + length] == pixels.tobytes()
    assert file[152:163] == b"decoded-500"
