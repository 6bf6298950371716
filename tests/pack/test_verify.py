"""Verify finds every damage and says where; unpack trusts no name."""

from __future__ import annotations

import json
import os
import random
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from pack_trees import class_tree, encoded, make_tree, run_cli, snapshot
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload.errors import ChecksumError, FormatError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing.annotations.unpacked_files import safe_path
from fastload.packing.unpack import unpack
from fastload.packing.verify import LISTED, verify
from fastload.shard.index import write_index


@pytest.fixture
def packed(tmp_path: Path, format_name: str) -> Path:
    source = class_tree(tmp_path / "source")
    pack(source, tmp_path / "set", PackOptions(format=format_name, shard_size=40000, num_proc=1))
    return tmp_path / "set"


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_every_flipped_record_byte_is_found(packed: Path) -> None:
    dataset, rng = PackedDataset(packed), random.Random(1)
    for sample in rng.sample(range(len(dataset)), 12):
        record = dataset.records[sample]
        path = packed / dataset.manifest.shards[record["shard"]].file
        original = path.read_bytes()
        flip(path, int(record["offset"]) + rng.randrange(int(record["length"])), rng.randrange(8))
        problems, checked = verify(packed)
        assert checked == len(dataset)
        assert [(p.sample, p.key, p.offset) for p in problems] == [
            (sample, dataset.key(sample), record["offset"])
        ]
        assert f"the index says {int(record['crc32c']):#010x}" in problems[0].reason
        assert problems[0].shard == dataset.manifest.shards[record["shard"]].file
        path.write_bytes(original)
    assert verify(packed) == ([], len(dataset))


def test_missing_and_short_shards(packed: Path) -> None:
    manifest = PackedDataset(packed).manifest
    first, second = (packed / shard.file for shard in manifest.shards[:2])
    os.truncate(first, manifest.shards[0].size - 5000)
    second.unlink()
    problems, _ = verify(packed)
    reasons = [(problem.shard, problem.reason) for problem in problems]
    size = manifest.shards[0].size
    assert (manifest.shards[0].file, f"has {size - 5000} bytes, the manifest says {size}") in reasons
    assert (manifest.shards[1].file, "cannot be opened: No such file or directory") in reasons


def test_every_flipped_index_byte_is_found(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {f"c/{i}.png": encoded(i, "PNG", 8, 8) for i in range(3)})
    pack(source, tmp_path / "set", PackOptions(num_proc=1))
    index = tmp_path / "set" / "index.fli"
    original = index.read_bytes()
    used = [i for i in range(len(original)) if i < 128 or i >= 4096]  # between them lies padding
    for position in used:
        data = bytearray(original)
        data[position] ^= 1 << (position % 8)
        index.write_bytes(data)
        problems, _ = verify(tmp_path / "set")
        assert problems, position
    index.write_bytes(original)
    assert verify(tmp_path / "set") == ([], 3)


def test_index_of_another_pack(tmp_path: Path) -> None:
    for name in ("a", "b"):
        source = class_tree(tmp_path / name / "source", classes=2 if name == "a" else 3)
        pack(source, tmp_path / name / "set", PackOptions(num_proc=1))
    shutil.copy(tmp_path / "b/set/index.fli", tmp_path / "a/set/index.fli")
    problems, _ = verify(tmp_path / "a" / "set")
    assert "belongs to another manifest" in problems[0].reason


def test_decode_finds_what_checksums_cannot(tmp_path: Path) -> None:
    whole = encoded(1, "JPEG", 64, 64)
    source = make_tree(tmp_path / "source", {"c/a.jpg": encoded(0), "c/cut.jpg": whole[: len(whole) // 2]})
    pack(source, tmp_path / "set", PackOptions(num_proc=1))
    assert verify(tmp_path / "set") == ([], 2)
    [problem], _ = verify(tmp_path / "set", decode=True)
    assert problem.key == "c/cut.jpg"
    assert problem.reason.startswith("does not decode: ")


@pytest.mark.parametrize("folder", ["missing", "source"])
def test_nothing_to_verify(tmp_path: Path, folder: str) -> None:
    class_tree(tmp_path / "source", classes=1)
    with pytest.raises(FormatError, match="not a packed dataset"):
        verify(tmp_path / folder)


@pytest.mark.parametrize(
    "key", [b"/etc/passwd", b"../x", b"a/../../x", b"a//b", b"", b"a/", b".", b"a/./b", b"a\0b", b"..", b"/"]
)
def test_unsafe_keys(key: bytes) -> None:
    with pytest.raises(FormatError, match="no path below a folder"):
        safe_path(key)


@pytest.mark.parametrize("key", [b"a", b"a/b.jpg", b"...", b"..a/b..", b"a\\..\\b", b"-rf", b"\xff"])
def test_safe_keys(key: bytes) -> None:
    assert safe_path(key) == key


def test_unpack_refuses_what_is_there(packed: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "full", {"mine.txt": b"x"})
    (tmp_path / "link").symlink_to(tmp_path / "full")
    for name in ("full", "link", "full/mine.txt"):
        with pytest.raises(PackError, match="not an empty folder"):
            unpack(packed, tmp_path / name)
    (tmp_path / "empty").mkdir()
    unpack(packed, tmp_path / "empty")
    assert snapshot(tmp_path / "empty") == snapshot(tmp_path / "source")


def test_unpack_of_a_damaged_record_leaves_nothing(packed: Path, tmp_path: Path) -> None:
    dataset = PackedDataset(packed)
    record = dataset.records[40]
    flip(packed / dataset.manifest.shards[record["shard"]].file, int(record["offset"]) + 3)
    before = set(os.listdir(tmp_path))
    with pytest.raises(ChecksumError):
        unpack(packed, tmp_path / "back")
    assert set(os.listdir(tmp_path)) == before


def test_flat_folder_comes_back_flat(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {f"{i}.jpg": encoded(i) for i in range(4)})
    pack(source, tmp_path / "set", PackOptions(num_proc=1))
    unpack(tmp_path / "set", tmp_path / "back")
    assert snapshot(tmp_path / "back") == snapshot(source)


def test_table_comes_back_in_class_folders(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"images/{i}.jpg": encoded(i) for i in range(3)})
    (tmp_path / "list.csv").write_text("images/0.jpg,cat\nimages/2.jpg,dog\n")
    pack(tmp_path / "list.csv", tmp_path / "set", PackOptions(num_proc=1))
    unpack(tmp_path / "set", tmp_path / "back")
    assert snapshot(tmp_path / "back") == {"cat/images/0.jpg": encoded(0), "dog/images/2.jpg": encoded(2)}


def test_of_a_hundred_thousand_problems_the_first_are_listed(tmp_path: Path) -> None:
    count = 100_000
    dataset = plain_pack(tmp_path / "set", [encoded(i) for i in range(2)], range(2))
    records = np.repeat(dataset.records, [1, count - 1])  # all but the first share their bytes
    records["label"][1000:] = -7
    write_index(dataset.folder / "index.fli", [records], [[b"%d" % i for i in range(count)]])
    tracemalloc.start()
    try:
        problems, checked = verify(dataset.folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert checked == count
    assert peak < 60 << 20  # 32 bytes a record, a few times
    for words, found in [("overlaps sample", count - 2), ("label outside the classes", count - 1000)]:
        listed = [problem for problem in problems if words in problem.reason and problem.sample is not None]
        assert len(listed) == LISTED
        assert all(problem.count == 1 for problem in listed)
        kind = "overlaps another" if "overlaps" in words else words
        [rest] = [problem for problem in problems if problem.sample is None and kind in problem.reason]
        assert rest.count == found - LISTED
        assert rest.reason.startswith(f"{found - LISTED} more, not listed: ")
    done = run_cli("verify", dataset.folder)
    assert f"{sum(problem.count for problem in problems)} problems" in done.stdout
    assert len(done.stdout.splitlines()) < 1000
    said = json.loads(run_cli("verify", dataset.folder, "--json").stdout)
    assert said["found"] == sum(problem.get("count", 1) for problem in said["problems"]) > 2 * count - 2000


@pytest.mark.parametrize("reverse", [False, True])
def test_overlaps_are_found_in_any_order(tmp_path: Path, reverse: bool) -> None:
    dataset = plain_pack(tmp_path / "set", [encoded(i) for i in range(9)], range(9))
    records = dataset.records[::-1].copy() if reverse else dataset.records.copy()
    records["length"][4] += 1
    write_index(dataset.folder / "index.fli", [records], [[b"%d" % i for i in range(9)]])
    overlapping = {p.sample for p in verify(dataset.folder)[0] if "overlaps sample" in p.reason}
    assert overlapping == {3 if reverse else 5}
