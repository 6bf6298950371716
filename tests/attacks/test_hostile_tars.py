"""Hostile and damaged tars given to ``fastload index``: an error or what ``tarfile`` reads, nothing else."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from attack_rules import Rule, breaks
from pack_trees import encoded
from tar_reference import samples_of, write_tar

from fastload import PackedDataset, pack
from fastload.errors import FastloadError, FormatError, PackError
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.unpack import unpack
from fastload.shard.tar import members_of, read_foreign

CHANGED = Rule("FORMAT.md", "dataset.json", "and a shard file of another size")
PATHS = Rule("FORMAT.md", "Keys", "A key MUST NOT be used as a path without a check")
RANGES = Rule(
    "FORMAT.md",
    "Indexed datasets",
    "Whatever is not a plain byte range there (compressed batches, chunks with filters, sparse "
    "members) is refused.",
)
TARS = Rule("FORMAT.md", "Indexed datasets", "tars as WebDataset reads them (ustar, GNU tar or pax)")

MEMBERS = [(f"{i}.{s}", d) for i in range(4) for s, d in (("jpg", encoded(i)), ("txt", b"t%d" % i))]


def summed(head: bytearray) -> bytearray:
    """With the right checksum."""
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return head


def changed(path: Path, at: int, value: bytes, header: int = 0, checksum: bool = True) -> Path:
    """Bytes of a header replaced."""
    data = bytearray(path.read_bytes())
    head = data[header : header + 512]
    head[at : at + len(value)] = value
    data[header : header + 512] = summed(head) if checksum else head
    path.write_bytes(data)
    return path


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "a.tar", MEMBERS)


SIZES: dict[str, tuple[bytes, str]] = {
    "beyond the file": (b"00007777777\0", "says that 0.jpg has 2097151 bytes"),
    "binary, beyond all files": (b"\x80" + b"\xff" * 11, "says that 0.jpg has"),
    "negative": (b"\xff" * 12, "size that is none"),
    "signed": (b"+0000000001\0", "no octal number"),
    "with a nine": (b"00000000009\0", "no octal number"),
    "Python's own digits": (b"1_000\0", "no octal number"),
}


@breaks(TARS)
@pytest.mark.parametrize("name", SIZES)
def test_sizes(tar: Path, name: str) -> None:
    value, words = SIZES[name]
    with pytest.raises(FormatError, match=f"{tar}, byte 0: the tar .*{words}"):
        index_files([changed(tar, 124, value)], tar.parent / "out")


@breaks(TARS)
def test_a_wrong_checksum(tar: Path) -> None:
    second = 512 + -(-len(encoded(0)) // 512) * 512
    with pytest.raises(FormatError, match=rf"byte {second}: the tar has a header whose checksum is \d+; the"):
        index_files([changed(tar, 100, b"7", second, checksum=False)], tar.parent / "out")
    with pytest.raises(FormatError, match="its first header is cut off or its checksum is wrong"):
        index_files([changed(tar, 100, b"7", checksum=False)], tar.parent / "out")


def test_checksums_of_signed_bytes_are_legal(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("ä.jpg", encoded(0))], tarfile.GNU_FORMAT)
    data = bytearray(tar.read_bytes())
    total = sum(byte - 256 * (byte >= 128) for byte in data[:148]) + 8 * 32 + sum(data[156:512])
    data[148:156] = b"%06o\0 " % total
    tar.write_bytes(data)
    assert read_foreign(tar, None, {}).keys == ["ä.jpg"]


def pax(records: dict[str, str], body: bytes = b"12") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as file:
        info = tarfile.TarInfo("0.jpg")
        info.size, info.pax_headers = len(body), records
        file.addfile(info, io.BytesIO(body))
    return out.getvalue()


@breaks(TARS)
@pytest.mark.parametrize(
    ("records", "words"),
    [
        ({"size": "99999999"}, "says that 0.jpg has 99999999 bytes"),
        ({"size": "-1"}, "size that is no number"),
        ({"size": "9" * 4000}, "size that is no number"),
        ({"GNU.sparse.map": "0,1"}, "sparse, which is no plain range.*--as wds"),
        ({"comment": "x" * (2 << 20)}, "extended header of 20.* bytes"),
    ],
)
def test_pax_records(tmp_path: Path, records: dict[str, str], words: str) -> None:
    (tmp_path / "a.tar").write_bytes(pax(records))
    with pytest.raises(FormatError, match=words):
        index_files([tmp_path / "a.tar"], tmp_path / "out")


@breaks(TARS)
@pytest.mark.parametrize("record", [b"99 path=x\n", b"path=x\n", b"3 p=x\n", b"8 path=xx", b"0 a=b\n"])
def test_pax_records_that_are_damaged(tmp_path: Path, record: bytes) -> None:
    data = bytearray(pax({"comment": "12345678"}))
    data[512:1024] = record.ljust(512, b"\1")
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(FormatError, match="extended header that is damaged"):
        index_files([tmp_path / "a.tar"], tmp_path / "out")


@breaks(RANGES)
def test_sparse_members(tar: Path) -> None:
    with pytest.raises(FormatError, match=r"stores 0\.jpg sparse.*'fastload pack .* --as wds' packs it"):
        index_files([changed(tar, 156, b"S")], tar.parent / "out")


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "no end": lambda data: data[: data.rindex(b"t3") + 512],
    "within a header": lambda data: data[: data.rindex(b"3.txt") + 100],
    "within a member": lambda data: data[:700],
}


@breaks(TARS)
@pytest.mark.parametrize("name", CUTS)
def test_cut_off(tar: Path, name: str) -> None:
    tar.write_bytes(CUTS[name](tar.read_bytes()))
    with pytest.raises(FormatError, match=r"ends without the two blocks|are left of the file"):
        index_files([tar], tar.parent / "out")


@breaks(TARS)
def test_what_lies_behind_the_end_is_not_overlooked(tar: Path) -> None:
    tar.write_bytes(tar.read_bytes() * 2)
    with pytest.raises(FormatError, match=r"more bytes behind its end"):
        index_files([tar], tar.parent / "out")


@breaks(PATHS)
@pytest.mark.parametrize("name", ["../x.jpg", "/x.jpg", "a/../../x.jpg", "a//x.jpg", "x\\y.jpg"])
def test_names_that_lead_out_are_names_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "deep").mkdir()
    tar = write_tar(tmp_path / "deep" / "a.tar", [(name, encoded(0))])
    index_files([tar], tmp_path / "deep" / "out")
    assert PackedDataset(tmp_path / "deep" / "out").key(0) == name
    before = sorted(tmp_path.rglob("*.jpg"))
    if name.startswith("x"):
        unpack(tmp_path / "deep" / "out", tmp_path / "deep" / "back")
    else:
        with pytest.raises(FastloadError):
            unpack(tmp_path / "deep" / "out", tmp_path / "deep" / "back")
        assert sorted(tmp_path.rglob("*.jpg")) == before


@breaks(PATHS)
def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(encoded(9))
    tar = write_tar(tmp_path / "a.tar", MEMBERS)
    with tarfile.open(tar, "a") as file:
        info = tarfile.TarInfo("9.jpg")
        info.type, info.linkname = tarfile.SYMTYPE, str(tmp_path / "secret.jpg")
        file.addfile(info)
    index_files([tar], tmp_path / "out")
    assert len(PackedDataset(tmp_path / "out")) == 4


@breaks(TARS)
def test_very_many_suffixes(tmp_path: Path) -> None:
    members = [("a.jpg", encoded(0)), *((f"a.{i}.txt", b"x") for i in range(120))]
    with pytest.raises(FormatError, match="more than 100 suffixes"):
        index_files([write_tar(tmp_path / "a.tar", members)], tmp_path / "out")


@breaks(TARS)
def test_mutants_are_refused_or_read_as_tarfile_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    outcomes = {"error": 0, "read": 0}
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        members = [*MEMBERS, ("n" * 150 + ".txt", b"long"), ("n" * 150 + ".jpg", encoded(7))]
        data = write_tar(tmp_path / "whole.tar", members, form).read_bytes()
        with tarfile.open(tmp_path / "whole.tar") as file:
            heads = [member.offset_data - 512 for member in file]
        for _ in range(150):
            mutant = bytearray(data)
            at = int(rng.choice(heads))
            head = mutant[at : at + 512]
            places = [0, 1, 124, 134, 135, 156, 156, 156]
            if form == tarfile.PAX_FORMAT:  # in GNU's headers there is no prefix, which tarfile overlooks
                places += [345]
            head[int(rng.choice(places))] = int(
                rng.choice(np.frombuffer(b"01257LKxgXSMZ\0\x80\xff /", np.uint8))
            )
            mutant[at : at + 512] = summed(head)
            path = tmp_path / "a.tar"
            path.write_bytes(mutant)
            try:
                found = read_foreign(path, None, {})
            except FastloadError:
                outcomes["error"] += 1
                continue
            outcomes["read"] += 1
            _same(path, found.keys or [])
    assert min(outcomes.values()) > 20, outcomes


def _same(path: Path, keys: list[str]) -> None:
    """Every plain member is where ``tarfile`` finds it, and keys are those of its samples."""
    with tarfile.open(path) as file:
        theirs = [
            (info.name.encode("utf-8", "surrogateescape"), info.offset_data, info.size)
            for info in file
            if info.isreg()
        ]
    assert [(m.name, m.offset, m.size) for m in members_of(path) if not m.what] == theirs
    names = [str(sample["__key__"]) for sample in samples_of(path)]
    assert [key.removesuffix(".jpg") for key in keys] == names


@breaks(RANGES)
@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_sparse_members_by_gnu_tar(tmp_path: Path, form: str) -> None:
    """Refused with the command that packs them, whose picture is the file's."""
    data = encoded(1, "PNG", 48, 48) + bytes(1 << 20)  # a hole behind the picture
    (tmp_path / "a.png").write_bytes(data[: -(1 << 20)])
    os.truncate(tmp_path / "a.png", len(data))
    command = ["tar", "--sparse", f"--format={form}", "-cf", tmp_path / "a.tar", "-C", tmp_path, "a.png"]
    subprocess.run(command, check=True)
    with pytest.raises(FormatError, match=r"stores .*a\.png sparse.*'fastload pack .* --as wds' packs it"):
        index_files([tmp_path / "a.tar"], tmp_path / "out")
    pack(tmp_path / "a.tar", tmp_path / "packed", as_="wds", num_proc=1)
    assert PackedDataset(tmp_path / "packed").read(0) == data


@breaks(CHANGED)
def test_a_tar_that_changes_after_its_index(tar: Path, tmp_path: Path) -> None:
    index_files([tar], tmp_path / "out")
    before, dataset = tar.read_bytes(), PackedDataset(tmp_path / "out")
    record = dataset.record(0)
    changed = bytearray(before)
    changed[int(record["offset"]) + int(record["length"]) // 2] ^= 1
    tar.write_bytes(changed)
    with pytest.raises(FastloadError, match=rf"{tar.name}"):
        PackedDataset(tmp_path / "out").read(0)
    with pytest.raises(PackError, match=rf"{tar.name} has other contents now; --restart replaces it"):
        index_files([tar], tmp_path / "out")
    tar.write_bytes(before + bytes(512))
    with pytest.raises(FastloadError, match=rf"{tar.name}.*bytes"):
        PackedDataset(tmp_path / "out")
    with pytest.raises(PackError, match=rf"had {len(before)} bytes then and has {len(before) + 512} now"):
        index_files([tar], tmp_path / "out")
    tar.unlink()
    with pytest.raises(FastloadError, match=rf"{tar.name}"):
        PackedDataset(tmp_path / "out")


def test_members_of_a_sample_that_stand_apart(tmp_path: Path) -> None:
    """They are two samples, as WebDataset reads them; the one without a picture is a bad record."""
    members = [("a.jpg", encoded(0)), ("b.jpg", encoded(1)), ("a.txt", b"late"), ("b.txt", b"later")]
    tar = write_tar(tmp_path / "a.tar", members)
    with pytest.raises(PackError, match=r"2 records(.|\n)*record 2 \(a\): has no picture 'image'"):
        index_files([tar], tmp_path / "out")
    index_files([tar], tmp_path / "out", IndexOptions(on_error="skip"))
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.key(i) for i in range(len(dataset))] == ["a.jpg", "b.jpg"]
    assert [dataset.sample(i)["txt"] for i in range(2)] == ["", ""]
