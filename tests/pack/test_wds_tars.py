"""``fastload pack TARS OUTPUT --as wds``: what cannot be indexed in place, and what can, too."""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long_forms import SEED, as_drawn, how_many
from pack_trees import encoded, run_cli
from tar_reference import bad_members, captioned, samples_of, write_tar

from fastload import PackedDataset, pack
from fastload.errors import FormatError, PackError
from fastload.packing.foreign import index_files
from fastload.packing.foreign_files import braced
from fastload.packing.verify import verify


def compressed(path: Path, members: list[tuple[str, bytes]], mode: str) -> Path:
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


def values(folder: Path, **left_out: Any) -> list[dict[str, Any]]:
    dataset = PackedDataset(folder)
    return [
        {"picture": dataset.read(i), **{k: v for k, v in dataset.sample(i).items() if k != "image"}}
        for i in range(len(dataset))
    ]


@pytest.mark.parametrize(("name", "mode"), [("a.tar.gz", "w:gz"), ("a.tar.xz", "w:xz"), ("a.tar", "w")])
def test_packs_what_an_index_has(tmp_path: Path, name: str, mode: str) -> None:
    source = compressed(tmp_path / name, captioned(9), mode)
    [result] = pack(source, tmp_path / "packed", as_="wds", num_proc=1)  # type: ignore[misc]
    index_files([write_tar(tmp_path / "plain.tar", captioned(9))], tmp_path / "indexed")
    assert values(tmp_path / "packed") == values(tmp_path / "indexed")
    ours, theirs = PackedDataset(tmp_path / "packed"), PackedDataset(tmp_path / "indexed")
    assert ours.schema == theirs.schema == result.manifest.schema
    assert [ours.key(i) for i in range(9)] == [theirs.key(i) for i in range(9)]
    assert verify(tmp_path / "packed", decode=True) == ([], 9)


def test_bad_samples_follow_the_policy(tmp_path: Path) -> None:
    members = [one for one in bad_members() if not one[0].endswith(".npy")]
    source = compressed(tmp_path / "a.tgz", members, "w:gz")
    with pytest.raises(PackError, match=r"a\.jpg: 'txt' is not UTF-8: invalid start byte at byte 0"):
        pack(source, tmp_path / "out", as_="wds")
    [result] = pack(source, tmp_path / "out", as_="wds", on_error="skip", restart=True)  # type: ignore[misc]
    assert (result.manifest.skipped, result.manifest.left_out) == (8, 1)
    lines = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    reasons = {line["path"]: line["reason"] for line in map(json.loads, lines)}
    assert reasons["g.jpg"] == "its name has no suffix"
    assert reasons["c"] == "has no picture 'image'"
    assert reasons["f.jpg"] == "has two members .jpg"
    assert [PackedDataset(tmp_path / "out").key(i) for i in range(1)] == ["g.jpg"]


def test_suffixes_that_nobody_knows_must_be_said(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a.tar", [("0.jpg", encoded(0)), ("0.npy", b"123")])
    with pytest.raises(PackError, match=r"members \.npy are \(1 of \.npy\).*--field npy=none"):
        pack(source, tmp_path / "out", as_="wds")
    assert run_cli("pack", source, tmp_path / "out", "--as", "wds", "--field", "npy=bytes").returncode == 0
    assert PackedDataset(tmp_path / "out").sample(0)["npy"] == b"123"
    assert run_cli("pack", source, tmp_path / "two", "--as", "wds", "--field", "npy=none").returncode == 0
    assert PackedDataset(tmp_path / "two").schema.names == ("image",)
    both = write_tar(tmp_path / "b.tar", [("0.jpg", encoded(0)), ("0.png", encoded(1, "PNG"))])
    with pytest.raises(PackError, match=r"0 has 2 pictures \(jpg, png\)"):
        pack(both, tmp_path / "three", as_="wds")


def test_what_index_refuses_is_packed(tmp_path: Path) -> None:
    one = write_tar(tmp_path / "1.tar", captioned(2)).read_bytes()
    two = write_tar(tmp_path / "2.tar", captioned(2, 2)).read_bytes()
    (tmp_path / "a.tar").write_bytes(one + two)
    with pytest.raises(FormatError, match="--as wds"):
        index_files([tmp_path / "a.tar"], tmp_path / "out")
    pack(tmp_path / "a.tar", tmp_path / "out", as_="wds")
    dataset = PackedDataset(tmp_path / "out")
    assert [dataset.key(i) for i in range(4)] == [f"{i:09d}.jpg" for i in range(4)]


def zstd(path: Path, data: bytes, frames: int = 2) -> Path:
    """Data in several frames one behind the other, as parallel compressors write them."""
    codec, step = pa.Codec("zstd"), -(-len(data) // frames)
    parts = [codec.compress(data[at : at + step], asbytes=True) for at in range(0, len(data), step)]
    path.write_bytes(b"".join(parts))
    return path


@pytest.mark.parametrize("name", ["a.tar.zst", "a.tar"])
def test_zstd(tmp_path: Path, name: str) -> None:
    plain = write_tar(tmp_path / "plain.tar", captioned(9))
    index_files([plain], tmp_path / "indexed")
    (tmp_path / "z").mkdir()
    source = zstd(tmp_path / "z" / name, plain.read_bytes())
    with pytest.raises(
        FormatError, match="cannot be indexed: zstd.*'fastload pack .* OUTPUT --as wds' packs"
    ):
        index_files([source], tmp_path / "out")
    with pytest.raises(FormatError, match="cannot be indexed: .*'fastload pack .* OUTPUT --as wds' packs it"):
        index_files([tmp_path / "z"], tmp_path / "out")
    pack(source, tmp_path / "packed", as_="wds", num_proc=1)
    assert values(tmp_path / "packed") == values(tmp_path / "indexed")
    for keep in (len(source.read_bytes()) - 30, 3000):
        source.write_bytes(source.read_bytes()[:keep])
        with pytest.raises(PackError, match="whole tar"):
            pack(source, tmp_path / "cut", as_="wds")


@pytest.mark.parametrize(("codec", "writer"), [("zstd", pa.ipc.new_file), ("lz4", pa.ipc.new_stream)])
def test_compressed_arrow_files_name_what_packs_them(tmp_path: Path, codec: str, writer: Any) -> None:
    table = pa.table({"image": [encoded(i) for i in range(5)]})
    path = tmp_path / "a.arrow"
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.OSFile(str(path), "wb") as file, writer(file, table.schema, options=options) as out:
        out.write_table(table)
    with pytest.raises(FormatError, match=r"'fastload pack (.*) OUTPUT' packs it") as raised:
        index_files([path], tmp_path / "out")
    assert f"'fastload pack {path} OUTPUT'" in str(raised.value)
    pack(path, tmp_path / "packed", num_proc=1)
    assert [PackedDataset(tmp_path / "packed").read(i) for i in range(5)] == table["image"].to_pylist()


def test_splits_by_folder_and_by_name(tmp_path: Path) -> None:
    for k, split in enumerate(("train", "val")):
        (tmp_path / "folders" / split).mkdir(parents=True)
        (tmp_path / "names").mkdir(exist_ok=True)
        for number in range(2):
            members = captioned(2, 10 * k + 2 * number)
            write_tar(tmp_path / "folders" / split / f"{number:03d}.tar", members)
            write_tar(tmp_path / "names" / f"some-set-{split}-{number:03d}.tar", members)
    for source in ("folders", "names"):
        results = pack(tmp_path / source, tmp_path / f"out-{source}", as_="wds", num_proc=1)
        assert [result.output.name for result in results] == ["train", "val"]  # type: ignore[attr-defined]
        assert [PackedDataset(tmp_path / f"out-{source}" / "val").sample(i)["txt"] for i in range(4)] == [
            f"a picture of {i} cafés" for i in range(10, 14)
        ]
        with pytest.raises(FormatError, match=r"several splits.*apart"):
            index_files([tmp_path / source], tmp_path / "indexed")
    one = tmp_path / "names" / "some-set-train-{000..001}.tar"
    assert index_files([one], tmp_path / "indexed").num_records == 4
    pack(one, tmp_path / "braced", as_="wds", num_proc=1)
    assert values(tmp_path / "braced") == values(tmp_path / "out-names" / "train")
    write_tar(tmp_path / "names" / "extra.tar", captioned(1))
    with pytest.raises(PackError, match=r"nothing says which split extra\.tar belongs to.*train, val"):
        pack(tmp_path / "names", tmp_path / "x", as_="wds")
    with pytest.raises(PackError, match=r"train-002\.tar does not exist"):
        pack(tmp_path / "names" / "some-set-train-{001..002}.tar", tmp_path / "x", as_="wds")
    with pytest.raises(PackError, match=r"folders/train is a folder, and braces stand for tars\. Give one"):
        pack(tmp_path / "folders" / "{train,val}", tmp_path / "x", as_="wds")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a", ["a"]),
        ("{1..3}", ["1", "2", "3"]),
        ("x{08..11}.tar", ["x08.tar", "x09.tar", "x10.tar", "x11.tar"]),
        ("{8..010}", ["008", "009", "010"]),
        ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
        ("{a}{", ["{a}{"]),
        ("{5..5}", ["5"]),
        ("{,x}y", ["y", "xy"]),
    ],
)
def test_braces(text: str, found: list[str]) -> None:
    assert braced(text) == found


def test_braces_without_an_end() -> None:
    for text in ("{9..1}", "{0..999999999}"):
        with pytest.raises(FormatError, match="must be at most 1000000 numbers, the smaller one first"):
            braced(text)
    with pytest.raises(FormatError, match="it stands for 1000000000 files; at most 1000000"):
        braced("{000000..999999}/{000..999}.tar")


@pytest.mark.parametrize("cut", ["end", "header", "member", "gzip"])
def test_cut_off_tars_are_refused(tmp_path: Path, cut: str) -> None:
    path = write_tar(tmp_path / "a.tar", captioned(2))
    data = path.read_bytes()
    last = data.rindex(b"000000001.json")
    path.write_bytes(data[: last + {"end": 1024, "header": 50, "member": 520, "gzip": 0}[cut]])
    if cut == "gzip":
        whole = compressed(tmp_path / "b.tgz", captioned(2), "w:gz").read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PackError, match="whole tar"):
        pack(path, tmp_path / "out", as_="wds")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_cut_or_damaged_anywhere_is_refused(tmp_path: Path, form: int) -> None:
    """``tarfile`` takes a header that is damaged or missing for the end, which would lose whole samples
    without a word. Each version of it asks for headers in its own way.
    """
    rng, path = random.Random(SEED), tmp_path / "a.tar"
    members = captioned(3)
    if form != tarfile.USTAR_FORMAT:
        members[4] = (members[4][0] + "x" * 150, members[4][1])  # its name has headers of its own
    whole = write_tar(path, members, form).read_bytes()
    headers = [at for at in range(0, len(whole), 512) if whole[at + 257 : at + 262] == b"ustar"]
    end = next(at for at in range(headers[-1], len(whole), 512) if not any(whole[at:]))
    assert len(headers) >= len(members)
    damaged = {f"cut at {cut}": whole[:cut] for cut in (*headers[1:], end, end + 1)}
    for _ in range(how_many(8, 300)):
        cut, place = rng.randrange(1, end), rng.choice(headers) + rng.randrange(148)
        damaged[f"cut at {cut}"] = whole[:cut]
        damaged[f"changed at {place}"] = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    outcomes = {}
    for words, data in damaged.items():
        path.write_bytes(data)
        try:
            outcomes[words] = str(pack(path, tmp_path / "out", as_="wds", num_proc=1))
        except PackError as error:
            outcomes[words] = "refused" if "not a whole tar" in str(error) else str(error)
    assert outcomes == dict.fromkeys(damaged, "refused"), as_drawn(form)


def test_no_tars(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="holds no .tar"):
        pack(tmp_path, tmp_path / "out", as_="wds")
    with pytest.raises(PackError, match="does not exist"):
        pack(tmp_path / "x.tar", tmp_path / "out", as_="wds")
    assert samples_of(write_tar(tmp_path / "e.tar", [])) == []
    with pytest.raises(PackError, match="no samples in these tars"):
        pack(tmp_path / "e.tar", tmp_path / "out", as_="wds")
