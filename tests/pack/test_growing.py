"""Sets that grow: what append and drop make, against a list in Python; what is refused, in words."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from growing_sets import CLASSES, SCHEMA, Grown, field_rows, field_schema, rows
from long_forms import SEED, as_drawn, how_many
from pack_trees import make_tree
from recode_sets import pictures

import fastload
from fastload import Image, Label, Labels, PackedDataset, Text
from fastload.cli import main
from fastload.errors import ChecksumError, FormatError, PackError, ShardTruncated
from fastload.packing import PackOptions, pack
from fastload.packing.append import append
from fastload.packing.drop import drop, parse_ids
from fastload.packing.files import folder_lock
from fastload.packing.recode import recode
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest


def check(grown: Grown) -> None:
    """Every generation is what the list says, and nothing else is in the folder."""
    assert verify(grown.folder, entries=True) == ([], len(grown.numbers))
    for number, ids in enumerate(grown.generations, 1):
        files = PackedDataset(grown.folder, generation=number)
        assert len(files) == len(ids)
        assert files.ids_at(np.arange(len(ids))).tolist() == ids
        for sample in range(files.num_ids):
            if sample not in set(ids):
                with pytest.raises(ValueError, match=f"Sample {sample} of .* was dropped"):
                    files.read(sample)
                continue
            wanted = rows(grown.numbers[sample], 1)[0]
            assert files.value("number", sample) == wanted["number"]
            assert files.value("text", sample) == wanted["text"]
            assert files.classes[files.label(sample)] == wanted["label"]
            assert (np.frombuffer(files.stored(sample), np.uint8) == wanted["image"].ravel()).all()
        with pytest.raises(IndexError, match="out of range"):
            files.read(files.num_ids)
    named = {Path(shard.file).parts[0] for shard in files.manifest.shards}
    others = {path.name for path in grown.folder.iterdir()} - named
    mark = f"-g{len(grown.generations)}" if len(grown.generations) > 1 else ""
    assert {f"index{mark}.fli", "dataset.json"} <= others
    assert len([name for name in others if name.startswith("index")]) == 1
    assert not [name for name in others if name.startswith((".", "entries"))]


@pytest.mark.parametrize("case", range(how_many(2, 60)))
def test_a_sequence_of_appends_and_drops(tmp_path: Path, format_name: str, case: int) -> None:
    draw = random.Random(f"{SEED} {case}")
    grown = Grown.begun(tmp_path / "set", 5, format_name)
    for _ in range(how_many(4, 9)):
        grown.change(draw)
    check(grown)
    assert len(grown.generations) == how_many(5, 10), as_drawn(case)


def test_ids_differ_by_generation_and_follow_from_contents(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 12)
    grown.append(4)
    grown.drop([3])
    grown.drop([14])
    files = PackedDataset(grown.folder)
    ids = [files.at(number).id for number in range(1, 5)]
    assert len(set(ids)) == 4
    assert files.id == ids[-1]
    whole = tmp_path / "whole"
    fastload.pack(rows(0, 16), whole, {**SCHEMA, "label": Label(CLASSES)}, raw=True)
    assert PackedDataset(whole).id == ids[1]
    # The same samples dropped at once: the same set.
    drop(whole, [14, 3])
    assert PackedDataset(whole).id == ids[-1]
    first = tmp_path / "first"
    fastload.pack(rows(0, 12), first, SCHEMA, raw=True)
    assert PackedDataset(first).id == ids[0]


def test_files_become_samples_behind_the_others(tmp_path: Path) -> None:
    """Class folders: old classes keep their numbers, a new one comes at the end, entry points are made."""
    found = list(pictures().values())
    make_tree(tmp_path / "a", {f"b/{i}.jpg": data for i, data in enumerate(found[:6])})
    make_tree(tmp_path / "b", {f"{'ab'[i % 2]}/n{i}.jpg": data for i, data in enumerate(found)})
    out = tmp_path / "set"
    pack(tmp_path / "a", out, PackOptions(shard_size=8000, num_proc=1))
    before = PackedFiles(out)
    assert main(["pack", str(tmp_path / "b"), str(out), "--append", "--num-proc", "1", "--quiet"]) == 0
    now = PackedFiles(out)
    assert now.classes == ["b", "a"]
    assert [now.key(i) for i in range(6)] == [before.key(i) for i in range(6)]
    assert [now.classes[label] for label in now.labels[6:]] == [now.key(i)[0] for i in range(6, len(now))]
    assert verify(out, decode=True, entries=True) == ([], 6 + len(found))
    assert now.entries is not None
    assert now.entries.get(0) == before.entries.get(0)  # type: ignore[union-attr]


def test_every_kind_of_field(tmp_path: Path, format_name: str) -> None:
    made, schema = field_rows(8), field_schema
    out = tmp_path / "set"
    fastload.pack(made[:3], out, schema(("a", "b", "c"), ("x", "y")), format=format_name, shard_size=12000)
    fastload.pack(made[3:6], out, append=True)
    fastload.pack(made[6:], out, schema(("c", "a", "z"), ("z", "x")), append=True)
    files = PackedDataset(out)
    assert verify(out, decode=True, entries=True) == ([], 8)
    assert files.classes == ["a", "b", "c", "z"]
    assert files.schema["kinds"].kind.classes == ("x", "y", "z")  # type: ignore[attr-defined]
    names = [("a", "b", "c")] * 6 + [("c", "a", "z")] * 2
    kinds = [("x", "y")] * 6 + [("z", "x")] * 2
    for sample, row in enumerate(made):
        assert files.classes[files.label(sample)] == names[sample][row["label"]]
        joined = files.schema["kinds"].kind.classes  # type: ignore[attr-defined]
        found = [joined[one] for one in files.value("kinds", sample)]
        assert found == [kinds[sample][one] for one in row["kinds"]]
        for name in ("image", "second", "bytes", "text"):
            assert files.value(name, sample) == row[name], (sample, name)
        assert files.stored_list("more", sample) == row["more"]
        assert np.array_equal(files.value("boxes", sample), row["boxes"])


# ---- What the user says, and what is there already ---------------------------------------------------


def test_an_append_that_was_run_twice_appends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    grown = Grown.begun(tmp_path / "set", 5)
    grown.append(6)
    found = fastload.pack(rows(5, 6), grown.folder, append=True)
    assert (found.added, found.known) == (0, 0)  # type: ignore[union-attr]
    assert (
        "these 6 rows are in the set already, as generation 2: nothing is appended" in capfd.readouterr()[1]
    )
    fastload.pack(rows(0, 5), grown.folder, append=True)
    assert "as generation 1: nothing" in capfd.readouterr()[1]
    check(grown)


def test_rows_that_were_dropped_since_come_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An append whose samples were all dropped is one of new rows; run again, it is the same one again."""
    grown = Grown.begun(tmp_path / "set", 5)
    again = rows(5, 4)
    grown.append(4)
    grown.drop([5, 6, 7, 8])
    assert fastload.pack(again, grown.folder, append=True).added == 4  # type: ignore[union-attr]
    assert fastload.pack(again, grown.folder, append=True).added == 0  # type: ignore[union-attr]
    assert "as generation 4: nothing is appended" in capfd.readouterr()[1]
    files = PackedDataset(grown.folder)
    assert files.ids_at(np.arange(9)).tolist() == [0, 1, 2, 3, 4, 9, 10, 11, 12]
    assert [files.value("number", sample) for sample in range(9, 13)] == [5, 6, 7, 8]
    grown.drop([10])
    with pytest.raises(PackError, match="are generation 4 of .*, and 1 of them were dropped since. Nothing"):
        fastload.pack(again, grown.folder, append=True)
    assert fastload.pack(again[1:2], grown.folder, append=True).added == 1  # type: ignore[union-attr]


def test_dropped_files_come_back_by_their_keys(tmp_path: Path) -> None:
    found = list(pictures().values())
    make_tree(tmp_path / "a", {f"c/{i}.jpg": data for i, data in enumerate(found[:3])})
    make_tree(tmp_path / "b", {f"c/{i}.jpg": data for i, data in enumerate(found[3:6], 3)})
    out, options = tmp_path / "set", PackOptions(num_proc=1)
    pack(tmp_path / "a", out, options)
    append(tmp_path / "b", out, options)
    drop(out, [3, 5])
    with pytest.raises(PackError, match=r"1 of 3 new rows have keys .*: c/4.jpg. Nothing was appended"):
        append(tmp_path / "b", out, options)
    append(tmp_path / "b", out, PackOptions(num_proc=1, on_error="skip"))
    files = PackedFiles(out)
    assert [files.key(i) for i in files.ids_at(np.arange(len(files)))] == [
        *(f"c/{i}.jpg" for i in (0, 1, 2, 4, 3, 5))
    ]
    assert verify(out, entries=True) == ([], 8)


@pytest.mark.parametrize("name", ["{:012d}.jpg", "{:08d}.jpg", "x-{:08d}.jpg"], ids=str)
def test_numbers_in_file_names_are_keys(tmp_path: Path, name: str) -> None:
    """Equal pictures under other names, as COCO's are, are other rows."""
    data = pictures()["c/00.jpg"]
    for folder, first in (("a", 3), ("b", 391895), ("c", 581929)):
        make_tree(tmp_path / folder, {f"c/{name.format(first + i)}": data for i in range(3)})
    out, options = tmp_path / "set", PackOptions(num_proc=1)
    pack(tmp_path / "a", out, options)
    for folder, count in (("b", 6), ("c", 9), ("b", 9)):
        append(tmp_path / folder, out, options)
        assert len(PackedFiles(out)) == count
    flat = tmp_path / "flat"
    for folder, count in (("a", 3), ("b", 6), ("c", 9)):
        if count == 3:
            pack(tmp_path / folder / "c", flat, options)
        else:
            append(tmp_path / folder / "c", flat, options)
        assert len(PackedFiles(flat)) == count


def test_keys_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = list(pictures().values())
    make_tree(tmp_path / "a", {f"c/{i}.jpg": data for i, data in enumerate(found[:5])})
    make_tree(tmp_path / "b", {f"c/{i}.jpg": data for i, data in enumerate(found[2:9], 3)})
    out, words = tmp_path / "set", ["--append", "--num-proc", "1", "--quiet"]
    pack(tmp_path / "a", out, PackOptions(num_proc=1))
    assert main(["pack", str(tmp_path / "b"), str(out), *words]) == 1
    error = capsys.readouterr().err
    assert "2 of 7 new rows have keys that samples of" in error
    assert "c/3.jpg, c/4.jpg. Nothing was appended. --on-error skip leaves these rows out" in error
    assert Manifest.read(out).generation == 1
    assert main(["pack", str(tmp_path / "b"), str(out), *words, "--on-error", "skip"]) == 0
    assert "5 samples; 2 left out, whose keys are in the set already" in capsys.readouterr().out
    files = PackedFiles(out)
    assert [files.key(i) for i in range(10)] == [f"c/{i}.jpg" for i in range(10)]
    assert files.manifest.skipped == 2
    lines = [json.loads(line) for line in (out / "skipped.jsonl").read_text().splitlines()]
    assert [line["path"] for line in lines] == ["c/3.jpg", "c/4.jpg"]
    assert verify(out, entries=True) == ([], 10)
    assert main(["pack", str(tmp_path / "b"), str(out), *words, "--on-error", "skip"]) == 0
    assert Manifest.read(out).generation == 2


def test_a_dropped_sample_may_be_replaced(tmp_path: Path) -> None:
    found = list(pictures().values())
    make_tree(tmp_path / "a", {f"c/{i}.jpg": data for i, data in enumerate(found[:4])})
    make_tree(tmp_path / "b", {"c/2.jpg": found[7]})
    out = tmp_path / "set"
    pack(tmp_path / "a", out, PackOptions(num_proc=1))
    drop(out, [2])
    append(tmp_path / "b", out, PackOptions(num_proc=1))
    files = PackedFiles(out)
    assert (files.key(4), files.read(4)) == ("c/2.jpg", found[7])
    assert files.sample_ids is not None
    assert files.sample_ids.tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (PackOptions(format="lmdb"), "format is arrow in the set, asked for is lmdb"),
        (PackOptions(raw=True), "raw is False in the set, asked for is True"),
        (PackOptions(max_side=100), "max_side is None in the set, asked for is 100"),
        (PackOptions(coefficients="fast"), "coefficients is None in the set, asked for is fast"),
        (PackOptions(entries=16), "entries is 64 in the set, asked for is 16"),
        (PackOptions(exif="turn"), "exif is refuse in the set, asked for is turn"),
        (PackOptions(alpha="white"), "alpha is drop in the set, asked for is white"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_options_are_the_sets(tmp_path: Path, options: PackOptions, words: str) -> None:
    make_tree(tmp_path / "a", {"c/0.jpg": pictures()["c/00.jpg"]})
    pack(tmp_path / "a", tmp_path / "set", PackOptions(num_proc=1))
    with pytest.raises(PackError, match=f"packed as its own are: {words}. Leave these options out"):
        append(tmp_path / "a", tmp_path / "set", options)


def test_options_of_the_set_are_taken(tmp_path: Path) -> None:
    found = pictures()
    make_tree(tmp_path / "a", {"c/0.jpg": found["c/00.jpg"], "c/1.jpg": found["c/01.jpg"]})
    make_tree(tmp_path / "b", {"c/2.jpg": found["c/02.jpg"], "c/3.png": found["d/1.png"]})
    for name, options in (
        ("small", PackOptions(coefficients="small", num_proc=1, format="lmdb")),
        ("raw", PackOptions(raw=True, size=(20, 10), num_proc=1)),
        ("side", PackOptions(max_side=40, quality=70, num_proc=1, entries=None)),
    ):
        out, whole = tmp_path / name, tmp_path / f"{name}-whole"
        pack(tmp_path / "a", out, options)
        append(tmp_path / "b", out, PackOptions(num_proc=1))
        shutil.copytree(tmp_path / "a", tmp_path / "both", dirs_exist_ok=True)
        shutil.copytree(tmp_path / "b", tmp_path / "both", dirs_exist_ok=True)
        pack(tmp_path / "both", whole, options)
        one, other = PackedFiles(out), PackedFiles(whole)
        assert one.id == other.id
        assert one.manifest.codecs == other.manifest.codecs
        assert one.manifest.options.get("coefficient_records") == other.manifest.options.get(
            "coefficient_records"
        )
        assert (one.entries is None) == (name != "nothing")


def test_other_fields_are_refused(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 3)
    with pytest.raises(
        PackError, match=r"the set has image, label, number, text; the new rows have image, te"
    ):
        fastload.pack(rows(3, 2), grown.folder, {"image": Image(), "text": Text()}, append=True)
    schema = {**SCHEMA, "number": fastload.Scalar("float32")}
    with pytest.raises(
        PackError, match=r"number=scalar\(int64\) in the set, number=scalar\(float32\) in the n"
    ):
        fastload.pack(rows(3, 2), grown.folder, schema, append=True)
    numbered = [{**row, "label": CLASSES.index(row["label"])} for row in rows(3, 2)]
    with pytest.raises(PackError, match="has numbers without class names in the new rows, and class name"):
        fastload.pack(numbered, grown.folder, {**SCHEMA, "label": Label()}, append=True)
    assert Manifest.read(grown.folder).generation == 1


def test_what_cannot_grow(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 3)
    make_tree(tmp_path / "a", {f"c/{i}.jpg": data for i, data in enumerate([*pictures().values()][:3])})
    pack(tmp_path / "a", tmp_path / "jpegs", PackOptions(num_proc=1))
    shards = [str(path) for path in (tmp_path / "jpegs").glob("jpegs-*")]
    assert main(["index", *shards, "--output", str(tmp_path / "indexed"), "--num-proc", "1"]) == 0
    with pytest.raises(PackError, match="is an index of files that are not its own; nothing can be appended"):
        append(tmp_path / "a", tmp_path / "indexed")
    drop(tmp_path / "indexed", [1])  # which writes to none of them
    assert PackedFiles(tmp_path / "indexed").ids_at(np.arange(2)).tolist() == [0, 2]
    with pytest.raises(FormatError, match="is not a packed dataset"):
        fastload.pack(rows(3, 2), tmp_path / "nothing", SCHEMA, append=True)
    with pytest.raises(PackError, match="cannot append to s3://bucket/set, which is in a store"):
        append(tmp_path, "s3://bucket/set")
    with pytest.raises(PackError, match="cannot drop samples of s3://bucket/set, which is in a store"):
        drop("s3://bucket/set", [1])
    with folder_lock(grown.folder), pytest.raises(PackError, match="is being packed by process"):
        drop(grown.folder, [1])
    with folder_lock(grown.folder), pytest.raises(PackError, match="is being packed by process"):
        fastload.pack(rows(3, 2), grown.folder, append=True)
    (grown.folder / ".fastload-recode").mkdir()
    with pytest.raises(PackError, match=r"has an interrupted recode\. Run 'fastload recode"):
        drop(grown.folder, [1])


def test_an_unfinished_append_stays(tmp_path: Path) -> None:
    """Neither a drop, nor an append of another source throws it away; it goes on afterwards."""
    grown = Grown.begun(tmp_path / "set", 5)
    new = rows(5, 24)
    broken = [*new[:-1], {**new[-1], "image": b"no picture"}]
    with pytest.raises(PackError):
        fastload.pack(broken, grown.folder, append=True)
    begun = {
        path: path.stat().st_mtime_ns
        for path in (grown.folder / ".fastload-append").rglob("*")
        if path.is_file()
    }
    assert any(path.name == "samples.json" for path in begun), begun
    drop(grown.folder, [1])
    for other, why in ((iter(new[:3]), "an iterable comes once"), (new[:3], "holds a pack of other samples")):
        with pytest.raises(PackError, match=f"set has an unfinished append of another source.*: .*{why}"):
            fastload.pack(other, grown.folder, append=True)
    assert {path: path.stat().st_mtime_ns for path in begun} == begun
    fastload.pack(iter(new[:3]), grown.folder, append=True, restart=True)
    assert len(PackedFiles(grown.folder)) == 7
    assert not (grown.folder / ".fastload-append").exists()


def test_an_iterable_that_broke_off_begins_anew(tmp_path: Path) -> None:
    grown, new = Grown.begun(tmp_path / "set", 5), rows(5, 24)

    def broken() -> Any:
        yield from new[:20]
        raise RuntimeError("no more")

    with pytest.raises((RuntimeError, PackError), match="no more"):
        fastload.pack(broken(), grown.folder, append=True)
    fastload.pack(iter(new), grown.folder, append=True)
    assert PackedDataset(grown.folder).value("number", 28) == 28


# ---- Dropping -----------------------------------------------------------------------------------------


def test_drop_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grown = Grown.begun(tmp_path / "set", 12)
    (tmp_path / "ids").write_text("7\n9-10\n")
    key = PackedFiles(grown.folder).key(11)
    (tmp_path / "keys").write_text(f"{key}\n")
    words = ["drop", str(grown.folder), "0", "2-3", "--ids", str(tmp_path / "ids")]
    assert main([*words, "--keys", str(tmp_path / "keys")]) == 0
    told = capsys.readouterr().out
    assert "7 samples" in told
    assert "5 of 12 samples" in told
    assert PackedFiles(grown.folder).dropped.tolist() == [0, 2, 3, 7, 9, 10, 11]
    assert main(["drop", str(grown.folder), "2", "4", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["dataset"]
    assert (facts["dropped"], facts["dropped_before"], facts["left"], facts["generation"]) == (1, 1, 4, 3)
    assert main(["info", str(grown.folder)]) == 0
    told = capsys.readouterr().out
    assert "3; earlier ones had 12, 5 samples" in told
    assert "8 samples, so 4 are left" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["12"], r"has no sample with the id 12: its ids are 0 to 11\. Nothing was dropped"),
        (["0-11"], r"would have no sample left\. Nothing was dropped"),
        (["x"], "sample ids are numbers and ranges with their last one, as 5 17-20. Found: 'x'"),
        (["9-3"], "sample ids are numbers and ranges"),
        (["0-9999999999"], r"'0-9999999999' goes beyond the set's sample ids, 0 to 11\. Nothing was dropped"),
        (["99999999999999999999"], "sample ids are numbers and ranges"),
        ([], "drop needs sample ids, --ids FILE or --keys FILE"),
        (["--keys", "keys"], "has the 1 key nothing"),
        (["--ids", "missing"], "missing cannot be read"),
    ],
    ids=str,
)
def test_what_cannot_be_dropped(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("nothing\n")
    grown = Grown.begun(tmp_path / "set", 12)
    assert main(["drop", str(grown.folder), *words]) == 1
    with pytest.raises(PackError, match=said):
        raise PackError(capsys.readouterr().err)
    assert Manifest.read(grown.folder).generation == 1


def test_ids_in_words() -> None:
    assert parse_ids(["5", "17-20", "0-0"], 21).tolist() == [5, 17, 18, 19, 20, 0]


@pytest.mark.parametrize("wrong", [[1.5], [True], np.array([True, False]), np.array([1.0]), ["1"], [None]])
def test_ids_are_integers(tmp_path: Path, wrong: Any) -> None:
    grown = Grown.begun(tmp_path / "set", 5)
    with pytest.raises(TypeError, match="index must be an integer. Found: "):
        drop(grown.folder, wrong)
    with pytest.raises(PackError, match="has no sample with the id -1, "):
        drop(grown.folder, [-7, 10**30])
    assert Manifest.read(grown.folder).generation == 1


def test_a_damaged_file_of_dropped_samples_is_an_error(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 12)
    grown.drop([3, 5])
    path = grown.folder / "dropped-g2.fli"
    good = path.read_bytes()
    path.write_bytes(good[:8] + bytes([good[8] ^ 1]) + good[9:])
    with pytest.raises(
        ChecksumError, match=r"dropped-g2.fli has the CRC-32C .* Restore the file: without it"
    ):
        PackedFiles(grown.folder)
    (problem,), _ = verify(grown.folder)
    assert problem.shard == "dropped-g2.fli"
    path.write_bytes(good[:-1])
    with pytest.raises(
        ShardTruncated, match="is missing, or has 31 bytes in place of the manifest's 32 bytes"
    ):
        PackedFiles(grown.folder)
    path.write_bytes(good + b"x")
    with pytest.raises(ShardTruncated, match="is longer than the manifest's 32 bytes"):
        PackedFiles(grown.folder)
    path.unlink()
    with pytest.raises(ShardTruncated, match="is missing"):
        PackedFiles(grown.folder)


# ---- Others that have the set open, earlier versions, and what is made of a grown set ------------------


def test_who_has_the_set_open_goes_on_with_it(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 9)
    opened, state = PackedFiles(grown.folder), PackedFiles(grown.folder).__getstate__()
    grown.append(5)
    grown.drop([2])
    assert len(opened) == 9
    for sample in range(9):  # its columns had not been opened yet; their files are gone
        assert opened.value("number", sample) == sample
    again = object.__new__(PackedFiles)
    again.__setstate__(state)  # as in a worker process
    assert (again.id, len(again)) == (opened.id, 9)
    assert again.value("text", 2) == opened.value("text", 2)


def test_older_versions_refuse_a_set_that_has_changed(tmp_path: Path) -> None:
    """They know index.fli and index-2.fli only, and would read a part of the set, or what was dropped."""
    for change in ("append", "drop"):
        grown = Grown.begun(tmp_path / change, 5)
        grown.append(2) if change == "append" else grown.drop([1])
        body = json.loads((grown.folder / "dataset.json").read_text())
        assert body["fastload"] == [1, 7]
        assert body["index"] == "index-g2.fli"
        assert not (grown.folder / "index.fli").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"generations": [{"id": "x", "records": 1, "classes": 1, "shards": 1, "data_bytes": 1}]},
        {"generations": [{"id": "a" * 32, "records": -1, "classes": 1, "shards": 1, "data_bytes": 1}]},
        {"dropped": {"file": "../x", "count": 1, "crc": 1, "ids": "a" * 32}},
        {"dropped": {"file": "dropped-g2.fli", "count": 0, "crc": 1, "ids": "a" * 32}},
        {"index": "index-g3.fli"},
        {"index": "index-2.fli"},
    ],
    ids=str,
)
def test_wrong_manifests_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    grown = Grown.begun(tmp_path / "set", 5)
    grown.drop([1])
    path = grown.folder / "dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(FormatError):
        PackedFiles(grown.folder)


def test_only_existing_generations_are_opened(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 5)
    grown.drop([1])
    for wrong in (-1, 3, 0, False, True, "2", 1.0):
        with pytest.raises(ValueError, match=f"must be an integer from 1 to 2, .* Found: {wrong!r}"):
            PackedDataset(grown.folder, generation=wrong)  # type: ignore[arg-type]
    assert PackedDataset(grown.folder, generation=np.int64(1)).manifest.generation == 1  # type: ignore[arg-type]
    assert "generation 1 of 2" in repr(PackedDataset(grown.folder, generation=1))


def test_a_grown_set_packed_anew(tmp_path: Path) -> None:
    """The dropped samples are gone for good, the others move up."""
    grown = Grown.begun(tmp_path / "set", 9)
    grown.append(6)
    pack(grown.folder, tmp_path / "whole", PackOptions(num_proc=1, raw=True, format="lmdb"))
    assert PackedFiles(tmp_path / "whole").id == PackedFiles(grown.folder).id
    grown.drop([0, 4, 12, 14])
    for processes in (1, 2):
        out = tmp_path / f"anew-{processes}"
        pack(grown.folder, out, PackOptions(num_proc=processes, raw=True, shard_size=4096))
        files = PackedDataset(out)
        assert [files.value("number", i) for i in range(len(files))] == grown.generations[-1]
        assert (files.manifest.generation, len(files.dropped)) == (1, 0)
        assert verify(out) == ([], 11)


def test_unpack_leaves_dropped_samples_out(tmp_path: Path) -> None:
    grown = Grown.begun(tmp_path / "set", 9)
    grown.append(3)
    grown.drop([1, 10])
    assert unpack(grown.folder, tmp_path / "files") == 10
    assert len(list((tmp_path / "files").glob("*.png"))) == 10
    with pytest.raises(PackError, match="has grown or lost samples since it was packed: --as coco gives"):
        unpack(grown.folder, tmp_path / "coco", as_="coco")


def test_recode_is_refused(tmp_path: Path) -> None:
    make_tree(tmp_path / "a", {f"c/{i}.jpg": pictures()[f"c/{i:02d}.jpg"] for i in range(4)})
    pack(tmp_path / "a", tmp_path / "set", PackOptions(num_proc=1))
    drop(tmp_path / "set", [1])
    with pytest.raises(
        PackError, match=r"has grown, or samples were dropped: .* --coefficients' makes a rec"
    ):
        recode(tmp_path / "set", "fast", 1)


def test_a_pack_into_a_grown_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its first source is there; another one is sent to --append; --restart deletes nothing of it."""
    make_tree(tmp_path / "a", {f"c/{i}.jpg": pictures()[f"c/{i:02d}.jpg"] for i in range(4)})
    make_tree(tmp_path / "b", {"c/9.jpg": pictures()["c/09.jpg"]})
    out, options = tmp_path / "set", PackOptions(num_proc=1)
    pack(tmp_path / "a", out, options)
    with pytest.raises(PackError, match="--restart throws it away and packs anew; --append adds rows to its"):
        pack(tmp_path / "b", out, options)
    drop(out, [1])
    append(tmp_path / "b", out, options)
    names = sorted(path.name for path in out.iterdir())
    assert main(["pack", str(tmp_path / "a"), str(out), "--num-proc", "1", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert "has all 4 records of this source already, as generation 1. It has changed since, and" in told
    assert "is now generation 3:" in told
    with pytest.raises(PackError, match="--append adds rows to its end; for another set choose another fold"):
        pack(tmp_path / "b", out, options)
    for source in (tmp_path / "a", tmp_path / "b"):
        with pytest.raises(
            PackError, match=r"has grown, or samples were dropped.* generation 3, with 5 reco"
        ):
            pack(source, out, PackOptions(num_proc=1, restart=True))
    with pytest.raises(PackError, match="would delete what no pack of one source makes again"):
        fastload.pack(rows(0, 3), out, SCHEMA, restart=True)
    assert sorted(path.name for path in out.iterdir()) == names
    assert verify(out, entries=True) == ([], 5)


def test_numbers_of_classes_in_words(tmp_path: Path) -> None:
    def row(kind: Any) -> dict[str, Any]:
        return {"image": np.zeros((8, 8, 3), np.uint8), "kinds": [kind]}

    def schema(classes: tuple[str, ...], ids: tuple[int, ...]) -> dict[str, Any]:
        return {"image": Image(), "kinds": Labels(classes, ids)}

    out = tmp_path / "set"
    fastload.pack([row("cat")], out, schema(("cat", "dog"), (17, 18)), raw=True)
    for classes, ids, words in (
        (
            ("cat", "cow"),
            (21, 22),
            r"class 'cat' has the number \(ids\) 17 in the set, and 21 in the new rows",
        ),
        (("cat", "cow"), (), r"have numbers \(ids\) in the set, as 17 for 'cat', and none in the new rows"),
        (("cat", "cow"), (17, 18), "classes cannot be joined"),
    ):
        with pytest.raises(PackError, match=words):
            fastload.pack([row("cat")], out, schema(classes, ids), append=True)
    fastload.pack([row("cow")], out, schema(("cow", "dog"), (21, 18)), append=True)
    kind: Any = PackedFiles(out).schema["kinds"].kind
    assert (kind.classes, kind.ids) == (("cat", "dog", "cow"), (17, 18, 21))
    bare = tmp_path / "bare"
    fastload.pack([row("cat")], bare, schema(("cat", "dog"), ()), raw=True)
    with pytest.raises(PackError, match="in the new rows, as 17 for 'cat', and none in the set"):
        fastload.pack([row("cat")], bare, schema(("cat",), (17,)), append=True)


def test_no_split_is_appended_if_one_cannot_be(tmp_path: Path) -> None:
    found = list(pictures().values())
    for split in ("train", "val"):
        make_tree(tmp_path / "a" / split, {f"c/{i}.jpg": found[i] for i in range(3)})
    make_tree(tmp_path / "b" / "train", {"c/7.jpg": found[7]})
    make_tree(tmp_path / "b" / "val", {"c/0.jpg": found[6], "c/8.jpg": found[8]})
    make_tree(tmp_path / "c" / "train", {"c/7.jpg": found[7]})
    make_tree(tmp_path / "c" / "test", {"c/7.jpg": found[7]})
    out, options = tmp_path / "set", PackOptions(num_proc=1)
    pack(tmp_path / "a", out, options)
    for source, words in (
        ("b", r"1 of 2 new rows have keys that samples of .*val have: c/0.jpg. Nothing was appended"),
        ("c", r"c has the split 'test', and the output has train, val. Nothing was appended"),
        ("c/train", "train has no splits, and the output has train, val. Nothing was appended"),
    ):
        with pytest.raises(PackError, match=words):
            append(tmp_path / source, out, options)
        assert [Manifest.read(out / split).generation for split in ("train", "val")] == [1, 1]
    with pytest.raises(PackError, match="b has the split 'train', and the output has one set, without spl"):
        append(tmp_path / "b", out / "train", options)
    results = append(tmp_path / "b", out, PackOptions(num_proc=1, on_error="skip"))
    assert [result.added for result in results] == [1, 1]  # type: ignore[attr-defined]
    assert sorted(path.name for path in out.iterdir()) == ["train", "val"]


def test_splits(tmp_path: Path) -> None:
    found = list(pictures().values())
    for name, first in (("a", 0), ("b", 4)):
        for split in ("train", "val"):
            make_tree(tmp_path / name / split, {f"c/{first + i}.jpg": found[first + i] for i in range(3)})
    out = tmp_path / "set"
    pack(tmp_path / "a", out, PackOptions(num_proc=1))
    results = append(tmp_path / "b", out, PackOptions(num_proc=1))
    assert [result.output.name for result in results] == ["train", "val"]
    for split in ("train", "val"):
        assert len(PackedFiles(out / split)) == 6
    assert sorted(path.name for path in out.iterdir()) == ["train", "val"]


def test_other_commands_over_a_grown_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that go through all records, and those that go by an epoch's order."""
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(tmp_path))  # outside of the node's
    found = list(pictures().values())
    make_tree(tmp_path / "a", {f"c/{i}.jpg": data for i, data in enumerate(found[:8])})
    make_tree(tmp_path / "b", {f"c/n{i}.jpg": data for i, data in enumerate(found[8:])})
    out = tmp_path / "set"
    pack(tmp_path / "a", out, PackOptions(num_proc=1))
    append(tmp_path / "b", out, PackOptions(num_proc=1))
    drop(out, [0, 9])
    for words in (
        ["index", str(out), "--entries", "16", "--num-proc", "1"],
        ["verify", str(out), "--decode", "--entries"],
        ["warm", str(out), "--page-cache", "--ranks", "0-1/2", "--batch-size", "2"],
        ["plan", str(out), "--shuffle", "block", "--batch-size", "2"],
        ["info", str(out), "--json"],
    ):
        assert main(words) == 0, capsys.readouterr().err
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sorted(path.name for path in out.glob("entries*")) == ["entries-g3.fli"]
    assert (facts["generation"], facts["dropped"]) == (3, 2)
    assert [one["records"] for one in facts["generations"]] == [8, len(found)]
    assert verify(out, entries=True) == ([], len(found))
    assert main(["index", str(out), "--entries", "none"]) == 0
    assert not list(out.glob("entries*"))
