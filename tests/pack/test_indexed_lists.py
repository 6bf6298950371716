"""Lists of pictures in tars and Arrow files of other programs, indexed in place: the same samples as a pack
of them has, and what is no plain range of bytes is refused. Lists are drawn at random.
"""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from fault_server import FaultServer
from field_samples import photo
from long_forms import SEED, how_many

import fastload
from fastload.errors import FormatError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.sample.fields import Image, Images, Json, Label
from fastload.shard.dataset import PackedFiles

ALL = (("*.jpg", "images"),)
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
Pictures = list[bytes | None] | None


def lists_of(dataset: PackedFiles, field: str = "images") -> list[Pictures]:
    """The files of all samples."""
    return [dataset.value(field, sample) for sample in range(len(dataset))]


def indexed(paths: Any, folder: Path, **options: Any) -> PackedFiles:
    """The index of some files."""
    paths = paths if isinstance(paths, list) else [paths]
    index_files(paths, folder, IndexOptions(**{"num_proc": 1, **options}))
    return PackedFiles(folder)


# ---- Tars -------------------------------------------------------------------------------------------


def write_tar(path: Path, samples: list[tuple[str, list[tuple[str, bytes]]]]) -> Path:
    """A tar of the samples' members."""
    with tarfile.open(path, "w") as file:
        for key, members in samples:
            for suffix, data in members:
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    return path


def drawn_tars(folder: Path, seed: int, tars: int = 2) -> tuple[list[Path], list[list[bytes]]]:
    """Tars of samples with any number of pictures, one of which has the most; and the pictures."""
    draws = random.Random(seed)
    paths, lists, number = [], [], 0
    for tar in range(tars):
        samples: list[tuple[str, list[tuple[str, bytes]]]] = []
        for _ in range(draws.randrange(3, 12)):
            pictures = [photo(draws.randrange(50)) for _ in range(draws.choice([0, 1, 2, 12, 64]))]
            members = [(f"{place}.jpg", data) for place, data in enumerate(pictures)]
            draws.shuffle(members)  # their numbers count
            facts = ("json", json.dumps({"n": number}).encode())
            samples.append((f"a/{number:04}", [*members, facts]))
            lists.append(pictures)
            number += 1
        paths.append(write_tar(folder / f"part{tar}.tar", samples))
    return paths, lists


@pytest.mark.parametrize("seed", range(SEED, SEED + how_many(2, 50)))
def test_a_tar_s_lists_are_those_of_a_pack(seed: int, tmp_path: Path) -> None:
    paths, lists = drawn_tars(tmp_path, seed)
    dataset = indexed(paths, tmp_path / "index", fields=ALL)
    assert lists_of(dataset) == lists
    assert {field.name: field.kind for field in dataset.schema} == {"images": Images(), "json": Json()}
    assert [dataset.value("json", sample)["n"] for sample in range(len(lists))] == [*range(len(lists))]
    assert [dataset.key(sample) for sample in range(len(lists))] == [f"a/{n:04}" for n in range(len(lists))]
    assert verify(tmp_path / "index", decode=True) == ([], len(lists))
    manifest = json.loads((tmp_path / "index" / "dataset.json").read_text())
    assert manifest["fastload"] == [1, 5]
    assert [shard["file"] for shard in manifest["shards"]] == [str(path) for path in paths]
    pack(f"{tmp_path}/part{{0..1}}.tar", tmp_path / "pack", PackOptions(layout="wds", fields=ALL, num_proc=1))
    wanted = PackedFiles(tmp_path / "pack").field_records("images")
    found = dataset.field_records("images")
    same = ["length", "crc32c", "width", "height", "codec", "channels", "label", "flags"]
    assert found[same].tolist() == wanted[same].tolist()


def test_any_number_of_processes_makes_the_same_index(tmp_path: Path) -> None:
    paths, _ = drawn_tars(tmp_path, 4, tars=4)
    for name, processes in (("one", 1), ("two", 2)):
        indexed(paths, tmp_path / name, fields=ALL, num_proc=processes)
    for file in ("index.fli", "field-00.fli", "field-01.fli", "dataset.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_an_index_is_read_packed_and_unpacked(tmp_path: Path) -> None:
    paths, lists = drawn_tars(tmp_path, 5)
    dataset = indexed(paths, tmp_path / "index", fields=ALL)
    rule = fastload.SigLIP2(8, 20)
    pack(tmp_path / "index", tmp_path / "packed", PackOptions(num_proc=1))
    assert lists_of(PackedFiles(tmp_path / "packed")) == lists
    loaders = [
        fastload.DataLoader(tmp_path / name, 3, shuffle=True, seed=0, transform=rule, num_workers=1)
        for name in ("index", "packed")
    ]
    count = 0
    for found, wanted in zip(*loaders, strict=True):
        assert torch.equal(found["pixel_values"], wanted["pixel_values"])
        assert found["json"] == wanted["json"]
        count += len(found["json"])
    assert count == len(lists) == len(dataset)
    unpack(tmp_path / "index", tmp_path / "files", "jsonl")
    pack(tmp_path / "files" / "samples.jsonl", tmp_path / "again", PackOptions(num_proc=1))
    assert lists_of(PackedFiles(tmp_path / "again")) == lists


def test_tars_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    paths, lists = drawn_tars(tmp_path, 6)
    with FaultServer(folder=tmp_path) as server:
        urls = [f"{server.url}/{path.name}" for path in paths]
        dataset = indexed(urls, tmp_path / "index", fields=ALL)
        assert lists_of(dataset) == lists
        loader = fastload.DataLoader(tmp_path / "index", 4, transform=fastload.SigLIP2(8, 20), seed=0)
        assert sum(len(batch["spatial_shapes"]) for batch in loader) == sum(map(len, lists))
        # And by URL, once the index lies there, too.
        dataset = PackedFiles(f"{server.url}/index")
        assert lists_of(dataset) == lists


def test_lists_beside_a_picture_and_a_class(tmp_path: Path) -> None:
    samples = [
        (f"{n}", [("png", photo(n, "PNG")), *((f"{k}.jpg", photo(k)) for k in range(n)), ("cls", b"%d" % n)])
        for n in range(5)
    ]
    dataset = indexed(write_tar(tmp_path / "a.tar", samples), tmp_path / "index", fields=ALL)
    kinds = {field.name: field.kind for field in dataset.schema}
    assert kinds == {"image": Image(), "label": Label(), "images": Images()}
    assert [dataset.read(n) for n in range(5)] == [photo(n, "PNG") for n in range(5)]
    assert lists_of(dataset) == [[photo(k) for k in range(n)] for n in range(5)]
    assert dataset.labels.tolist() == [*range(5)]
    assert verify(tmp_path / "index", decode=True) == ([], 5)


def test_a_tar_without_any_picture_has_empty_lists(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "one.tar", [("a", [("0.jpg", photo(0)), ("txt", b"x")])])
    other = write_tar(tmp_path / "other.tar", [("b", [("txt", b"y")])])
    dataset = indexed([one, other], tmp_path / "index", fields=ALL)
    assert lists_of(dataset) == [[photo(0)], []]
    assert verify(tmp_path / "index", decode=True) == ([], 2)


def test_more_pictures_than_suffixes_that_are_remembered(tmp_path: Path) -> None:
    members = [(f"{place}.jpg", photo(place % 9)) for place in range(1100)]
    path = write_tar(tmp_path / "a.tar", [("a", members)])
    dataset = indexed(path, tmp_path / "index", fields=ALL)
    assert lists_of(dataset) == [[data for _, data in members]]
    pack(path, tmp_path / "pack", PackOptions(layout="wds", fields=ALL))
    assert lists_of(PackedFiles(tmp_path / "pack")) == lists_of(dataset)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"no picture", r"field 'images': picture 1: "), (b"", r"field 'images': picture 1 has 0 bytes")],
)
def test_a_bad_member_is_named(data: bytes, words: str, tmp_path: Path) -> None:
    samples = [
        ("a", [("0.jpg", photo(0)), ("json", b"1")]),
        ("b", [("0.jpg", photo(1)), ("1.jpg", data), ("2.jpg", photo(2)), ("json", b"2")]),
        ("c", [("json", b"3")]),
    ]
    path = write_tar(tmp_path / "a.tar", samples)
    with pytest.raises(PackError, match=rf"a.tar, record 1 \(b\): {words}"):
        indexed(path, tmp_path / "index", fields=ALL)
    dataset = indexed(path, tmp_path / "index", fields=ALL, on_error="skip")
    assert lists_of(dataset) == [[photo(0)], []]
    assert [dataset.value("json", sample) for sample in (0, 1)] == [1, 3]
    assert dataset.manifest.skipped == 1
    assert verify(tmp_path / "index", decode=True) == ([], 2)


def test_kinds_that_several_members_cannot_have(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a", [("0.jpg", photo(0))])])
    with pytest.raises(
        FormatError, match=r"--field \*.jpg: a name with \* .* images or none. Found: \*.jpg="
    ):
        indexed(path, tmp_path / "index", fields=(("*.jpg", "mask"),))
    with pytest.raises(FormatError, match=r"can be image, images, mask, .* Found: 0.jpg=scalar"):
        indexed(path, tmp_path / "index", fields=(("0.jpg", "scalar(int32)"),))


def test_files_with_a_picture_each_and_with_lists_alone(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "one.tar", [("a", [("png", photo(0, "PNG")), ("0.jpg", photo(1))])])
    other = write_tar(tmp_path / "other.tar", [("b", [("0.jpg", photo(1))])])
    with pytest.raises(
        FormatError, match=r"other.tar has its pictures in lists alone, .* in 'image'; index them apart"
    ):
        indexed([one, other], tmp_path / "index", fields=ALL)


def test_a_file_that_changed_is_seen_in_its_lists(tmp_path: Path) -> None:
    paths, lists = drawn_tars(tmp_path, 8)
    dataset = indexed(paths, tmp_path / "index", fields=ALL)
    later = time.time() + 5
    os.utime(paths[0], (later, later))
    assert lists_of(indexed(paths, tmp_path / "index", fields=ALL)) == lists  # touched alone
    entries = dataset.field_records("images")
    entry = entries[(entries["length"] > 0) & (entries["shard"] == 0)][-1]
    data = bytearray(paths[0].read_bytes())
    data[int(entry["offset"]) + 20] ^= 1
    paths[0].write_bytes(data)
    os.utime(paths[0], (later, later))
    with pytest.raises(PackError, match=r"part0.tar has other contents now; --restart replaces it"):
        indexed(paths, tmp_path / "index", fields=ALL)


# ---- Arrow ------------------------------------------------------------------------------------------


def drawn_rows(seed: int, count: int = 40) -> list[dict[str, Any]]:
    """Samples of a table: no list, an empty one, places without a picture."""
    draws = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        length = draws.choice([0, 0, 1, 1, 2, 3, 64])
        images: Pictures = [
            None if draws.random() < 0.2 else photo(draws.randrange(50)) for _ in range(length)
        ]
        rows.append({"images": None if draws.random() < 0.15 else images, "texts": [{"user": str(number)}]})
    return rows


def cells_of(rows: list[dict[str, Any]], element: str) -> list[Any]:
    """The lists as a column takes them."""
    if element == "binary":
        return [row["images"] for row in rows]
    return [
        c if c is None else [one and {"bytes": one, "path": "a.jpg"} for one in c]
        for c in (row["images"] for row in rows)
    ]


def write_arrow(path: Path, table: pa.Table, form: str = "stream", **options: Any) -> Path:
    """A table as an Arrow file of several batches."""
    opened = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    settings = pa.ipc.IpcWriteOptions(**options)
    with pa.OSFile(str(path), "wb") as file, opened(file, table.schema, options=settings) as writer:
        writer.write_table(table, max_chunksize=7)
    return path


@pytest.mark.parametrize("form", ["stream", "file"])
@pytest.mark.parametrize("element", ["struct", "binary"])
@pytest.mark.parametrize("wide", [False, True])
def test_lists_in_arrow_files(form: str, element: str, wide: bool, tmp_path: Path) -> None:
    files, all_rows = [], []
    for number in range(2):
        rows = drawn_rows(SEED + number)
        kind = STRUCT if element == "struct" else pa.binary()
        lists = pa.large_list(kind) if wide else pa.list_(kind)
        columns = {"images": pa.array(cells_of(rows, element), lists)}
        columns["texts"] = pa.array([row["texts"] for row in rows])
        files.append(write_arrow(tmp_path / f"{number}.arrow", pa.table(columns), form))
        all_rows += rows
    dataset = indexed(files, tmp_path / "index", fields=(("images", "images"),))
    assert {field.name: field.kind for field in dataset.schema} == {"images": Images(), "texts": Json()}
    assert lists_of(dataset) == [row["images"] for row in all_rows]
    assert [dataset.value("texts", n) for n in range(80)] == [row["texts"] for row in all_rows]
    assert verify(tmp_path / "index", decode=True) == ([], 80)
    shards = dataset.field_records("images")
    assert set(shards["shard"][shards["length"] > 0].tolist()) == {0, 1}


def test_lists_need_no_word_where_there_is_nothing_else(tmp_path: Path) -> None:
    rows = drawn_rows(3)
    column = pa.array(cells_of(rows, "struct"), pa.list_(STRUCT))
    path = write_arrow(tmp_path / "a.arrow", pa.table({"images": column, "id": pa.array([*range(40)])}))
    assert lists_of(indexed(path, tmp_path / "index")) == [row["images"] for row in rows]
    assert lists_of(indexed(path, tmp_path / "named", column="images")) == [row["images"] for row in rows]
    batch = next(iter(fastload.DataLoader(tmp_path / "index", 4, transform=fastload.SigLIP2(8, 20), seed=0)))
    assert batch["id"].tolist() == [0, 1, 2, 3]


def test_lists_beside_pictures_in_arrow(tmp_path: Path) -> None:
    rows = drawn_rows(4)
    one = pa.array([{"bytes": photo(n), "path": f"{n}.jpg"} for n in range(40)], STRUCT)
    columns = {"image": one, "more": pa.array(cells_of(rows, "struct"), pa.list_(STRUCT))}
    path = write_arrow(tmp_path / "a.arrow", pa.table(columns))
    dataset = indexed(path, tmp_path / "index", fields=(("more", "images"),))
    assert lists_of(dataset, "more") == [row["images"] for row in rows]
    assert [dataset.read(n) for n in range(40)] == [photo(n) for n in range(40)]
    assert verify(tmp_path / "index", decode=True) == ([], 40)
    with pytest.raises(FormatError, match=r"'more' has lists of pictures, and 'image' is a picture of each"):
        indexed(path, tmp_path / "no", column="more")


def test_lists_that_are_not_there_may_span_values(tmp_path: Path) -> None:
    """Arrow allows values under a null; they are nobody's. Batches may be slices, too."""
    values = pa.array([photo(n) for n in range(6)], pa.binary())
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 3, 6], pa.int32()), values, mask=pa.array([False, True, False, False])
    )
    dataset = indexed(
        write_arrow(tmp_path / "a.arrow", pa.table({"images": lists})),
        tmp_path / "index",
        fields=(("images", "images"),),
    )
    assert lists_of(dataset) == [[photo(0)], None, [], [photo(3), photo(4), photo(5)]]
    assert verify(tmp_path / "index", decode=True) == ([], 4)


def test_a_bad_picture_in_arrow_is_named(tmp_path: Path) -> None:
    rows: list[list[bytes]] = [[photo(0)], [photo(1), b"no picture"], [b""], [photo(2)]]
    path = write_arrow(tmp_path / "a.arrow", pa.table({"images": pa.array(rows, pa.list_(pa.binary()))}))
    named = (("images", "images"),)
    with pytest.raises(PackError) as caught:
        indexed(path, tmp_path / "index", fields=named)
    assert "field 'images': picture 1: " in str(caught.value)
    dataset = indexed(path, tmp_path / "index", fields=named, on_error="skip")
    assert lists_of(dataset) == [[photo(0)], [photo(2)]]


def test_what_cannot_be_indexed_is_to_be_packed(tmp_path: Path) -> None:
    rows = drawn_rows(5, 12)
    cells = cells_of(rows, "struct")
    lists = pa.array(cells, pa.list_(STRUCT))
    path = write_arrow(tmp_path / "a.arrow", pa.table({"images": lists}), compression="lz4")
    with pytest.raises(
        FormatError, match=r"compressed record batches.* 'fastload pack .*a.arrow OUTPUT' packs"
    ):
        indexed(path, tmp_path / "index")
    pairs = pa.array([[{"bytes": photo(0), "path": None}] * 2] * 9, pa.list_(STRUCT, 2))
    path = write_arrow(tmp_path / "b.arrow", pa.table({"images": pairs}))
    with pytest.raises(
        FormatError, match=r"not fixed_size_list<.* 'fastload pack .*b.arrow OUTPUT' packs it"
    ):
        indexed(path, tmp_path / "index", fields=(("images", "images"),), column="images")
    paths = pa.array(
        [[{"bytes": None, "path": "a.jpg"}, {"bytes": photo(0), "path": None}]], pa.list_(STRUCT)
    )
    (tmp_path / "a.jpg").write_bytes(photo(1))
    path = write_arrow(tmp_path / "c.arrow", pa.table({"images": paths}))
    with pytest.raises(FormatError, match=r"1 pictures have a path and no bytes; 'fastload pack .*c.arrow"):
        indexed(path, tmp_path / "index")
    table = tmp_path / "d.parquet"
    pa.parquet.write_table(pa.table({"images": lists}), table, compression="none")
    with pytest.raises(FormatError, match=r"Parquet files are not read in place. 'fastload pack"):
        indexed(table, tmp_path / "index")


def test_entries_count_places(tmp_path: Path) -> None:
    rows = drawn_rows(6)
    column = pa.array(cells_of(rows, "struct"), pa.list_(STRUCT))
    dataset = indexed(write_arrow(tmp_path / "a.arrow", pa.table({"images": column})), tmp_path / "index")
    assert len(dataset.field_records("images")) == sum(
        1 if row["images"] is None else len(row["images"]) for row in rows
    )
    sizes = [sum(len(one or b"") for one in row["images"] or ()) for row in rows]
    assert dataset.list_bytes("images", np.arange(40)).tolist() == sizes
