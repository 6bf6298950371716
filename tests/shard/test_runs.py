"""What orders a set: words for runs, names of files, and runs that are computed, against Python's sort."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from long_forms import SEED, as_drawn, how_many

import fastload
from fastload import Array, Image, Label, PackedDataset, Scalar, Text
from fastload.errors import FormatError
from fastload.packing.drop import drop
from fastload.sample.schema import Schema
from fastload.shard.runs import RunsSpec, read_runs, runs_of, write_runs

# ---- Words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "spec"),
    [
        ("episode", RunsSpec("episode")),
        ("/", RunsSpec("/")),
        ("episode:frame", RunsSpec("episode", "frame")),
        ("episode::at", RunsSpec("episode", "/", "at")),
        ("episode:frame:at@us", RunsSpec("episode", "frame", "at", 1e-6)),
        ("a:b:c@d@ms", RunsSpec("a", "b", "c@d", 1e-3)),
        ("a:b:c@h", RunsSpec("a", "b", "c@h")),
        ("a:b:@s", RunsSpec("a", "b", "@s")),
        ("/:/:29.97fps", RunsSpec("/", fps=29.97)),
        ("/::30fps", RunsSpec("/", fps=30.0)),
    ],
)
def test_words(words: str, spec: RunsSpec) -> None:
    assert RunsSpec.of(words) == spec
    assert RunsSpec.of(str(spec)) == spec


@pytest.mark.parametrize("words", ["", ":frame", "a:b:c:d", "a:b:/", "a:b:0fps", "a:b:1000000fps"])
def test_words_that_say_nothing(words: str) -> None:
    with pytest.raises(ValueError, match=r"runs are BY\[:ORDER\[:TIME\]\].* Found: "):
        RunsSpec.of(words)


FIELDS = Schema.of(
    {
        "image": Image(), "label": Label(("a", "b")), "word": Text(null=True), "n": Scalar("uint8"),
        "x": Scalar("float32"), "ok": Scalar("bool"), "pose": Array("float32", (3,)),
    }
)  # fmt: skip


def test_what_words_leave_open_follows_from_the_fields() -> None:
    for words, wanted in (
        ("n:x", "n:x:x@s"), ("n:n", "n:n"), ("word", "word:/"), ("label:x:x@ms", "label:x:x@ms"),
        ("n:n:x", "n:n:x@s"), ("n:x:5fps", "n:x:5fps"), ("/:n:n@ns", "/:n:n@ns"),
    ):  # fmt: skip
        fitted = RunsSpec.of(words).fitted(FIELDS)
        assert str(fitted) == wanted
        assert fitted.fitted(FIELDS) == fitted
        assert RunsSpec.from_json(fitted.to_json()) == fitted


@pytest.mark.parametrize(
    "words", ["x:n", "ok:n", "pose:n", "image", "n:ok", "n:word", "n:pose", "n:n:ok", "n:n:n", "n:n:word"]
)
def test_fields_that_say_nothing(words: str) -> None:
    with pytest.raises(ValueError, match=f"^runs '{words}"):
        RunsSpec.of(words).fitted(FIELDS)


def test_ids_of_sets() -> None:
    a, b = (RunsSpec.of(words).fitted(FIELDS) for words in ("n:x", "n:x:x@s"))
    text = "0" * 32 + ' in runs {"by":"n","order":"x","time":"x","unit":"s"}'
    wanted = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    assert a.id_of("0" * 32) == b.id_of("0" * 32) == wanted
    others = [RunsSpec.of(words).fitted(FIELDS) for words in ("n:n", "n:n:x@ms", "n:n:3fps", "label:x", "n")]
    assert len({spec.id_of("0" * 32) for spec in (a, *others)}) == 6


# ---- Names of files -----------------------------------------------------------------------------------


def folder_of(path: Path, names: list[str]) -> PackedDataset:
    """A set with these keys, in this order: members of a tar, packed."""
    from pack_trees import encoded
    from tar_reference import write_tar

    path.mkdir()
    write_tar(path / "a.tar", [(f"{name}", encoded(i, "PNG", 4, 4)) for i, name in enumerate(names)])
    fastload.pack(path / "a.tar", path / "set", entries=None)
    return PackedDataset(path / "set")


@pytest.mark.parametrize(
    "names",
    [
        ["s/000009.png", "s/000010.png", "s/000100.png"],
        ["s/f9.jpg", "s/f10.jpg", "s/f100.jpg"],
        ["s/cam1_9.png", "s/cam1_10.png"],
        ["a/2024-05-01_12-30-05.png", "a/2024-05-01_12-30-06.png"],
        ["s/zebra7_1.png", "s/apple3_2.png"],  # the last number decides
        ["9.png", "10.png", "x11.png"],
        ["1403636579763555584.png", "1403636579813555456.png"],
        ["a/-10.png", "a/-2.png", "a/-1.png", "a/3.png"],
        ["a/frame-1.png", "a/frame-2.png", "a/frame-10.png"],
        ["a/b/first.png", "a/b/second.png", "a/b/third.png"],
        ["n015-07-24__CAM_FRONT__1532402927612460.jpg", "n015-07-24__CAM_FRONT__1532402927662460.jpg"],
    ],
)
def test_names_order_their_samples(tmp_path: Path, names: list[str]) -> None:
    draw = random.Random(1)
    mixed = draw.sample(names, len(names))
    runs = runs_of(folder_of(tmp_path / "a", mixed), RunsSpec("/"))
    assert [mixed[i] for i in runs.ids_at(np.arange(len(names))).tolist()] == names
    assert runs.name_of(0) == f"folder {names[0].rpartition('/')[0]!r}"
    assert runs.order_of(1).startswith(f"file '{names[1].rpartition('/')[2].split('.')[0]}")


def test_names_that_give_no_order(tmp_path: Path) -> None:
    for number, (names, said) in enumerate(
        (
            (
                ["s/1.png", "s/a.png"],
                r"number in the file name of 's/a.*' \(sample 1\) is missing, others have",
            ),
            (["s/left1.png", "s/right1.png"], "have one number in their file names: 's/left1"),
            (["a/12-30-59.png", "a/12-31-00.png"], r"'a/12-31-00.*' \(sample 1\) comes before 'a/12-30-59"),
            (["s/cam2_9.png", "s/cam1_10.png"], "and behind it by those before that one. Name a field"),
            (["s/12345678901234567890.png", "s/1.png"], "is above 2\\*\\*63"),
            (["s/t-5.png", "s/t1.png"], "whether '-' is a sign or a hyphen"),
        )
    ):
        with pytest.raises(ValueError, match=said):
            runs_of(folder_of(tmp_path / str(number), names), RunsSpec("/"))


# ---- Values -------------------------------------------------------------------------------------------

KINDS: dict[str, Any] = {
    name: Scalar(name) for name in ("int8", "uint64", "int64", "float16", "float32", "float64")
}


def drawn(draw: random.Random, kind: str) -> Any:
    if kind == "uint64":
        return draw.randrange(2**64 - 500, 2**64)
    if kind == "int64":
        return draw.randrange(-(2**63), -(2**63) + 500)
    return draw.randrange(-128, 128) / (1 if kind == "int8" else 4)


@pytest.mark.parametrize("case", range(how_many(6, 300)))
def test_runs_are_what_python_sorts(tmp_path: Path, case: int) -> None:
    """Any values of any kind, some samples dropped: what is left is in order, in each generation."""
    draw = random.Random(f"{SEED} {case}")
    by, order = draw.choice(["int8", "uint64", "int64", "word", "label"]), draw.choice([*KINDS])
    groups = {"word": ["", "ä", "b", "bb"], "label": ["a", "b", "c"]}.get(by)
    groups = groups or [drawn(draw, by) for _ in range(4)]
    groups = [int(each) if by in KINDS else each for each in groups]
    seen, rows = set(), list[dict[str, Any]]()
    for _ in range(draw.randrange(3, 60)):
        pair = (draw.choice(groups), drawn(draw, order))
        if pair not in seen:
            seen.add(pair)
            rows.append({"image": np.zeros((2, 2, 3), np.uint8), "by": pair[0], "order": pair[1]})
    kinds = {"word": Text(), "label": Label(("a", "b", "c"))}
    schema = {"image": Image(), "by": kinds.get(by) or KINDS[by], "order": KINDS[order]}
    rows = [
        {**row, "order": int(row["order"])} if order in ("int8", "uint64", "int64") else row for row in rows
    ]
    rows = list({(row["by"], row["order"]): row for row in rows}.values())
    fastload.pack(rows, tmp_path / "set", schema, runs="by:order", raw=True, entries=None)
    gone = set(draw.sample(range(len(rows)), draw.randrange(len(rows))))
    generations = [set[int](), gone] if gone else [set[int]()]
    if gone:
        drop(tmp_path / "set", gone)
    for number, left_out in enumerate(generations, 1):
        files = PackedDataset(tmp_path / "set", generation=number)
        wanted: dict[Any, list[int]] = {}
        for sample, row in enumerate(rows):
            wanted.setdefault(row["by"], []).append(sample)
        ordered = [sorted(ids, key=lambda i: rows[i]["order"]) for ids in wanted.values()]
        ordered = [[i for i in ids if i not in left_out] for ids in ordered]
        ordered = [ids for ids in ordered if ids]
        for runs in (files.runs, runs_of(files, RunsSpec("by", "order"))):
            assert runs is not None
            bounds = zip(runs.begins[:-1].tolist(), runs.begins[1:].tolist(), strict=True)
            found = [runs.ids_at(np.arange(a, b)).tolist() for a, b in bounds]
            assert sorted(found) == sorted(ordered), as_drawn((by, order))
            every = np.arange(-1, len(rows) + 1)
            places = runs.places_of(every)
            assert (places >= 0).tolist() == [
                0 <= i < len(rows) and i not in left_out for i in every.tolist()
            ]
            assert runs.ids_at(places[places >= 0]).tolist() == every[places >= 0].tolist()
            times = runs.times_at(np.arange(len(rows) - len(left_out)))
            assert (times is None) == (not order.startswith("float"))
            if times is not None:
                in_order = runs.ids_at(np.arange(len(times))).tolist()
                assert times.tolist() == [rows[i]["order"] for i in in_order]


def test_missing_texts_of_dropped_samples_do_not_matter(tmp_path: Path) -> None:
    rows = [
        {"image": np.zeros((2, 2, 3), np.uint8), "word": word, "n": number}
        for number, word in enumerate(["a", None, "a"])
    ]
    schema = {"image": Image(), "word": Text(null=True), "n": Scalar("int16")}
    fastload.pack(rows, tmp_path / "set", schema, raw=True)
    with pytest.raises(ValueError, match=r"the text 'word' of '00000001.*' \(sample 1\) is missing"):
        runs_of(PackedDataset(tmp_path / "set"), RunsSpec.of("word:n"))
    drop(tmp_path / "set", [1])
    runs = runs_of(PackedDataset(tmp_path / "set"), RunsSpec.of("word:n"))
    assert runs.ids_at(np.arange(2)).tolist() == [0, 2]
    assert (len(runs), runs.name_of(0), runs.order_of(1)) == (1, "word 'a'", "n 2")
    assert PackedDataset(tmp_path / "set").runs is None


# ---- The file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begins", "ids", "said"),
    [
        ([0, 2, 5], None, ""),
        ([0, 2, 5], [4, 3, 2, 1, 0], ""),
        ([1, 2, 5], None, "must begin in ascending places"),
        ([0, 2, 4], None, "ascending places"),
        ([0, 2, 6], None, "ascending places"),
        ([0, 5, 2, 5], None, "ascending places"),
        ([0, 2, 2, 5], None, "ascending places"),
        ([0, 2, 5], [5, 3, 2, 1, 0], "ids below 5"),
        ([0, 2, 5], [-1, 3, 2, 1, 0], "ids below 5"),
        ([0, 2, 5], [1, 0], "it has 5 numbers .* the manifest says 3 or 8"),
    ],
)
def test_a_file_that_a_stranger_wrote(
    tmp_path: Path, begins: list[int], ids: list[int] | None, said: str
) -> None:
    path = tmp_path / "runs.fli"
    file = write_runs(path, RunsSpec("/"), np.array(begins), None if ids is None else np.array(ids))
    assert not [*tmp_path.glob(".tmp*")]
    if said:
        with pytest.raises(FormatError, match=said):
            read_runs(path, file, 5)
    else:
        found = read_runs(path, file, 5)
        assert found[0].tolist() == begins
        assert (None if found[1] is None else found[1].tolist()) == ids
    with pytest.raises(FormatError, match="does not belong to this manifest"):
        read_runs(path, replace(file, digest=file.digest ^ 1), 5)
