"""Entry points on the command line: made by pack and index, replaced, removed, counted, verified."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_images import encode, photo
from pack_trees import make_tree, snapshot

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.cli import main
from fastload.errors import PackError
from fastload.packing import PackOptions, files, pack
from fastload.packing import entries as entries_module
from fastload.packing import facts as index_runs
from fastload.packing.entries import DEFAULT_SPACING, MAGIC
from fastload.shard.index import write_paged

FILES = {
    **{f"c/{i}.jpg": encode(photo(150, 90 + i, i), "JPEG") for i in range(6)},
    "d/0.jpg": encode(photo(90, 50), "JPEG", progressive=True),
    "d/1.jpg": encode(photo(90, 50), "JPEG", "CMYK"),
    "d/2.jpg": encode(photo(90, 50), "JPEG", restart_marker_rows=1),
    "d/3.png": encode(photo(90, 50), "PNG"),
}
FACTS = {"records": 6, "jpegs": 9, "progressive": 1, "unsuited": 1}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "source", FILES)


@pytest.fixture
def packed(source: Path, tmp_path: Path) -> Path:
    pack(source, tmp_path / "set", PackOptions(num_proc=1))
    return tmp_path / "set"


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """The command's standard output."""
    assert main(list(map(str, arguments))) == code
    return capsys.readouterr().out


def facts(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    return dict(json.loads(run(capsys, *arguments, "--json", code=code)))


@pytest.mark.parametrize(
    ("option", "spacing"),
    [
        ([], DEFAULT_SPACING),
        (["--entries", "row"], "row"),
        (["--entries", "16"], 16),
        (["--entries", "none"], "none"),
    ],
)
def test_pack(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str], spacing: object
) -> None:
    output = tmp_path / "set"
    [done] = facts(capsys, "pack", source, output, *option)["datasets"]
    made = spacing != "none"
    size = (output / "entries.fli").stat().st_size if made else 0
    expected = {**FACTS, "spacing": spacing, "bytes": size, "records": 6 * made, "other": 1 * made}
    assert done["entries"] == expected
    assert facts(capsys, "info", output)["entries"] == expected
    assert (output / "entries.fli").exists() == made
    shown = run(capsys, "info", output)
    words = {"none": "entry points  none", "row": "one per row of blocks, 6 records (60.0%)"}
    assert words.get(str(spacing), f"every {spacing} pixels, 6 records (60.0%)") in shown
    assert "1 progressive JPEG cannot have any: 'pack --baseline'" in shown
    assert "1 CMYK, 12-bit or lossless JPEG cannot" in shown
    assert ("1 other JPEG has no entry points: it has restart markers" in shown) == made


def test_threads_and_formats_give_the_same_file(source: Path, tmp_path: Path, format_name: str) -> None:
    made = []
    for threads in (1, 3):
        output = tmp_path / str(threads) / "set"
        pack(source, output, PackOptions(format=format_name, num_proc=threads))
        made.append((output / "entries.fli").read_bytes())
    assert made[0] == made[1]


def test_raw_packs_have_none(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [done] = facts(capsys, "pack", source, tmp_path / "set", "--raw")["datasets"]
    assert done["entries"]["jpegs"] == 0
    assert not (tmp_path / "set" / "entries.fli").exists()
    assert facts(capsys, "verify", tmp_path / "set", "--entries")["ok"] is True


def test_interrupted_between_manifest_and_entries(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset is complete and usable; the same command makes what is missing, and only that."""
    output = tmp_path / "set"
    with monkeypatch.context() as patch:
        patch.setattr(entries_module, "write_paged", raise_interrupt)
        assert main(["pack", str(source), str(output), "--num-proc", "1"]) == 130
    assert "run the same command again" in capsys.readouterr().err
    assert sorted(path.name for path in output.iterdir()) == [
        "dataset.json", "index.fli", "set-00000-of-00001.arrow",
    ]  # fmt: skip
    transform = T.Compose([T.RandomResizedCrop(32)])
    without = [
        images.clone() for images, _ in DataLoader(output, 5, num_workers=1, seed=0, transform=transform)
    ]
    inodes = {path.name: path.stat().st_ino for path in output.iterdir()}
    for left in (".tmp-entries.fli", ".tmp-entries.bytes", ".tmp-entries.sizes"):
        (output / left).write_bytes(b"left by a killed process")
    [again] = facts(capsys, "pack", source, output, "--num-proc", 1)["datasets"]
    assert again["was_complete"]
    assert again["entries"]["records"] == 6
    after = {path.name: path.stat().st_ino for path in output.iterdir()}
    assert after == {**inodes, "entries.fli": after["entries.fli"]}
    with_them = [images for images, _ in DataLoader(output, 5, num_workers=1, seed=0, transform=transform)]
    assert all(np.array_equal(a, b) for a, b in zip(without, with_them, strict=True))
    facts(capsys, "pack", source, output, "--num-proc", 1)
    assert (output / "entries.fli").stat().st_ino == after["entries.fli"]  # nothing to do


def raise_interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_full_disk_leaves_a_whole_dataset(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(entries_module, "write_paged", full)
    with pytest.raises(PackError, match=r"entries.*No space left.*run the same command again"):
        pack(source, tmp_path / "set", PackOptions(num_proc=1))
    assert len(PackedDataset(tmp_path / "set")) == 10
    assert not list((tmp_path / "set").glob(".tmp-*"))


def test_another_spacing_replaces_and_none_leaves(
    packed: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(packed)
    assert (
        facts(capsys, "pack", source, packed, "--entries", "row")["datasets"][0]["entries"]["spacing"]
        == "row"
    )
    assert (
        facts(capsys, "pack", source, packed, "--entries", "none")["datasets"][0]["entries"]["spacing"]
        == "row"
    )
    assert snapshot(packed)["entries.fli"] != before["entries.fli"]
    run(capsys, "pack", source, packed)
    assert snapshot(packed) == before


def test_restart_replaces_them(packed: Path, source: Path, tmp_path: Path) -> None:
    before = snapshot(packed)
    make_tree(source, {"c/7.jpg": encode(photo(99, 99), "JPEG")})
    pack(source, packed, PackOptions(num_proc=1, restart=True, entries=None))
    assert "entries.fli" not in snapshot(packed)
    (source / "c/7.jpg").unlink()
    pack(source, packed, PackOptions(num_proc=1, restart=True))
    assert snapshot(packed) == before


def test_index_adds_replaces_and_removes(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(packed)
    assert "entry points  none" in run(capsys, "index", packed, "--entries", "none")
    assert snapshot(packed) == {name: data for name, data in before.items() if name != "entries.fli"}
    found = facts(capsys, "index", packed, "--entries", "row")
    assert found["entries"] == {
        **FACTS, "spacing": "row", "other": 1, "bytes": (packed / "entries.fli").stat().st_size,
    }  # fmt: skip
    assert (found["id"], found["records"]) == (PackedDataset(packed).id, 10)
    run(capsys, "index", packed, "--entries", "16")
    assert PackedDataset(packed).entries.spacing == 16
    run(capsys, "index", packed, "--entries")
    assert snapshot(packed) == before


def test_index_of_other_files(packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "index"
    assert facts(capsys, "index", packed, "--output", output)["entries"]["records"] == 6
    assert facts(capsys, "verify", output, "--entries")["ok"] is True
    none = ("--restart", "--entries", "none")
    assert facts(capsys, "index", packed, "--output", output, *none)["entries"]["spacing"] == "none"
    assert not (output / "entries.fli").exists()
    assert facts(capsys, "index", output, "--entries", "32")["entries"]["spacing"] == 32


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pack", "{set}", "{out}", "--entries", "7"], 2, "none, row or 8 to 65535 pixels. Found: '7'"),
        (["pack", "{set}", "{out}", "--entries", "many"], 2, "Found: 'many'"),
        (["index", "{set}", "--entries", "0"], 2, "Found: '0'"),
        (["index", "{set}"], 1, "needs --output FOLDER"),
        (["index", "{set}", "{out}", "--entries", "row"], 1, "needs --output FOLDER"),
        (["index", "{out}", "--entries", "row"], 1, "is not a packed dataset"),
    ],
)
def test_wrong_usage(
    packed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    names = {"set": packed, "out": tmp_path / "out"}
    assert main([argument.format(**names) for argument in arguments]) == code
    assert message in capsys.readouterr().err


def test_index_waits_for_nobody(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with files.folder_lock(packed):
        assert main(["index", str(packed), "--entries", "row"]) == 1
    assert "is being packed by process" in capsys.readouterr().err


def test_verify_finds_wrong_ones(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "10 records are intact (CRC-32C, entry points)" in run(capsys, "verify", packed, "--entries")
    dataset = PackedDataset(packed)
    stored = [dataset.entries.get(i) for i in range(10)]
    stored[1], stored[8] = stored[0], stored[0]
    lengths = [np.array([len(part) for part in stored], np.uint64)]
    write_paged(packed / "entries.fli", MAGIC, (), lengths, stored, DEFAULT_SPACING, dataset.index.digest)
    assert facts(capsys, "verify", packed)["ok"] is True  # the checksums are good
    found = facts(capsys, "verify", packed, "--entries", code=1)["problems"]
    assert [(problem["sample"], problem["key"]) for problem in found] == [(1, "c/1.jpg"), (8, "d/2.jpg")]
    assert "other entry points than its bytes give" in found[0]["reason"]
    lines = run(capsys, "verify", packed, "--entries", code=1)
    assert "sample 8 (d/2.jpg)" in lines
    run(capsys, "index", packed, "--entries")
    run(capsys, "verify", packed, "--entries")


def test_verify_finds_missing_damaged_and_foreign_ones(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = packed / "entries.fli"
    good = path.read_bytes()

    def problem(*options: str) -> str:
        [found] = facts(capsys, "verify", packed, *options, code=1)["problems"]
        assert found["shard"] == "entries.fli"
        return str(found["reason"])

    path.unlink()
    assert facts(capsys, "verify", packed)["ok"] is True
    assert facts(capsys, "verify", packed, "--entries")["ok"] is True  # it needs none: no damage
    assert main(["verify", str(packed), "--entries"]) == 0
    said = capsys.readouterr().out
    assert "no entry points (entries.fli) to check" in said
    assert "(CRC-32C)" in said
    path.write_bytes(good[:4200] + bytes([good[4200] ^ 1]) + good[4201:])
    assert "CRC" in problem()
    assert "CRC" in problem("--entries")
    make_tree(tmp_path / "other", {"c/0.jpg": FILES["c/0.jpg"]})
    pack(tmp_path / "other", tmp_path / "other set", PackOptions(num_proc=1))
    path.write_bytes((tmp_path / "other set" / "entries.fli").read_bytes())
    assert "of another dataset" in problem()
    run(capsys, "index", packed, "--entries")  # although the dataset does not open as it is
    assert path.read_bytes() == good


@pytest.mark.parametrize("every", [False, True])
def test_info_of_a_very_large_set_looks_at_a_part(
    packed: Path, every: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten records are very many here, of which three runs of two are looked at: 0, 1, 4, 5, 8 and 9."""
    run(capsys, "index", packed, "--entries", "16")
    exact = json.loads(run(capsys, "info", packed, "--json"))
    for name, value in (("_WHOLE", 9), ("_RUNS", 3), ("_RUN", 2)):
        monkeypatch.setattr(index_runs, name, value)
    arguments = ["--all"] if every else []
    found = json.loads(run(capsys, "info", packed, "--json", *arguments))
    words = run(capsys, "info", packed, *arguments)
    if every:
        assert found == exact
        assert "about" not in words
        return
    assert found["looked_at"] == 6
    for name in ("records", "codecs", "bytes", "shards"):
        assert found[name] == exact[name]
    assert found["entries"]["jpegs"] == exact["entries"]["jpegs"]
    facts = [PackedDataset(packed).record(i) for i in (0, 1, 4, 5, 8, 9)]
    widths = sorted(int(record["width"]) for record in facts)
    assert (found["sides"]["width"]["min"], found["sides"]["width"]["max"]) == (widths[0], widths[-1])
    entries = PackedDataset(packed).entries
    having = sum(len(entries.get(i)) > 0 for i in (0, 1, 4, 5, 8, 9))
    assert found["entries"]["records"] == round(having * 10 / 6)
    assert found["entries"]["estimated"] is True
    assert "looked at     6 of 10 records, spread over the set; --all looks at every one" in words
    assert "sizes         about width" in words
