"""What can be packed, and in what order and with which labels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pack_trees import class_tree, encoded, image_folder_samples, make_tree

from fastload import PackedDataset
from fastload.errors import PackError
from fastload.packing import PackOptions, pack
from fastload.packing.verify import verify

ONE = PackOptions(num_proc=1)


def contents(folder: Path) -> list[tuple[str, int]]:
    """Key and label of every sample."""
    dataset = PackedDataset(folder)
    return [(dataset.key(i), int(dataset.labels[i])) for i in range(len(dataset))]


def test_order_is_image_folders_even_where_names_are_awkward(tmp_path: Path) -> None:
    names = [
        "b/z.jpg",
        "b/a b/1.jpg",
        "b/a/2.jpg",
        "b/a.jpg",
        "B/1.jpg",
        "b-c/1.jpg",
        "b/a-b/3.jpg",
        "é/1.jpg",
    ]
    source = make_tree(tmp_path / "source", {name: encoded(i) for i, name in enumerate(names)})
    make_tree(
        source, {"b/notes.txt": b"no image", "README.md": b"-", "top.jpg": encoded(50), "empty/x.txt": b""}
    )
    pack(source, tmp_path / "out", ONE)
    assert contents(tmp_path / "out") == image_folder_samples(source)
    assert PackedDataset(tmp_path / "out").classes == ["B", "b", "b-c", "empty", "é"]


def test_flat_folder_has_no_labels(tmp_path: Path, format_name: str) -> None:
    source = make_tree(tmp_path / "source", {f"{i}.jpg": encoded(i) for i in (10, 9, 1)})
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    assert contents(tmp_path / "out") == [("1.jpg", -1), ("10.jpg", -1), ("9.jpg", -1)]
    assert PackedDataset(tmp_path / "out").classes == []


def test_train_and_val_become_a_dataset_each(tmp_path: Path) -> None:
    source = tmp_path / "source"
    make_tree(
        source, {"train/cat/a.jpg": encoded(0), "train/dog/b.jpg": encoded(1), "train/emu/c.jpg": encoded(2)}
    )
    make_tree(source, {"val/dog/d.jpg": encoded(3), "val/emu/e.jpg": encoded(4)})
    results = pack(source, tmp_path / "out", ONE)
    assert [result.output.name for result in results] == ["train", "val"]
    assert contents(tmp_path / "out" / "train") == [("cat/a.jpg", 0), ("dog/b.jpg", 1), ("emu/c.jpg", 2)]
    # A class that val lacks must not shift val's labels against train's.
    assert contents(tmp_path / "out" / "val") == [("dog/d.jpg", 1), ("emu/e.jpg", 2)]
    assert PackedDataset(tmp_path / "out" / "val").classes == ["cat", "dog", "emu"]
    assert (tmp_path / "out" / "train" / "train-00000-of-00001.arrow").exists()


def table(tmp_path: Path, name: str, text: str) -> Path:
    make_tree(tmp_path, {f"images/{i}.jpg": encoded(i) for i in range(4)})
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "path,label\nimages/2.jpg,dog\nimages/0.jpg,cat\nimages/1.jpg,dog\n",
        "images/2.jpg,dog\nimages/0.jpg,cat\nimages/1.jpg,dog\n",
        '\ufeffid,Label,Path\n7,dog,images/2.jpg\n8,cat,"images/0.jpg"\n9,dog,./images/../images/1.jpg\n',
    ],
)
def test_csv_with_names(tmp_path: Path, text: str) -> None:
    pack(table(tmp_path, "list.csv", text), tmp_path / "out", ONE)
    assert contents(tmp_path / "out") == [("images/2.jpg", 1), ("images/0.jpg", 0), ("images/1.jpg", 1)]
    assert PackedDataset(tmp_path / "out").classes == ["cat", "dog"]


def test_csv_with_numbers(tmp_path: Path) -> None:
    text = "path,label\nimages/2.jpg,3\nimages/0.jpg,-1\nimages/1.jpg,1\n"
    pack(table(tmp_path, "list.csv", text), tmp_path / "out", ONE)
    assert [label for _, label in contents(tmp_path / "out")] == [3, -1, 1]
    assert PackedDataset(tmp_path / "out").classes == ["0", "1", "2", "3"]


def test_csv_with_paths_only(tmp_path: Path) -> None:
    pack(table(tmp_path, "list.csv", "images/3.jpg\nimages/1.jpg\n"), tmp_path / "out", ONE)
    assert contents(tmp_path / "out") == [("images/3.jpg", -1), ("images/1.jpg", -1)]


def test_jsonl(tmp_path: Path) -> None:
    rows = [{"path": "images/3.jpg", "label": "b"}, {"path": str(tmp_path / "images/1.jpg"), "label": "a"}]
    text = "\n\n".join(json.dumps(row) for row in rows)
    pack(table(tmp_path, "list.jsonl", text), tmp_path / "out", ONE)
    assert contents(tmp_path / "out") == [("images/3.jpg", 1), ("images/1.jpg", 0)]


def test_files_outside_the_tables_folder_keep_their_absolute_name(tmp_path: Path) -> None:
    make_tree(tmp_path / "far", {"x.jpg": encoded(1)})
    (tmp_path / "lists").mkdir()
    path = table(tmp_path, "lists/list.csv", "../far/x.jpg,1\n")
    pack(path, tmp_path / "out", ONE)
    assert contents(tmp_path / "out") == [(str(tmp_path / "far" / "x.jpg").lstrip("/"), 1)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("list.csv", "", "is empty"),
        ("list.csv", "a,b,c\n1,2,3\n", "neither pictures nor texts"),
        ("list.csv", "path,label\nimages/1.jpg\n", "has 1 columns"),
        ("list.csv", "images/1.jpg,1\n./images/1.jpg,2\n", "more than once"),
        ("list.csv", "images/1.jpg,-7\n", "must be in"),
        ("list.csv", "images/1.jpg,99999999999\n", "must be in"),
        ("list.csv", "images/9.jpg,1\n", "No such file"),
        ("list.jsonl", '{"path": "a.jpg"', "line 1"),
        ("list.jsonl", '{"label": 1}', "line 1"),
        ("list.jsonl", '\n{"path": 3, "label": 1}', "line 2"),
        ("list.jsonl", "[" * 100000, "line 1"),
        ("list.txt", "images/1.jpg", "neither a folder nor"),
    ],
)
def test_bad_tables(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(PackError, match=message):
        pack(table(tmp_path, name, text), tmp_path / "out", ONE)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source", classes=2, images=3)
    make_tree(tmp_path / "elsewhere", {"far.jpg": encoded(9), "deep/er.jpg": encoded(10)})
    (source / "class 0" / "linked").symlink_to(tmp_path / "elsewhere")
    (source / "class 0" / "link.jpg").symlink_to(tmp_path / "elsewhere" / "far.jpg")
    expected = image_folder_samples(source)
    (source / "class 0" / "self").symlink_to(source / "class 0")
    (source / "class 1" / "up").symlink_to(Path(".."))
    pack(source, tmp_path / "out", ONE)
    found = contents(tmp_path / "out")
    # A link to a folder above is followed once, as far as it does not come back to where it began.
    inside = [sample for sample in found if "/up/" not in sample[0]]
    assert inside == expected
    assert len(found) < 40


def test_dangling_link_and_directory_with_an_images_name(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"c/a.jpg": encoded(0), "c/dir.jpg/b.jpg": encoded(1)})
    (source / "c" / "gone.jpg").symlink_to("nowhere")
    with pytest.raises(PackError, match=r"1 file .*\n  c/gone\.jpg: cannot open the file: No such file"):
        pack(source, tmp_path / "out", ONE)
    pack(source, tmp_path / "out", PackOptions(num_proc=1, on_error="skip"))
    assert contents(tmp_path / "out") == [("c/a.jpg", 0), ("c/dir.jpg/b.jpg", 0)]


BAD = {
    "c/empty.jpg": b"",
    "c/text.jpg": b"hello, I am no image",
    "c/short.png": encoded(3, "PNG")[:20],
    "c/cut.jpg": encoded(4)[:8],
}


@pytest.mark.parametrize("processes", [1, 2])
def test_bad_files_are_listed(tmp_path: Path, format_name: str, processes: int) -> None:
    source = class_tree(tmp_path / "source", classes=2)
    make_tree(source, BAD)
    options = PackOptions(format=format_name, num_proc=processes, shard_size=30000)
    with pytest.raises(PackError) as caught:
        pack(source, tmp_path / "out", options)
    for name in BAD:
        assert f"  {name}: " in str(caught.value)
    assert not (tmp_path / "out" / "dataset.json").exists()
    [result] = pack(
        source, tmp_path / "out",
        PackOptions(format=format_name, num_proc=processes, shard_size=30000, on_error="skip"),
    )  # fmt: skip
    assert result.manifest.skipped == 4
    assert [key for key, _ in contents(tmp_path / "out")] == [
        name for name, _ in image_folder_samples(source) if name not in BAD
    ]
    lines = [json.loads(line) for line in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    assert {line["path"] for line in lines} == set(BAD)
    assert all(line["reason"] for line in lines)
    assert sum(count for _, count in result.skip_reasons()) == 4


def test_only_twenty_bad_files_are_shown(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {f"c/{i:02d}.jpg": b"x" for i in range(50)})
    with pytest.raises(PackError) as caught:
        pack(source, tmp_path / "out", ONE)
    assert str(caught.value).count("not an image") == 20
    assert "30 more" in str(caught.value)


def test_nothing_but_bad_files(tmp_path: Path, format_name: str) -> None:
    source = make_tree(tmp_path / "source", {f"c/{i:02d}.jpg": b"x" for i in range(3)})
    pack(source, tmp_path / "out", PackOptions(format=format_name, num_proc=1, on_error="skip"))
    assert contents(tmp_path / "out") == []


def test_fifo_does_not_block(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"c/a.jpg": encoded(0)})
    os.mkfifo(source / "c" / "pipe.jpg")
    with pytest.raises(PackError, match="not a regular file"):
        pack(source, tmp_path / "out", ONE)


def test_codecs_are_sniffed(tmp_path: Path) -> None:
    files = {"c/a.png": encoded(0, "JPEG"), "c/b.jpg": encoded(1, "PNG"), "c/c.bmp": encoded(2, "WEBP")}
    files |= {"c/d.jpg": encoded(3, "GIF"), "c/e.tif": encoded(4, "TIFF"), "c/f.jpg": encoded(5, "BMP")}
    make_tree(tmp_path / "source", files)
    [result] = pack(tmp_path / "source", tmp_path / "out", ONE)
    assert result.manifest.codecs == dict.fromkeys(("jpeg", "png", "webp", "gif", "bmp", "tiff"), 1)


@pytest.mark.parametrize("inside", ["", "sub/out"])
def test_output_inside_the_source_is_refused(tmp_path: Path, inside: str) -> None:
    source = class_tree(tmp_path / "source")
    with pytest.raises(PackError, match="lies inside the source"):
        pack(source, source / inside, ONE)


def test_output_with_other_files_is_refused(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source")
    make_tree(tmp_path / "out", {"thesis.tex": b"years of work"})
    with pytest.raises(PackError, match=r"not empty.*thesis\.tex"):
        pack(source, tmp_path / "out", ONE)
    pack(source, tmp_path / "out", PackOptions(num_proc=1, restart=True))
    assert (tmp_path / "out" / "thesis.tex").read_bytes() == b"years of work"


@pytest.mark.parametrize("missing", ["nowhere", "empty"])
def test_nothing_to_pack(tmp_path: Path, missing: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackError, match=r"does not exist|no images"):
        pack(tmp_path / missing, tmp_path / "out", ONE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_unreadable_folder(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source")
    (source / "class 1").chmod(0)
    try:
        with pytest.raises(PackError, match="class 1: cannot read the folder: Permission denied"):
            pack(source, tmp_path / "out", ONE)
        pack(source, tmp_path / "out", PackOptions(num_proc=1, on_error="skip"))
        assert len(contents(tmp_path / "out")) == 36
    finally:
        (source / "class 1").chmod(0o755)


TOUCH = """
import os, sys
for step in range(1, 10**12):
    os.utime(sys.argv[1], ns=(step, step * 1000))
    if step == 1:
        print(flush=True)
"""


def pack_until_it_fails(source: Path, folder: Path) -> None:
    for attempt in range(50):  # the scheduler may let the packer read a whole file undisturbed
        pack(source, folder / f"out{attempt}", ONE)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    """A writer that never stops: the file is read twice, then it is an error of that file.

    The writer is a process: it waits for nothing of this one's. The file is long, on the disk mostly a hole.
    """
    source = make_tree(tmp_path / "source", {"c/a.jpg": encoded(0), "c/b.bmp": encoded(1, "BMP", 1500, 1500)})
    target = source / "c" / "b.bmp"
    os.truncate(target, 100 << 20)
    writer = subprocess.Popen([sys.executable, "-S", "-c", TOUCH, target], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(PackError, match=r"c/b\.bmp: the file changes while it is read"):
            pack_until_it_fails(source, tmp_path)
    finally:
        writer.kill()
        writer.communicate()


def test_a_shard_all_of_whose_files_are_skipped_is_not_kept(tmp_path: Path, format_name: str) -> None:
    good, bad = encoded(1, "PNG", 40, 40), b"no image".ljust(5000)
    files = {f"c/{i}.png": bad if i in (0, 2) else good for i in range(4)}
    options = PackOptions(format=format_name, num_proc=1, shard_size=6000, on_error="skip")
    [result] = pack(make_tree(tmp_path / "source", files), tmp_path / "out", options)
    assert [shard.records for shard in result.manifest.shards] == [1, 1]
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.key(i) for i in range(2)] == ["c/1.png", "c/3.png"]
    assert [dataset.read(i) for i in range(2)] == [good, good]
    suffix = {"arrow": "arrow", "lmdb": "lmdb", "hdf5": "h5"}[format_name]
    assert len(list((tmp_path / "out").glob(f"*.{suffix}"))) == 2
    assert verify(tmp_path / "out") == ([], 2)
    [again] = pack(tmp_path / "source", tmp_path / "out", options)
    assert again.was_complete


def test_one_bad_file_is_one_file(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"c/a.png": b"no image"})
    with pytest.raises(PackError, match="^1 file cannot be packed"):
        pack(source, tmp_path / "out", PackOptions(num_proc=1))


def test_labels_too_many_for_names(tmp_path: Path, format_name: str) -> None:
    """Ten million placeholders made a manifest of 128 MB, which no reader takes."""
    make_tree(tmp_path, {f"{i}.jpg": encoded(i) for i in range(2)})
    (tmp_path / "list.csv").write_text("0.jpg,0\n1.jpg,9999999\n")
    pack(tmp_path / "list.csv", tmp_path / "out", PackOptions(format=format_name, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    assert (dataset.classes, dataset.labels.tolist()) == ([], [0, 9_999_999])
    assert (tmp_path / "out" / "dataset.json").stat().st_size < 10_000
    assert verify(tmp_path / "out", decode=True) == ([], 2)


def test_names_that_no_manifest_has_room_for(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"{i}.jpg": encoded(i) for i in range(70)})
    lines = [json.dumps({"path": f"{i}.jpg", "label": f"{i}{'x' * 1_000_000}"}) for i in range(70)]
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    with pytest.raises(PackError, match=r"names of 70 classes.* would have about \d+ bytes, and may"):
        pack(tmp_path / "list.jsonl", tmp_path / "out", PackOptions(num_proc=1))
    assert not list((tmp_path / "out").glob("*.arrow"))


def test_a_field_that_no_csv_has(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("a.jpg,cat\nb.jpg," + "x" * 200_000)
    with pytest.raises(PackError, match=r"list\.csv, line 2: field larger than"):
        pack(tmp_path / "list.csv", tmp_path / "out", PackOptions(num_proc=1))
