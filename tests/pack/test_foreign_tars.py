"""``fastload index`` over WebDataset tars: the same samples as ``tarfile`` and WebDataset's rules give."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pack_trees import encoded, snapshot
from PIL import Image
from tar_reference import PICTURES, bad_members, captioned, samples_of, write_tar

from fastload import DataLoader, PackedDataset
from fastload.cli import main
from fastload.errors import FormatError, PackError
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
SKIP = IndexOptions(on_error="skip")


def check(folder: Path, tars: list[Path]) -> PackedDataset:
    """The samples of the index are those of the reference, and it is whole."""
    dataset, number = PackedDataset(folder), 0
    for tar in tars:
        for sample in samples_of(tar):
            [picture] = [suffix for suffix in sample if suffix in PICTURES]
            assert dataset.read(number) == sample[picture]
            if dataset.manifest.fields:
                found = dataset.sample(number)
                if "txt" in found:
                    assert found["txt"] == bytes(sample.get("txt", b"")).decode()  # type: ignore[arg-type]
                if "json" in found:
                    assert found["json"] == json.loads(sample.get("json", b"null"))
            assert dataset.labels[number] == int(sample.get("cls", b"-1"))
            number += 1
    assert number == len(dataset)
    assert verify(folder, decode=True) == ([], number)
    return dataset


@pytest.mark.parametrize("form", FORMATS)
def test_captions_and_facts(tmp_path: Path, form: int) -> None:
    tars = [write_tar(tmp_path / f"{k:05d}.tar", captioned(8, 8 * k), form) for k in range(3)]
    before = snapshot(tmp_path)
    manifest = index_files([tmp_path], tmp_path / "out")
    assert (manifest.format, manifest.version, manifest.skipped) == ("tar", (1, 1), 0)
    assert str(manifest.schema) == "image=image, txt=text, json=json"
    dataset = check(tmp_path / "out", tars)
    assert dataset.key(9) == "000000009.jpg"
    assert {name: data for name, data in snapshot(tmp_path).items() if "out" not in name} == before
    assert (tmp_path / "out" / "entries.fli").exists()
    for batch in DataLoader(tmp_path / "out", 24, cache="off", fields=["txt"]):
        assert batch["txt"] == [f"a picture of {i} cafés" for i in range(24)]


def test_a_picture_and_a_class_are_a_plain_set(tmp_path: Path) -> None:
    members = [
        (f"{i}.{s}", d) for i in range(6) for s, d in (("cls", b"%d\n" % (i % 3)), ("png", encoded(i, "PNG")))
    ]
    write_tar(tmp_path / "a.tar", members)
    manifest = index_files([tmp_path / "a.tar"], tmp_path / "out")
    assert manifest.is_plain
    assert check(tmp_path / "out", [tmp_path / "a.tar"]).labels.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("form", FORMATS[1:])
def test_long_and_odd_names(tmp_path: Path, form: int) -> None:
    names = ["d" * 90 + "/" + "e" * 90 + "/" + "n" * 60, "ä/ö", "d.x/y", "./dot", "a" * 300]
    members = [(f"{name}.{suffix}", data) for name in names
               for suffix, data in (("JPG", encoded(len(name))), ("txt", name.encode()))]  # fmt: skip
    tar = write_tar(tmp_path / "a.tar", [("__meta__/x.jpg", b"no"), *members], form)
    index_files([tar], tmp_path / "out")
    dataset = check(tmp_path / "out", [tar])
    assert [dataset.key(i) for i in range(len(dataset))] == [f"{name}.JPG" for name in names]


def test_names_that_split_over_the_prefix(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("p" * 120 + "/" + "n" * 50 + ".jpg", encoded(1))])
    index_files([tar], tmp_path / "out")
    assert check(tmp_path / "out", [tar]).key(0) == "p" * 120 + "/" + "n" * 50 + ".jpg"


def test_names_that_are_not_utf8_come_back(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("caf\udce9.jpg", encoded(1))], tarfile.GNU_FORMAT)
    index_files([tar], tmp_path / "out")
    assert PackedDataset(tmp_path / "out").key(0) == "caf%E9.jpg"
    unpack(tmp_path / "out", tmp_path / "back")
    assert [p.name for p in (tmp_path / "back").iterdir()] == ["caf\udce9.jpg"]


def test_names_of_several_tars_that_are_the_same(tmp_path: Path) -> None:
    tars = [write_tar(tmp_path / f"{k}.tar", captioned(3)) for k in range(2)]
    index_files(tars, tmp_path / "out")
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.key(i) for i in (0, 5)] == ["0/000000000.jpg", "1/000000002.jpg"]


def test_values_that_are_missing(tmp_path: Path) -> None:
    first = write_tar(tmp_path / "0.tar", [("a.jpg", encoded(0)), ("b.jpg", encoded(1)), ("b.cls", b"4")])
    other = write_tar(tmp_path / "1.tar", captioned(2))
    index_files([first, other], tmp_path / "out")
    dataset = check(tmp_path / "out", [first, other])
    found = [dataset.sample(i) for i in range(4)]
    assert [one["txt"] for one in found] == ["", "", "a picture of 0 cafés", "a picture of 1 cafés"]
    assert [one["json"] is None for one in found] == [True, True, False, False]
    assert [one["label"] for one in found] == [-1, 4, -1, -1]


def test_a_text_that_is_missing_is_none_where_that_is_kept(tmp_path: Path) -> None:
    members = [
        ("a.jpg", encoded(0)),
        ("b.jpg", encoded(1)),
        ("b.txt", b""),
        ("c.jpg", encoded(2)),
        ("c.txt", b"x"),
    ]
    first = write_tar(tmp_path / "0.tar", members)
    other = write_tar(tmp_path / "1.tar", [("d.jpg", encoded(3)), ("e.jpg", encoded(4))])  # none in all of it
    index_files([first, other], tmp_path / "out", IndexOptions(fields=(("txt", "text(null=True)"),)))
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.sample(i)["txt"] for i in range(5)] == [None, "", "x", None, None]
    [batch] = DataLoader(dataset, 5, cache="off", fields=["txt"])
    assert batch["txt"] == [None, "", "x", None, None]


def test_bad_samples_follow_the_policy_and_are_listed(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", bad_members())
    with pytest.raises(PackError, match=r"not usable as images: 8 records") as raised:
        index_files([tar], tmp_path / "out")
    assert "a.tar, record 0 (a.jpg): 'txt' is not UTF-8: invalid start byte at byte 0" in str(raised.value)
    assert not any((tmp_path / "out").glob("field-*"))
    manifest = index_files([tar], tmp_path / "out", SKIP)
    lines = [json.loads(line) for line in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    found = {line["path"].removeprefix("a.tar: "): line["reason"] for line in lines}
    assert manifest.skipped == len(lines) == 10
    assert found.keys() == {
        "a.jpg",
        "b.jpg",
        "c",
        "d.jpg",
        "e.jpg",
        "f.jpg",
        "h.jpg",
        "i.jpg",
        "*.npy",
        "plain",
    }
    assert found["c"] == "has no picture 'image'"
    assert found["d.jpg"] == "'label' must be a class's number. Found: 'cat'"
    assert found["f.jpg"] == "has two members .jpg"
    assert found["*.npy"] == "2 members of no kind that is known; --field npy=bytes takes them"
    assert found["plain"] == "its name has no suffix"
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.key(i) for i in range(len(dataset))] == ["g.jpg"]
    assert verify(tmp_path / "out", decode=True) == ([], 1)


def png(array: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, "PNG")
    return out.getvalue()


def test_further_pictures_are_fields(tmp_path: Path) -> None:
    ids = [np.random.default_rng(i).integers(0, 5, (9, 7 + i)).astype(np.uint8) for i in range(4)]
    members = [m for i in range(4) for m in (
        (f"{i}.seg.png", png(ids[i])), (f"{i}.left.jpg", encoded(10 + i)), (f"{i}.jpg", encoded(i)),
        (f"{i}.cls2", b"%d" % i), (f"{i}.x.bin", b"\0%d" % i),
    )]  # fmt: skip
    tar = write_tar(tmp_path / "a.tar", members)
    options = IndexOptions(fields=(("cls2", "label"), ("x.bin", "bytes")))
    manifest = index_files([tar], tmp_path / "out", options)
    assert str(manifest.schema) == "image=image, label=label, seg.png=mask, left.jpg=image, x.bin=bytes"
    dataset = PackedDataset(tmp_path / "out")
    for i in range(4):
        found = dataset.sample(i)
        assert np.array_equal(found["seg.png"], ids[i])
        assert (found["label"], found["x.bin"]) == (i, b"\0%d" % i)
        assert dataset.value_bytes("left.jpg", i) == encoded(10 + i)
    assert verify(tmp_path / "out", decode=True) == ([], 4)
    assert index_files([tar], tmp_path / "out", options) == manifest
    with pytest.raises(PackError, match="other options"):
        index_files([tar], tmp_path / "out", SKIP)


def test_two_pictures_must_be_told_apart(tmp_path: Path) -> None:
    ids = np.arange(20, dtype=np.uint8).reshape(4, 5)
    tar = write_tar(tmp_path / "a.tar", [("0.jpg", encoded(0)), ("0.png", png(ids))])
    with pytest.raises(FormatError, match=r"0\.jpg has 2 pictures \(jpg, png\).*--field png=mask"):
        index_files([tar], tmp_path / "out")
    index_files([tar], tmp_path / "a", IndexOptions(fields=(("png", "mask"),)))
    assert np.array_equal(PackedDataset(tmp_path / "a").sample(0)["png"], ids)
    assert index_files([tar], tmp_path / "b", IndexOptions(fields=(("png", "none"),))).is_plain


def test_what_is_no_file_is_listed(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.jpg", encoded(0))])
    with tarfile.open(path, "a") as file:
        kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
        for name, kind in zip(("1.jpg", "2.jpg", "3.jpg", "d"), kinds, strict=True):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "0.jpg"
            file.addfile(info)
    assert index_files([path], tmp_path / "out").skipped == 3
    text = (tmp_path / "out" / "skipped.jsonl").read_text()
    assert [json.loads(line)["reason"] for line in text.splitlines()] == [
        "is a symbolic link", "is a hard link", "is a pipe",
    ]  # fmt: skip
    check(tmp_path / "out", [path])


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar"])
def test_compressed_tars_are_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / name, "w:gz") as file:
        file.add(write_tar(tmp_path / "x", []), "x")
    for place in (tmp_path / name, tmp_path):
        with pytest.raises(FormatError, match=r"gzip.*'fastload pack .* OUTPUT --as wds' packs it"):
            index_files([place], tmp_path / "out")


def test_fields_that_cannot_be(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", captioned(1))
    for fields, words in (
        ((("txt", "boxes"),), "can be image, images, mask, label, text, json, bytes or none"),
        ((("txt", "what"),), "--field"),
    ):
        with pytest.raises((FormatError, PackError), match=words):
            index_files([tar], tmp_path / "out", IndexOptions(fields=fields))
    with pytest.raises(FormatError, match="suffixes, not columns"):
        index_files([tar], tmp_path / "out", IndexOptions(column="jpg"))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tar = write_tar(tmp_path / "a.tar", captioned(2))
    words = ["index", str(tar), "--output", str(tmp_path / "out"), "--field", "json=none", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 2
    assert str(PackedDataset(tmp_path / "out").schema) == "image=image, txt=text"
    assert main(["index", str(tar), "--output", str(tmp_path / "x"), "--field", "json"]) == 1
    assert "NAME=KIND" in capsys.readouterr().err


SUFFIXES = st.sampled_from(["jpg", "JPG", "txt", "json", "cls", "npy"])
NAMES = st.builds(
    "{}{}.{}".format, st.sampled_from(["", "d/", "d.e/", "__m__/"]), st.sampled_from("ab_"), SUFFIXES
)
DATA = {"jpg": encoded(1), "txt": "é".encode(), "json": b'{"a": 1}', "cls": b"3", "npy": b"x"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.one_of(NAMES, st.sampled_from(["plain", "d"])), max_size=12),
    form=st.sampled_from(FORMATS),
)
def test_any_order_of_members_groups_as_the_rules_say(tmp_path: Path, names: list[str], form: int) -> None:
    members = [(name, DATA.get(name.rpartition(".")[2].lower(), b"?")) for name in names]
    tar = write_tar(tmp_path / "a.tar", members, form)
    index_files([tar], tmp_path / "out", IndexOptions(on_error="skip", restart=True, entries=None))
    dataset, number = PackedDataset(tmp_path / "out"), 0
    seen: list[tuple[str, str]] = []  # neighbours of one key with a suffix twice are bad
    for name in names:
        if not name.startswith("__m__") and "." in name.rpartition("/")[2]:
            key, _, suffix = name.rpartition(".")
            seen.append((key, suffix.lower()))
    groups: list[list[tuple[str, str]]] = []
    for one in seen:
        if groups and groups[-1][0][0] == one[0]:
            groups[-1].append(one)
        else:
            groups.append([one])
    for sample, group in zip(samples_of(tar), groups, strict=True):
        if "jpg" not in sample or len(set(group)) != len(group):
            continue
        assert dataset.read(number) == sample["jpg"]
        assert dataset.labels[number] == int(sample.get("cls", b"-1"))
        if "txt" in dataset.schema:
            assert dataset.sample(number)["txt"] == bytes(sample.get("txt", b"")).decode()  # type: ignore[arg-type]
        number += 1
    assert number == len(dataset)
