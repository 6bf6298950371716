"""Samples with any number of pictures: packed into every format, read again by sample, by the formats' own
libraries, as a source, after unpacking; verified, recoded and warmed. Lists are drawn at random; FORMAT.md
has the rules.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from field_samples import photo
from long_forms import SEED, how_many

import fastload
import fastload.transforms as T
from fastload.errors import ChecksumError, PackError, ShardTruncated
from fastload.packing import PackOptions, pack
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.sample.fields import Image, Images, Json, Label, Text
from fastload.sample.schema import Schema
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

FORMATS = ("arrow", "lmdb", "hdf5")
SCHEMA = Schema.of({"images": Images(), "text": Text()})
Pictures = list[bytes | None] | None


def drawn_list(draws: random.Random) -> Pictures:
    """Pictures of one sample: no list, an empty one, or up to 64 with places without one."""
    if draws.random() < 0.15:
        return None
    count = draws.choice([0, 0, 1, 1, 1, 2, 3, 8, 64])
    return [None if draws.random() < 0.2 else photo(draws.randrange(50)) for _ in range(count)]


def drawn_rows(seed: int, count: int = 40) -> list[dict[str, Any]]:
    """Samples, some of which have no text either."""
    draws = random.Random(seed)
    return [{"images": drawn_list(draws), "text": "x" * draws.randrange(4)} for _ in range(count)]


def packed(rows: list[dict[str, Any]], folder: Path, schema: Any = SCHEMA, **options: Any) -> PackedFiles:
    """The rows as a set."""
    fastload.pack(rows, folder, schema=schema, num_proc=1, **options)
    return PackedFiles(folder)


def lists_of(dataset: PackedFiles, field: str = "images") -> list[Pictures]:
    """The files of all samples."""
    return [dataset.value(field, sample) for sample in range(len(dataset))]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("seed", range(SEED, SEED + how_many(2, 100)))
def test_what_goes_in_comes_out(form: str, seed: int, tmp_path: Path) -> None:
    rows = drawn_rows(seed)
    dataset = packed(rows, tmp_path / "set", format=form, shard_size=40_000)
    assert lists_of(dataset) == [row["images"] for row in rows]
    assert [dataset.value("text", sample) for sample in range(len(dataset))] == [r["text"] for r in rows]
    assert verify(tmp_path / "set", decode=True) == ([], len(rows))
    assert json.loads((tmp_path / "set" / "dataset.json").read_text())["fastload"] == [1, 5]


@pytest.mark.parametrize("form", FORMATS)
def test_shards_without_a_picture(form: str, tmp_path: Path) -> None:
    """Of places alone: their bytes are nowhere."""
    rows: list[dict[str, Any]] = [{"images": [None] * n, "text": "x" * 9000} for n in range(4)]
    rows += [{"images": [photo(1)], "text": ""}, {"images": [None], "text": ""}]
    dataset = packed(rows, tmp_path / "set", format=form, shard_size=9000)
    assert len(dataset.manifest.shards) > 2
    assert lists_of(dataset) == [row["images"] for row in rows]
    assert verify(tmp_path / "set", decode=True) == ([], len(rows))


@pytest.mark.parametrize("form", FORMATS)
def test_sets_and_what_is_unpacked_are_sources(form: str, tmp_path: Path) -> None:
    rows = drawn_rows(7)
    wanted = [row["images"] for row in rows]
    packed(rows, tmp_path / "set", format=form, shard_size=60_000)
    for other in FORMATS:
        pack(tmp_path / "set", tmp_path / other, PackOptions(format=other, num_proc=2))
        assert lists_of(PackedFiles(tmp_path / other)) == wanted
    for table in ("jsonl", "csv", "parquet"):
        unpack(tmp_path / "set", tmp_path / f"un{table}", table)
        pack(tmp_path / f"un{table}" / f"samples.{table}", tmp_path / f"re{table}", PackOptions(format=form))
        assert lists_of(PackedFiles(tmp_path / f"re{table}")) == wanted


@pytest.mark.parametrize("form", FORMATS)
def test_pictures_are_recoded_each_by_itself(form: str, tmp_path: Path) -> None:
    rows = drawn_rows(8, 12)
    dataset = packed(rows, tmp_path / "set", format=form, coefficients="fast")
    assert lists_of(dataset) == [row["images"] for row in rows]  # the identical JPEGs
    made = dataset.manifest.options["coefficient_records"]["made"]
    assert made == sum(one is not None for row in rows for one in row["images"] or ())
    small = packed(rows, tmp_path / "small", format=form, max_side=16)
    entries = small.field_records("images")
    there = entries[entries["length"] > 0]
    assert len(there) == made
    assert np.maximum(there["width"], there["height"]).max() == 16
    assert [len(each or ()) for each in lists_of(small)] == [len(row["images"] or ()) for row in rows]


def test_arrow_shows_lists_of_images(tmp_path: Path) -> None:
    rows = drawn_rows(9)
    packed(rows, tmp_path / "set")
    (shard,) = (tmp_path / "set").glob("*.arrow")
    table = pa.ipc.open_stream(pa.memory_map(str(shard))).read_all()
    assert str(table.schema.field("images").type) == "list<item: struct<bytes: binary, path: string>>"
    shown = [each if each is None else [one and one["bytes"] for one in each] for each in
             table["images"].to_pylist()]  # fmt: skip
    assert shown == [row["images"] for row in rows]
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["images"]["feature"] == {"_type": "Image"}


@pytest.mark.parametrize("form", FORMATS)
def test_lists_of_pixels(form: str, tmp_path: Path) -> None:
    rows = drawn_rows(17, 12)
    dataset = packed(rows, tmp_path / "set", format=form, raw=True)
    assert verify(tmp_path / "set", decode=True) == ([], 12)
    entries = dataset.field_records("images")
    wanted = [one for row in rows for one in row["images"] or () if one is not None]
    assert (entries["length"] > 0).sum() == len(wanted) > 0
    plain = fastload.PackedDataset(packed(rows, tmp_path / "files", format=form).folder)
    for sample, shown in zip(fastload.PackedDataset(tmp_path / "set"), plain, strict=True):
        assert [one is None or one.tolist() for one in sample["images"] or ()] == [
            one is None or one.tolist() for one in shown["images"] or ()
        ]
    if form == "arrow":
        (shard,) = (tmp_path / "set").glob("*.arrow")
        table = pa.ipc.open_stream(pa.memory_map(str(shard))).read_all()
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        assert "Image" not in json.dumps(features["images"])
        cells = [one for each in table["images"].to_pylist() for one in each or () if one is not None]
        assert [len(one["bytes"]) for one in cells] == [3 * one["height"] * one["width"] for one in cells]


def test_lmdb_and_hdf5_hold_a_value_each(tmp_path: Path) -> None:
    import h5py
    import lmdb

    rows = drawn_rows(10)
    packed(rows, tmp_path / "lmdb", format="lmdb")
    (shard,) = (tmp_path / "lmdb").glob("*.lmdb")
    with lmdb.open(str(shard), readonly=True, lock=False) as env, env.begin() as txn:
        values = [txn.get(b"%08d/images" % place) for place in range(len(rows))]
    packed(rows, tmp_path / "hdf5", format="hdf5")
    (shard,) = (tmp_path / "hdf5").glob("*.h5")
    with h5py.File(shard) as file:
        assert [bytes(value) for value in file["images"][:]] == values
    for row, value in zip(rows, values, strict=True):
        images = row["images"]
        if images is None or not images:
            assert value == (b"\xff" if images is None else b"")
            continue
        count = int.from_bytes(value[:4], "little")
        lengths = np.frombuffer(value[4 : 4 + 4 * count], "<u4").tolist()
        assert lengths == [len(one or b"") for one in images]
        assert value[4 + 4 * count :] == b"".join(one or b"" for one in images)


def test_lists_beside_pictures_labels_and_values(tmp_path: Path) -> None:
    schema = {"image": Image(), "label": Label(("a", "b")), "more": Images(), "notes": Json()}
    draws = random.Random(11)
    rows = [
        {"image": photo(i), "label": i % 2, "more": drawn_list(draws), "notes": {"i": i}} for i in range(20)
    ]
    for form in FORMATS:
        dataset = packed(rows, tmp_path / form, schema, format=form)
        assert lists_of(dataset, "more") == [row["more"] for row in rows]
        assert [dataset.read(i) for i in range(20)] == [row["image"] for row in rows]
        assert dataset.labels.tolist() == [row["label"] for row in rows]
        assert verify(tmp_path / form, decode=True) == ([], 20)
        sizes = T.Resize((8, 8))
        loader = fastload.DataLoader(tmp_path / form, 4, transform=sizes, fields=["image", "notes"], seed=0)
        first = next(iter(loader))
        assert first["notes"] == [{"i": i} for i in range(4)]


def test_a_sample_has_all_its_pictures(tmp_path: Path) -> None:
    packed(
        [{"images": [photo(1), None, photo(2)], "text": "a"}, {"images": None, "text": ""}], tmp_path / "set"
    )
    dataset = fastload.PackedDataset(tmp_path / "set")
    sample = dataset[0]
    alone = packed([{"image": photo(1)}, {"image": photo(2)}], tmp_path / "alone", {"image": Image()})
    wanted = [fastload.PackedDataset(alone.folder)[i]["image"] for i in (0, 1)]
    assert [None if one is None else one.tolist() for one in sample["images"]] == [
        wanted[0].tolist(), None, wanted[1].tolist(),
    ]  # fmt: skip
    assert dataset[1]["images"] is None


def test_a_set_without_pictures(tmp_path: Path) -> None:
    rows = [{"text": f"text {i}", "label": i % 3} for i in range(30)]
    for form in FORMATS:
        dataset = packed(rows, tmp_path / form, {"text": Text(), "label": Label()}, format=form)
        assert dataset.labels.tolist() == [row["label"] for row in rows]
        assert verify(tmp_path / form, decode=True) == ([], 30)
        batches = list(fastload.DataLoader(tmp_path / form, 8, seed=0))
        assert [text for batch in batches for text in batch["text"]] == [row["text"] for row in rows]
    pack(tmp_path / "lmdb", tmp_path / "again")
    assert PackedFiles(tmp_path / "again").value("text", 29) == "text 29"


def test_batches_refuse_lists(tmp_path: Path) -> None:
    packed(drawn_rows(12, 4), tmp_path / "set")
    with pytest.raises(ValueError, match=r"'images' holds lists of pictures.*fields=\['text'\]"):
        next(iter(fastload.DataLoader(tmp_path / "set", 2)))
    assert next(iter(fastload.DataLoader(tmp_path / "set", 2, fields=["text"])))["text"]


# ---- Bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([photo(1), b"no picture"], "field 'images': picture 1: "),
        ([photo(1), "missing.jpg"], "field 'images': .*missing.jpg"),
        ([photo(1), 7], "field 'images': picture 1: a picture must be a path, bytes"),
        (7, "field 'images': pictures must be a list. Found: int"),
    ],
)
def test_a_bad_picture_is_named(images: Any, words: str, tmp_path: Path) -> None:
    rows = [{"images": [], "text": "a"}, {"images": images, "text": "b"}]
    with pytest.raises(PackError, match=words):
        packed(rows, tmp_path / "set")
    assert not (tmp_path / "set" / "dataset.json").exists()
    dataset = packed(rows, tmp_path / "skip", on_error="skip")
    assert lists_of(dataset) == [[]]
    assert dataset.manifest.skipped == 1


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    rows = [{"images": [photo(1), None, photo(2), photo(3)], "text": "a"} for _ in range(5)]
    dataset = packed(rows, tmp_path / "set")
    entries = dataset.list_records("images", 3)
    assert entries is not None
    (shard,) = (tmp_path / "set").glob("*.arrow")
    data = bytearray(shard.read_bytes())
    data[int(entries[2]["offset"]) + 9] ^= 1
    shard.write_bytes(data)
    (problem,), count = verify(tmp_path / "set")
    assert count == 5
    assert problem.sample == 3
    assert "field 'images', picture 2: CRC-32C" in problem.reason
    with pytest.raises(ChecksumError):
        PackedFiles(tmp_path / "set").value("images", 3)
    assert PackedFiles(tmp_path / "set").value("images", 2) == rows[2]["images"]


def test_a_table_that_lies_is_refused(tmp_path: Path) -> None:
    packed(drawn_rows(13), tmp_path / "set")
    path = tmp_path / "set" / "field-00.fli"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(ShardTruncated, match=r"field-00.fli"):
        PackedFiles(tmp_path / "set").value("images", 0)
    path.write_bytes(whole[:4100] + bytes([whole[4100] ^ 1]) + whole[4101:])
    with pytest.raises(ChecksumError, match=r"field-00.fli"):
        PackedFiles(tmp_path / "set").value("images", 0)
    problems, _ = verify(tmp_path / "set")
    assert "field 'images'" in problems[0].reason


# ---- Sources ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("element", ["struct", "binary"])
def test_lists_in_typed_tables(suffix: str, element: str, tmp_path: Path) -> None:
    rows = drawn_rows(14)
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells: list[Any] = [row["images"] for row in rows]
    if element == "struct":
        cells = [c if c is None else [one and {"bytes": one, "path": "a.jpg"} for one in c] for c in cells]
    column = pa.array(cells, pa.list_(struct if element == "struct" else pa.binary()))
    texts = pa.array([[{"user": row["text"], "assistant": "b"}] for row in rows])
    table = pa.table({"images": column, "texts": texts})
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=7)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    pack(path, tmp_path / "set", PackOptions(num_proc=2, shard_size=50_000))
    dataset = PackedFiles(tmp_path / "set")
    assert {field.name: field.kind for field in dataset.schema} == {"images": Images(), "texts": Json()}
    assert lists_of(dataset) == [row["images"] for row in rows]
    assert dataset.value("texts", 5) == texts[5].as_py()


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_llava_s_form(suffix: str, tmp_path: Path) -> None:
    """``image`` is a path, a list of paths, or absent."""
    (tmp_path / "coco").mkdir()
    names = []
    for number in range(6):
        names.append(f"coco/{number}.jpg")
        (tmp_path / names[-1]).write_bytes(photo(number))
    draws = random.Random(15)
    rows: list[dict[str, Any]] = []
    for number in range(2500):  # more than what is walked between two known offsets
        turns = [
            {"from": "human", "value": "<image>\nÜ?"},
            {"from": "gpt", "value": "\u2028x" * (number % 9)},
        ]
        rows.append({"id": f"{number}", "conversations": turns})
        images = draws.choice([None, names[0], draws.sample(names, 2), []])
        if images is not None:
            rows[-1]["image"] = images
    text = json.dumps(rows, ensure_ascii=False, indent=1)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / f"a{suffix}").write_text(text if suffix == ".json" else lines)
    pack(tmp_path / f"a{suffix}", tmp_path / "set", PackOptions(num_proc=2, shard_size=100_000))
    dataset = PackedFiles(tmp_path / "set")
    for sample, row in enumerate(rows):
        images = row.get("image")
        images = [images] if isinstance(images, str) else images
        wanted = None if images is None else [(tmp_path / name).read_bytes() for name in images]
        assert dataset.value("image", sample) == wanted
        assert dataset.value("conversations", sample) == row["conversations"]


def test_names_of_pictures_that_are_not_there_are_no_texts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"image": "x/1.jpg", "text": "a"}\n')
    with pytest.raises(PackError, match=r"'image' names image files, and 'x/1.jpg' is none below"):
        pack(tmp_path / "a.jsonl", tmp_path / "set")
    options = PackOptions(fields=(("image", "text"),))
    pack(tmp_path / "a.jsonl", tmp_path / "set", options)
    assert PackedFiles(tmp_path / "set").value("image", 0) == "x/1.jpg"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ('"x/9.jpg"', "'x/9.jpg' is none below"),
        ('["x/1.jpg", "x/9.jpg"]', "'x/9.jpg' is none below"),
        ("3", "as 'x/1.jpg', and has other values among them"),
    ],
)
@pytest.mark.parametrize("first", ['"x/1.jpg"', '["x/1.jpg"]'])
def test_the_name_of_the_one_picture_that_is_not_there(
    tmp_path: Path, first: str, other: str, says: str
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "1.jpg").write_bytes(photo(1))
    (tmp_path / "a.jsonl").write_text(
        f'{{"image": {first}, "text": "a"}}\n{{"image": {other}, "text": "b"}}\n'
    )
    with pytest.raises(PackError, match=says):
        pack(tmp_path / "a.jsonl", tmp_path / "set")
    options = PackOptions(fields=(("image", "images"),), on_error="skip")
    pack(tmp_path / "a.jsonl", tmp_path / "set", options)
    assert PackedFiles(tmp_path / "set").value("image", 0) == [photo(1)]


def test_entries_count_all_pictures(tmp_path: Path) -> None:
    rows = drawn_rows(16)
    dataset = packed(rows, tmp_path / "set")
    entries = dataset.field_records("images")
    assert entries.dtype == RECORD
    assert len(entries) == sum(1 if row["images"] is None else len(row["images"]) for row in rows)
    samples = np.arange(len(rows))
    wanted = [sum(len(one or b"") for one in row["images"] or ()) for row in rows]
    assert dataset.list_bytes("images", samples).tolist() == wanted
    numbers = dataset.record_ids("images", None)
    assert numbers is not None
    assert (entries["length"][numbers] > 0).all()
    assert len(numbers) == sum(one is not None for row in rows for one in row["images"] or ())


def write_tar(path: Path, samples: list[tuple[str, list[tuple[str, bytes]]]]) -> Path:
    """A tar of the samples' members."""
    with tarfile.open(path, "w") as file:
        for key, members in samples:
            for suffix, data in members:
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    return path


def test_all_pictures_of_a_tar_s_samples(tmp_path: Path) -> None:
    draws = random.Random(17)
    lists, samples = [], []
    for number in range(30):
        pictures = [photo(draws.randrange(50)) for _ in range(draws.choice([0, 1, 2, 12]))]
        members = [(f"{place}.jpg", data) for place, data in enumerate(pictures)]
        samples.append((f"{number:04}", [*members, ("json", json.dumps({"n": number}).encode())]))
        lists.append(pictures)
    path = write_tar(tmp_path / "a.tar", samples)
    with pytest.raises(PackError, match=r"has no picture .*--field '\*\.jpg=images' makes a list"):
        pack(path, tmp_path / "no", PackOptions(layout="wds"))
    with pytest.raises(PackError, match=r"--field \*\.jpg: a name with \* stands for several members"):
        pack(path, tmp_path / "no", PackOptions(layout="wds", fields=(("*.jpg", "image"),)))
    options = PackOptions(layout="wds", fields=(("*.jpg", "images"),), shard_size=50_000, num_proc=2)
    pack(path, tmp_path / "set", options)
    dataset = PackedFiles(tmp_path / "set")
    assert dataset.schema.names == ("images", "json")
    assert lists_of(dataset) == lists
    assert [dataset.value("json", sample) for sample in range(30)] == [{"n": n} for n in range(30)]
