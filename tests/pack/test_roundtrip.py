"""Packing keeps every byte, name, label and the order of ImageFolder, in every format."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_reference import read_index
from pack_trees import class_tree, encoded, image_folder_samples, make_tree, snapshot

from fastload import PackedDataset
from fastload._native import _C
from fastload.packing import PackOptions, pack
from fastload.packing.files import ESCAPED, decode_key, encode_key
from fastload.packing.folders import is_hidden, is_split
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify


def check_dataset(folder: Path, source: Path, samples: list[tuple[str, int]]) -> PackedDataset:
    """The packed dataset has exactly these samples; its index says so to the slow reader, too."""
    dataset = PackedDataset(folder)
    assert len(dataset) == len(samples)
    reference = read_index(folder / "index.fli")
    assert reference.digest == dataset.manifest.index_crc
    shards = [(folder / shard.file).read_bytes() for shard in dataset.manifest.shards]
    for i, (name, label) in enumerate(samples):
        data = (source / name).read_bytes()
        record = reference.records[i]
        start = int(record["offset"])
        assert shards[record["shard"]][start : start + int(record["length"])] == data
        assert int(record["crc32c"]) == _C.crc32c_table(np.frombuffer(data, np.uint8))
        assert int(record["label"]) == label
        assert decode_key(reference.keys[i], bool(record["flags"] & ESCAPED)) == os.fsencode(name)
        codec, width, height, channels, flags = _C.probe(np.frombuffer(data, np.uint8))
        assert list(_C.CODECS)[record["codec"]] == codec
        found = (record["width"], record["height"], record["channels"], int(record["flags"]) & ~ESCAPED)
        assert found == (width, height, channels, flags)
        assert (dataset.read(i), dataset.label(i)) == (data, label)
    assert verify(folder, decode=True) == ([], len(samples))
    return dataset


def test_class_folders(tmp_path: Path, format_name: str) -> None:
    source = class_tree(tmp_path / "source")
    [result] = pack(source, tmp_path / "out", PackOptions(format=format_name, shard_size=8192, num_proc=1))
    samples = image_folder_samples(source)
    dataset = check_dataset(tmp_path / "out", source, samples)
    assert dataset.classes == ["class 0", "class 1", "class 2", "class 3"]
    assert len(result.manifest.shards) > 3
    assert result.manifest.codecs == {"jpeg": 24, "png": 12, "webp": 12}
    assert result.summary is not None
    widths = sorted(int(w) for w in dataset.records["width"])
    expected = {"min": widths[0], "median": widths[(len(widths) - 1) // 2], "max": widths[-1]}
    assert result.summary.sides()["width"] == expected
    assert not [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]


def test_unpack_gives_the_same_tree(tmp_path: Path, format_name: str) -> None:
    source = class_tree(tmp_path / "source")
    pack(source, tmp_path / "out", PackOptions(format=format_name, shard_size=9000, num_proc=1))
    assert unpack(tmp_path / "out", tmp_path / "back") == 48
    assert snapshot(tmp_path / "back") == snapshot(source)


def test_odd_names(tmp_path: Path, format_name: str) -> None:
    names = [
        "é/ü.jpg", "e\u0301/u\u0308.jpg", "a b/new\nline.jpg", "a b/%41.jpg", "a b/日本.jpg",
        "a b/.hidden.jpg", "a b/" + "x" * 240 + ".jpg", "a b/two.dots.jpg", "a b/quote'\".JPG",
    ]  # fmt: skip
    source = make_tree(tmp_path / "source", {name: encoded(i) for i, name in enumerate(names)})
    raw = os.fsencode(source) + b"/a b/\xff\x80%.jpg"
    with open(raw, "wb") as file:
        file.write(encoded(99))
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = check_dataset(tmp_path / "out", source, image_folder_samples(source))
    assert "a b/%FF%80%25.jpg" in [dataset.key(i) for i in range(len(dataset))]
    unpack(tmp_path / "out", tmp_path / "back")
    assert snapshot(tmp_path / "back") == snapshot(source)


PARTS = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",)), min_size=1, max_size=12
)
FOLDERS = PARTS.filter(lambda name: not is_hidden(name) and not is_split(name))
FILES = st.tuples(
    FOLDERS, st.lists(FOLDERS, max_size=2), PARTS, st.sampled_from([".jpg", ".PNG", ".webp", ".txt"])
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(FILES, min_size=1, max_size=12),
    shard_size=st.integers(4096, 20000),
    flavour=st.sampled_from(["arrow", "lmdb", "hdf5"]),
)
def test_random_trees(files: list[tuple[str, list[str], str, str]], shard_size: int, flavour: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        for i, (top, middle, stem, extension) in enumerate(files):
            path = source.joinpath(top, *middle, stem + extension)
            if len(os.fsencode(path.name)) > 200 or any(p.is_file() for p in path.parents) or path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(i, "PNG"))
        samples = image_folder_samples(source)
        if not samples:
            return
        pack(source, Path(folder) / "out", PackOptions(format=flavour, shard_size=shard_size, num_proc=1))
        check_dataset(Path(folder) / "out", source, samples)
        unpack(Path(folder) / "out", Path(folder) / "back")
        expected = {name: (source / name).read_bytes() for name, _ in samples}
        assert snapshot(Path(folder) / "back") == expected


@given(st.binary(min_size=1).filter(lambda path: b"\0" not in path))
def test_keys_are_utf8_and_reversible(path: bytes) -> None:
    key, escaped = encode_key(path)
    key.decode("utf-8")
    assert decode_key(key, escaped) == path
    assert escaped or key == path


def test_many_small_records_share_batches(tmp_path: Path, format_name: str) -> None:
    source = make_tree(
        tmp_path / "source", {f"c/{i:04d}.png": encoded(i % 7, "PNG", 8, 8) for i in range(2500)}
    )
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    assert len(dataset) == 2500
    assert all(dataset.read(i) == encoded(i % 7, "PNG", 8, 8) for i in range(2500))


def test_an_image_larger_than_the_buffer(tmp_path: Path, format_name: str) -> None:
    noise = encoded(1, "BMP", 2600, 2300)
    source = make_tree(tmp_path / "source", {"c/0.jpg": encoded(0), "c/1.bmp": noise, "c/2.jpg": encoded(2)})
    assert len(noise) > 16 << 20
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.read(i) for i in range(3)] == [encoded(0), noise, encoded(2)]


def test_many_classes_fit_into_every_format(tmp_path: Path, format_name: str) -> None:
    source = make_tree(
        tmp_path / "source", {f"class_{i:05d}/a.png": encoded(i % 3, "PNG", 8, 8) for i in range(5000)}
    )
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    assert len(dataset.classes) == 5000
    assert dataset.labels.tolist() == list(range(5000))
