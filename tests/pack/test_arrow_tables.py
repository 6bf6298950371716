"""Packing Parquet and Arrow files of this machine: one, a folder of them, splits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hub_tables import CLASSES, arrow_bytes, parquet_bytes, table
from pictures import jpegs

from fastload.errors import PackError
from fastload.packing.arrow_rows import ArrowRows
from fastload.packing.options import PackOptions
from fastload.packing.packer import dry_run, pack
from fastload.packing.stored import TableFile
from fastload.packing.table_files import split_sets, table_sets
from fastload.shard.dataset import PackedFiles

IMAGES = jpegs(23)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """A folder with these files."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def assert_is(place: Path, images: list[bytes], first: int = 0) -> None:
    dataset = PackedFiles(place)
    assert dataset.is_plain
    assert dataset.classes == list(CLASSES)
    assert [dataset.read(i) for i in range(len(dataset))] == images
    assert dataset.labels.tolist() == [(first + i) % 3 for i in range(len(images))]
    assert [dataset.key(i) for i in range(len(dataset))] == [
        f"bird{first + i}.jpg" for i in range(len(images))
    ]


def test_the_parts_of_a_set_are_read_in_order(tmp_path: Path) -> None:
    parts = {f"data/train-{i:05}-of-00003.parquet": parquet_bytes(table(IMAGES[i * 8 : i * 8 + 8], i * 8))
             for i in range(3)}  # fmt: skip
    write(tmp_path / "repository", {**parts, "README.md": b"#", ".cache/x.parquet": b"no"})
    [result] = pack(tmp_path / "repository", tmp_path / "set")
    assert result.output == tmp_path / "set"
    assert_is(tmp_path / "set", IMAGES)
    assert pack(tmp_path / "repository", tmp_path / "set")[0].was_complete
    write(
        tmp_path / "repository", {"data/train-00002-of-00003.parquet": parquet_bytes(table(IMAGES[:7], 16))}
    )
    with pytest.raises(PackError, match="holds a pack of other samples"):
        pack(tmp_path / "repository", tmp_path / "set")


@pytest.mark.parametrize("start", [0, 1, 4, 5, 8, 9, 16, 22, 23])
@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_rows_from_anywhere(tmp_path: Path, kind: str, start: int) -> None:
    files = []
    for number, part in enumerate((IMAGES[:9], IMAGES[9:], [])):
        rows = table(part, 9 * number)
        path = tmp_path / (f"{number}.parquet" if kind == "parquet" else f"{number}.arrow")
        path.write_bytes(parquet_bytes(rows) if kind == "parquet" else arrow_bytes(rows, kind == "stream"))
        files.append(TableFile(str(path), path.stat().st_size, str(path)))
    rows = ArrowRows(files, "all", b"/")
    assert rows.count() == 23
    found = [(row["image"]["bytes"], row["label"]) for row in rows.walk(start)]
    assert found == [(IMAGES[i], i % 3) for i in range(start, 23)]
    assert list(rows.walk(start, ["label"])) == [{"label": i % 3} for i in range(start, 23)]


def test_splits_become_sets(tmp_path: Path) -> None:
    train, test = parquet_bytes(table(IMAGES[:15])), parquet_bytes(table(IMAGES[15:], 15))
    write(tmp_path / "a", {"train-00000-of-00001.parquet": train, "test-00000-of-00001.parquet": test})
    write(tmp_path / "b", {"train/0000.parquet": train, "test/0000.parquet": test})
    write(tmp_path / "c", {"train/data-00000-of-00001.arrow": arrow_bytes(table(IMAGES[:15])),
                           "test/data-00000-of-00001.arrow": arrow_bytes(table(IMAGES[15:], 15)),
                           "train/cache-0123.arrow": b"no"})  # fmt: skip
    for name in "abc":
        pack(tmp_path / name, tmp_path / f"{name}-packed")
        assert_is(tmp_path / f"{name}-packed" / "train", IMAGES[:15])
        assert_is(tmp_path / f"{name}-packed" / "test", IMAGES[15:], 15)
    plans = dry_run(tmp_path / "a", tmp_path / "none")
    assert [(plan.output.name, plan.records) for plan in plans] == [("test", 8), ("train", 15)]


def test_texts_mean_the_same_class_in_all_splits(tmp_path: Path) -> None:
    rows = [table(IMAGES[:4]), table(IMAGES[4:8], 4)]
    for number, (split, names) in enumerate((("train", "abca"), ("val", "dbbd"))):
        made = (
            rows[number]
            .replace_schema_metadata(None)
            .drop_columns("label")
            .append_column("label", [[*names]])
        )
        write(tmp_path / "t", {f"{split}.parquet": parquet_bytes(made)})
    pack(tmp_path / "t", tmp_path / "set")
    for split, labels in (("train", [0, 1, 2, 0]), ("val", [3, 1, 1, 3])):
        dataset = PackedFiles(tmp_path / "set" / split)
        assert dataset.classes == ["a", "b", "c", "d"]
        assert dataset.labels.tolist() == labels


def test_further_columns_are_fields(tmp_path: Path) -> None:
    rows = table(IMAGES[:6], caption=[f"bird {i}" for i in range(6)], size=[0.5, None, 1, 2, 3, 4])
    write(tmp_path, {"t.arrow": arrow_bytes(rows)})
    pack(tmp_path / "t.arrow", tmp_path / "set")
    dataset = PackedFiles(tmp_path / "set")
    assert str(dataset.schema["size"].kind.name) == "scalar"
    assert [dataset.value_bytes("caption", i).decode() for i in range(6)] == [f"bird {i}" for i in range(6)]
    fields = (("caption", "none"), ("size", "none"))
    pack(tmp_path / "t.arrow", tmp_path / "plain", PackOptions(fields=fields))
    assert_is(tmp_path / "plain", IMAGES[:6])


def test_bad_pictures_are_named_or_left_out(tmp_path: Path) -> None:
    images: list[bytes | None] = [*IMAGES[:3], b"no picture", None, IMAGES[3]]
    write(tmp_path, {"t.parquet": parquet_bytes(table(images))})
    with pytest.raises(PackError, match="2 samples cannot be packed:\n *bird3.jpg"):
        pack(tmp_path / "t.parquet", tmp_path / "set")
    [result] = pack(tmp_path / "t.parquet", tmp_path / "set", PackOptions(on_error="skip"))
    assert result.manifest.skipped == 2
    dataset = PackedFiles(tmp_path / "set")
    assert [dataset.read(i) for i in range(4)] == IMAGES[:4]
    assert dataset.labels.tolist() == [0, 1, 2, 2]


def test_what_is_no_set_is_said(tmp_path: Path) -> None:
    one, other = parquet_bytes(table(IMAGES[:3])), parquet_bytes(table(IMAGES[:3], x=[1, 2, 3]))
    write(tmp_path / "columns", {"a.parquet": one, "b.parquet": other})
    with pytest.raises(
        PackError, match=r"b.parquet has other columns than .*a.parquet: image: struct.*, x: int64"
    ):
        pack(tmp_path / "columns", tmp_path / "set")
    write(tmp_path / "sets", {"big/train.parquet": one, "small/train.parquet": one})
    with pytest.raises(PackError, match="tables of several sets, in the folders 'big', 'small'"):
        pack(tmp_path / "sets", tmp_path / "set")
    write(tmp_path / "cut", {"a.parquet": one[:-100]})
    with pytest.raises(PackError, match="a.parquet is not a whole Parquet file"):
        pack(tmp_path / "cut", tmp_path / "set")
    data = arrow_bytes(table(IMAGES[:9]))
    write(tmp_path / "cut2", {"a.arrow": data[: len(data) // 2]})
    with pytest.raises(PackError, match="a.arrow is not a whole Arrow IPC file"):
        pack(tmp_path / "cut2", tmp_path / "set")


def test_folders_of_images_are_no_tables(tmp_path: Path) -> None:
    write(tmp_path / "images", {"a/1.jpg": IMAGES[0], "b/2.jpg": IMAGES[1], "metadata.parquet": b"PAR1"})
    assert table_sets(tmp_path / "images") == []
    pack(tmp_path / "images", tmp_path / "set")
    assert PackedFiles(tmp_path / "set").classes == ["a", "b"]


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["a.parquet", "b.parquet"], [""]),
        (["train.parquet", "test.parquet"], ["test", "train"]),
        (["x-00000-of-00002.parquet", "x-00001-of-00002.parquet"], [""]),
        (["x-00000-of-00001.parquet", "y-00000-of-00001-0123456789abcdef.parquet"], ["x", "y"]),
        (["train/0000.parquet", "train/0001.parquet", "test/0000.parquet"], ["test", "train"]),
        (["train_0.parquet", "train_1.parquet", "val_0.parquet"], ["train", "val"]),
    ],
)
def test_names_of_splits(names: list[str], splits: list[str]) -> None:
    sets = split_sets("here", {name: TableFile(name, 1, name) for name in names}, b"/")
    assert [split for split, _ in sets] == splits
    assert sorted(file.path for _, rows in sets for file in rows.files) == sorted(names)


def test_pages_that_memory_cannot_hold_are_an_error_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_bytes(table(IMAGES[:3])))
    opened = TableFile(path.name, path.stat().st_size, str(path)).opened()
    with (
        pytest.raises(PackError, match=r"^a\.parquet needs more memory than this process can take"),
        opened,
    ):
        pa.allocate_buffer(1 << 60)  # as pyarrow does for a page that says that it is so large
