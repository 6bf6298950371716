"""Runs of samples in packed sets, from every source, against rows that Python sorts."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fault_server import FaultServer
from killer import Killer
from long_forms import SEED, as_drawn, how_many
from pack_trees import encoded, make_tree
from run_reference import FIELDS, KEYED, SOURCES, Row, check_runs, pack_rows, python_rows, rows_of

import fastload
from fastload import PackedDataset
from fastload.cli import main
from fastload.errors import ChecksumError, FormatError, PackError, StateError
from fastload.packing.drop import drop
from fastload.packing.recode import recode
from fastload.packing.verify import verify
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest

#: Ways to group, order and time the rows of a table.
WORDS = (
    "episode:frame:stamp", "scene:stamp", "label:frame", "/:/:30fps", "episode:nanos:nanos@ns", "scene:/",
    "/:frame:12.5fps", "episode:stamp:nanos@ns",
)  # fmt: skip


@pytest.mark.parametrize("case", range(how_many(2, 40)))
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_of_fields(tmp_path: Path, source: str, shuffled: bool, case: int) -> None:
    draw = random.Random(f"{SEED} {case} {source} {shuffled}")
    rows = rows_of(draw, [draw.randrange(1, 9) for _ in range(3)], shuffled)
    words = draw.choice([w for w in WORDS if "/" not in w] if source.startswith(("py", "it")) else WORDS)
    files = pack_rows(source, rows, tmp_path / "rows", tmp_path / "set", words)
    check_runs(files, rows, words)
    assert verify(files.folder) == ([], len(rows)), as_drawn((case, words))


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("source", KEYED)
def test_every_source_of_keys(tmp_path: Path, source: str, shuffled: bool) -> None:
    """Folders are packed in the order of letters, tars in their own."""
    rows = rows_of(random.Random(7), (5, 1, 12), shuffled)
    words = "/:/:30fps"
    files = pack_rows(source, rows, tmp_path / "rows", tmp_path / "set", words)
    by_key = {row.path.removesuffix(".png"): row for row in rows}
    check_runs(files, [by_key[files.key(i).removesuffix(".png")] for i in range(len(files))], words)
    assert verify(files.folder) == ([], len(rows))


# ---- What the user says -------------------------------------------------------------------------------


def packed(
    rows: Sequence[Row], output: Path, words: str | None = "episode:frame:stamp", **more: object
) -> PackedFiles:
    """A set of rows in Python."""
    given = {"raw": True, "shard_size": 4096, "runs": words, **more}
    fastload.pack(python_rows(rows), output, FIELDS, **given)  # type: ignore[arg-type]
    return PackedFiles(output)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "take:frame",
            r"runs 'take:frame': there is no field 'take', which is to be BY\. There are: image, ",
        ),
        ("episode:take", "no field 'take', which is to be ORDER"),
        ("episode:frame:take@ms", "no field 'take', which is to be TIME"),
        (
            "stamp:frame",
            r"BY must be a scalar of integers, a label or a text, or '/' \(the key\)\. Found: 'stamp'",
        ),
        ("episode:scene", "ORDER must be a scalar of integers or floats.* Found: 'scene', text"),
        ("episode:label", "ORDER must be .* Found: 'label', label"),
        ("episode:frame:scene", "TIME must be .* Found: 'scene', text"),
        ("episode:image", "ORDER must be .* Found: 'image', image"),
        (
            "episode:frame:nanos",
            r"'nanos' is scalar\(int64\), and nothing says of which unit\. Write nanos@ and",
        ),
    ],
)
@pytest.mark.parametrize("source", ["python", "csv"])
def test_fields_that_cannot_be_are_refused_before_anything_is_packed(
    tmp_path: Path, source: str, words: str, said: str
) -> None:
    rows = rows_of(random.Random(1))
    with pytest.raises(PackError, match=said):
        pack_rows(source, rows, tmp_path / "rows", tmp_path / "set", words)
    assert not [*tmp_path.glob("set/*.arrow")]


@pytest.mark.parametrize(
    ("words", "changes", "said"),
    [
        (
            "episode:frame", {1: {"frame": 0}, 2: {"frame": 0}},
            r"two samples of episode 100 have frame 0: '00000001.*' \(sample 1\) and '00000002.*' \(sample",
        ),
        ("scene:frame", {1: {"frame": 0}, 2: {"frame": 0}}, "two samples of scene 'scene0' have frame 0"),
        ("label:frame", {1: {"frame": 0}, 2: {"frame": 0}}, "two samples of label 'kitchen' have frame 0"),
        ("label:frame", {1: {"label": -1}}, r"the label 'label' of '00000001.*' \(sample 1\) is missing"),
        ("episode:stamp", {1: {"stamp": float("nan")}, 2: {"stamp": float("inf")}},
         r"the order 'stamp' of '00000001.*' \(sample 1\), and of 1 more is no number"),
        ("episode:frame:stamp", {1: {"stamp": float("nan")}}, "'stamp' of .*sample 1.* is no number"),
        ("episode:frame:stamp", {2: {"stamp": -99.0}},
         r"the time does not increase with the order in episode 100: stamp is .* at frame \d+ .*sample 1.*, "
         r"and -99.0 at frame \d+ .*sample 2.*, which comes next"),
        ("episode:frame:nanos@ns", {0: {"nanos": 5}, 1: {"nanos": 5}}, "nanos is 5 at frame .* and 5 at"),
    ],
)  # fmt: skip
def test_values_that_give_no_order(
    tmp_path: Path, words: str, changes: dict[int, dict[str, float]], said: str
) -> None:
    """The shards stay: the same command with other runs goes on."""
    rows = rows_of(random.Random(2))
    for sample, change in changes.items():
        rows[sample] = replace(rows[sample], **change)  # type: ignore[arg-type]
    with pytest.raises(PackError, match=said) as error:
        packed(rows, tmp_path / "set", words)
    assert "Shards are kept: the same command with other runs, or 'none', goes on." in str(error.value)
    assert not (tmp_path / "set" / "dataset.json").exists()
    packed(rows, tmp_path / "set", "none")
    assert PackedFiles(tmp_path / "set").runs is None


def test_an_unfinished_pack_of_files_goes_on_with_other_runs(tmp_path: Path) -> None:
    names = ["a/1.png", "a/b1.png", "c/2.png"]
    source = make_tree(tmp_path / "a", {name: encoded(1, "PNG") for name in names})
    given = {"shard_size": 4096, "entries": None}
    with pytest.raises(
        PackError, match="two samples of folder 'a' have one number in their file names: 'a/1"
    ):
        fastload.pack(source, tmp_path / "set", runs="/", **given)  # type: ignore[arg-type]
    written = {path: path.stat().st_ino for path in (tmp_path / "set").glob("*.arrow")}
    assert written
    with pytest.raises(PackError, match="runs was /:/, now None"):
        fastload.pack(source, tmp_path / "set", **given)  # type: ignore[arg-type]
    fastload.pack(source, tmp_path / "set", runs="none", **given)  # type: ignore[arg-type]
    assert {path: path.stat().st_ino for path in (tmp_path / "set").glob("*.arrow")} == written
    with pytest.raises(PackError, match="holds a pack with other options: runs was none, now /:/"):
        fastload.pack(source, tmp_path / "set", runs="/", **given)  # type: ignore[arg-type]


def test_gaps_under_a_rate_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A rate counts rows. Even steps of any length are no gaps, and times or names are no counts."""
    for number, (frames, words, told) in enumerate(
        (
            ([0, 1, 3, 4], "episode:frame:5fps", True), ([0, 5, 10], "episode:frame:5fps", False),
            ([0, 5, 15], "/:frame:5fps", True), ([100, 131, 165], "episode:frame:5fps", False),
            ([0, 1, 3], "episode:frame", False), ([0, 1, 3], "episode:stamp:5fps", False),
            ([7], "label:frame:5fps", False),
        )
    ):  # fmt: skip
        rows = [Row(0, 1, "s", frame, frame / 10, frame) for frame in frames]
        packed(rows, tmp_path / str(number), words)
        said = capfd.readouterr().err
        assert ("1 of 1 runs have gaps: in " in said) == told, words
        assert told == (
            "frame 1 is followed by frame 3. A rate (5fps)" in said or "frame 5 is followed" in said
        )
    drop(tmp_path / "1", [1])
    assert PackedFiles(tmp_path / "1").runs.times_at(np.arange(2)).tolist() == [0, 0.4]  # type: ignore[union-attr]
    source = make_tree(tmp_path / "f", {f"a/{i}.png": encoded(i, "PNG") for i in (1, 2, 4)})
    fastload.pack(source, tmp_path / "b", runs="/::2fps")
    assert "in folder 'a', file '2.png' is followed by file '4.png'" in capfd.readouterr().err


def test_numbers_with_a_point(tmp_path: Path) -> None:
    """As TUM's sets have them; one of another length may be a number or a count."""
    names = ["b/1305031102.175304.png", "b/1305031103.075336.png", "b/1305031103.175336.png"]
    fastload.pack(
        make_tree(tmp_path / "a", dict.fromkeys(names, encoded(1, "PNG"))), tmp_path / "set", runs="/"
    )
    runs = PackedFiles(tmp_path / "set").runs
    assert runs is not None
    assert runs.ids is None
    make_tree(tmp_path / "a", {"b/1305031103.2.png": encoded(2, "PNG")})
    with pytest.raises(
        PackError, match=r"have different numbers of digits behind a point: 'b/.*175304.*\.2\.png"
    ):
        fastload.pack(tmp_path / "a", tmp_path / "other", runs="/")


def test_a_set_keeps_its_runs_or_is_told_otherwise(tmp_path: Path) -> None:
    rows = rows_of(random.Random(3), shuffled=True)
    first = packed(rows, tmp_path / "first").folder
    for name, more, words in (
        ("kept", {}, "episode:frame:stamp"), ("other", {"runs": "scene:stamp"}, "scene:stamp"),
    ):  # fmt: skip
        for _ in range(2):  # the second finds the first complete
            fastload.pack(first, tmp_path / name, raw=True, **more)  # type: ignore[arg-type]
            check_runs(PackedFiles(tmp_path / name), rows, words)
    fastload.pack(first, tmp_path / "none", raw=True, runs="none")
    assert PackedFiles(tmp_path / "none").runs is None
    fewer = {name: kind for name, kind in FIELDS.items() if name != "episode"}
    with pytest.raises(
        PackError, match="no field 'episode'.* The set that is packed has these runs: leave out"
    ):
        fastload.pack(first, tmp_path / "fewer", fewer)
    fastload.pack(first, tmp_path / "fewer", fewer, runs="none")
    assert PackedFiles(tmp_path / "fewer").runs is None
    # The same runs and samples are one set, whatever it went through; without runs, or with others, another.
    ids = [PackedFiles(tmp_path / name).id for name in ("first", "kept", "other", "none")]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_the_unit_of_a_tables_times_is_known(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"image": encoded(i, "PNG", 4, 4), "take": 1, "at": 1000 * i} for i in range(3)]
    table = pa.Table.from_pylist(rows)
    table = table.set_column(2, "at", table["at"].cast(pa.timestamp("ms")))
    parquet.write_table(table, tmp_path / "t.parquet")
    for words in ("take:at", "take:at:at", "take:at:at@ms"):
        fastload.pack(tmp_path / "t.parquet", tmp_path / "set", runs=words, restart=True)
        runs = PackedFiles(tmp_path / "set").runs
        assert runs is not None
        assert str(runs.spec) == "take:at:at@ms"
        assert runs.times_at(np.arange(3)).tolist() == [0, 1, 2]  # type: ignore[union-attr]
    with pytest.raises(PackError, match=r"'at' was a column of timestamp\[ms\]\. Leave out its unit"):
        fastload.pack(tmp_path / "t.parquet", tmp_path / "set", runs="take:at:at@us", restart=True)
    # A set that is packed again keeps the unit.
    fastload.pack(tmp_path / "t.parquet", tmp_path / "set", runs="take:at", restart=True)
    fastload.pack(tmp_path / "set", tmp_path / "again")
    assert PackedFiles(tmp_path / "again").manifest.runs.spec.unit == 1e-3  # type: ignore[union-attr]


# ---- Sets that change ---------------------------------------------------------------------------------


def test_appended_rows_go_on_in_runs_that_are_there_and_earlier_generations_stay(tmp_path: Path) -> None:
    rows = rows_of(random.Random(4), (6, 7, 3), shuffled=True)
    folder = packed(rows[:9], tmp_path / "set").folder
    before = PackedFiles(folder)
    fastload.pack(python_rows(rows[9:12]), folder, FIELDS, append=True)
    drop(folder, [2, 10])
    fastload.pack(python_rows(rows[12:]), folder, FIELDS, append=True, runs="episode:frame:stamp")
    assert verify(folder) == ([], 16)
    left = [{*range(9)}, {*range(12)}, {*range(12)} - {2, 10}, {*range(16)} - {2, 10}]
    newest = PackedDataset(folder)
    for generation, ids in enumerate(left, 1):
        runs = newest.at(generation).runs
        assert runs is not None
        by_hand: dict[int, list[int]] = {}
        for sample in sorted(ids):
            by_hand.setdefault(rows[sample].episode, []).append(sample)
        wanted = [sorted(found, key=lambda sample: rows[sample].frame) for found in by_hand.values()]
        assert sorted(wanted) == sorted(
            runs.ids_at(np.arange(a, b)).tolist() for a, b in zip(runs.begins, runs.begins[1:], strict=False)
        )
        every = np.arange(16)
        places = runs.places_of(every)
        assert {*np.flatnonzero(places >= 0).tolist()} == ids
        assert runs.ids_at(places[places >= 0]).tolist() == sorted(ids)
        times = runs.times_at(np.arange(len(ids)))
        assert times is not None
        assert times.tolist() == [rows[sample].stamp for sample in runs.ids_at(np.arange(len(ids))).tolist()]
    # What was opened before and looks only now finds the present file.
    assert before.runs is not None
    assert np.array_equal(before.runs.begins, newest.at(1).runs.begins)  # type: ignore[union-attr]
    assert sorted(path.name for path in folder.glob("runs*")) == ["runs-g4.fli"]


def test_rows_that_take_the_place_of_dropped_ones(tmp_path: Path) -> None:
    """Two rows of one order are an error among those that are there; a rate tells the others' times."""
    rows = rows_of(random.Random(5), (5,))
    folder = packed(rows, tmp_path / "set", "episode:frame:10fps").folder
    again = python_rows([replace(rows[2], stamp=-7.0)])
    again[0]["image"] = np.full((4, 4, 3), 99, np.uint8)
    with pytest.raises(PackError, match="two samples of episode 100 have frame .* Nothing was appended"):
        fastload.pack(again, folder, FIELDS, append=True)
    assert PackedFiles(folder).manifest.generation == 1
    drop(folder, [2, 3])
    runs = PackedFiles(folder).runs
    assert runs is not None
    assert runs.ids_at(np.arange(3)).tolist() == [0, 1, 4]
    assert runs.times_at(np.arange(3)).tolist() == [0.0, 0.1, 0.4]  # type: ignore[union-attr]
    fastload.pack(again, folder, FIELDS, append=True)
    runs = PackedFiles(folder).runs
    assert runs is not None
    assert runs.ids_at(np.arange(4)).tolist() == [0, 1, 5, 4]
    assert runs.times_at(np.arange(4)).tolist() == [0.0, 0.1, 0.2, 0.4]  # type: ignore[union-attr]
    first = PackedDataset(folder, generation=1).runs
    assert first is not None
    assert first.ids_at(np.arange(5)).tolist() == [0, 1, 2, 3, 4]
    assert verify(folder) == ([], 6)


def test_an_append_takes_the_runs_of_the_set(tmp_path: Path) -> None:
    rows = rows_of(random.Random(6), (3, 2))
    with_runs, without = (
        packed(rows[:3], tmp_path / "a").folder,
        packed(rows[:3], tmp_path / "b", None).folder,
    )
    for folder, words in ((with_runs, "episode:nanos@ns"), (with_runs, "none"), (without, "episode:frame")):
        with pytest.raises(PackError, match="runs is .* in the set, asked for is"):
            fastload.pack(python_rows(rows[3:]), folder, FIELDS, append=True, runs=words.replace("@ns", ""))
    fastload.pack(python_rows(rows[3:]), without, FIELDS, append=True, runs="none")
    assert PackedFiles(without).runs is None


def test_recoding_keeps_runs(tmp_path: Path) -> None:
    files = {
        f"seq{run}/f{number}.jpg": encoded(20 * run + number) for run in range(2) for number in range(12)
    }
    source = make_tree(tmp_path / "source", files)
    fastload.pack(source, tmp_path / "set", runs="/:/:5fps")
    before = PackedFiles(tmp_path / "set")
    assert before.runs is not None
    for form in ("fast", None):
        result = recode(tmp_path / "set", form, 1)
        now = PackedFiles(tmp_path / "set")
        assert now.runs is not None
        assert np.array_equal(now.runs.ids, before.runs.ids)  # type: ignore[arg-type]
        assert result.manifest.runs == before.manifest.runs
        assert before.id in now.manifest.all_ids
        assert verify(tmp_path / "set") == ([], 24)


# ---- Files ----------------------------------------------------------------------------------------------


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    rows = rows_of(random.Random(8), shuffled=True)
    folder = packed(rows, tmp_path / "set").folder
    path = folder / "runs.fli"
    good = path.read_bytes()
    places = [8, 20, 4096, 4100, len(good) - 5, *random.Random(9).sample(range(4096, len(good)), 12)]
    for place in places:
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        problems, _ = verify(folder)
        assert [problem.shard for problem in problems] == ["runs.fli"], place
        with pytest.raises((ChecksumError, FormatError)):
            _ = PackedFiles(folder).runs
    path.unlink()
    assert [problem.shard for problem in verify(folder)[0]] == ["runs.fli"]
    path.write_bytes(good)
    assert verify(folder)[0] == []


def test_runs_of_another_order_are_found(tmp_path: Path) -> None:
    """Files that belong together by their digests, and are not what the columns say."""
    rows = rows_of(random.Random(10))
    one, other = packed(rows, tmp_path / "one").folder, packed(rows, tmp_path / "other", "label:stamp").folder
    manifests = [Manifest.read(folder) for folder in (one, other)]
    assert manifests[0].runs is not None
    assert manifests[1].runs is not None
    crossed = replace(
        manifests[1].runs, spec=replace(manifests[0].runs.spec, by="frame", time=None, unit=None)
    )
    replace(manifests[1], runs=crossed).write(other)
    assert [problem.reason for problem in verify(other)[0]] == [
        "has other runs than the set's columns and keys give"
    ]


def test_a_manifest_whose_runs_break_a_rule_is_refused(tmp_path: Path) -> None:
    folder = packed(rows_of(random.Random(11)), tmp_path / "set").folder
    body = json.loads((folder / "dataset.json").read_text())
    assert body["fastload"] == [1, 8]
    assert body["runs"] | {"size": 0, "digest": 0} == {
        "file": "runs.fli", "size": 0, "digest": 0, "count": 3, "by": "episode", "order": "frame",
        "time": "stamp", "unit": "s",
    }  # fmt: skip
    for wrong in (
        {"file": "../runs.fli"}, {"file": None}, {"size": -1}, {"count": "3"}, {"by": ""}, {"order": 1},
        {"unit": "h"}, {"unit": None}, {"fps": 30}, {"fps": 0, "time": None, "unit": None}, {"time": None},
    ):  # fmt: skip
        changed = {**body, "runs": {**body["runs"], **wrong}}
        (folder / "dataset.json").write_text(json.dumps(changed))
        with pytest.raises(FormatError, match="'runs' must"):
            Manifest.read(folder)
    (folder / "dataset.json").write_text(json.dumps({**body, "runs": [1]}))
    with pytest.raises(FormatError, match="lacks or damages a field"):
        Manifest.read(folder)


def test_a_state_does_not_fit_other_runs(tmp_path: Path) -> None:
    """Batches with windows would differ."""
    rows = rows_of(random.Random(16))
    sets = [packed(rows, tmp_path / str(i), w).folder for i, w in enumerate(("episode:frame", "label:frame"))]
    with fastload.DataLoader(sets[0], batch_size=2) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with fastload.DataLoader(sets[0], batch_size=2) as loader:
        loader.load_state_dict(state)
    with fastload.DataLoader(sets[1], batch_size=2) as loader, pytest.raises(StateError, match="dataset"):
        loader.load_state_dict(state)


def test_sets_by_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node keeps the runs; those of another pack of the same samples are not taken for them."""
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    rows = rows_of(random.Random(12), shuffled=True)
    served = {}
    for name, words in (("a", "episode:frame"), ("b", "scene:stamp")):
        folder = packed(rows, tmp_path / name / "set", words).folder
        served |= {
            f"/{name}/set/{path.name}": path.read_bytes() for path in folder.iterdir() if path.is_file()
        }
    with FaultServer(served) as server:
        for name, words in (("a", "episode:frame"), ("b", "scene:stamp"), ("a", "episode:frame")):
            files = PackedFiles(f"{server.url}/{name}/set")
            check_runs(files, rows, words)
            assert verify(f"{server.url}/{name}/set") == ([], len(rows))
        assert (files.folder / "runs.fli").exists()
        fastload.pack(f"{server.url}/a/set", tmp_path / "again")
    check_runs(PackedFiles(tmp_path / "again"), rows, "episode:frame")


def test_what_a_store_has_of_an_earlier_pack_is_removed(tmp_path: Path) -> None:
    rows, where = rows_of(random.Random(13)), f"file://{tmp_path}/set"
    for words in ("episode:frame", "none"):
        fastload.pack(python_rows(rows), where, FIELDS, raw=True, runs=words, restart=True)
        assert (tmp_path / "set" / "runs.fli").exists() == (words != "none")
    for words in ("episode:frame", "none"):
        packed(rows, tmp_path / "here", words, restart=True)
        assert (tmp_path / "here" / "runs.fli").exists() == (words != "none")


def test_every_kill_leaves_the_set_or_none(tmp_path: Path) -> None:
    """Around every change of the disk while a pack publishes, and while rows are appended."""
    rows = rows_of(random.Random(14), (4, 4), shuffled=True)
    made, more = python_rows(rows[:5]), python_rows(rows[5:])

    def pack() -> None:
        given = {"raw": True, "runs": "episode:frame", "entries": None}
        fastload.pack(made, tmp_path / "set", FIELDS, **given)  # type: ignore[arg-type]

    def append() -> None:
        fastload.pack(more, tmp_path / "set", FIELDS, append=True)

    for run, before, generation in ((pack, 0, 1), (append, 1, 2)):
        at = 0
        while True:
            state = tmp_path / "state"
            shutil.rmtree(state, ignore_errors=True)
            if (tmp_path / "set").exists():
                shutil.copytree(tmp_path / "set", state)
            ended = not killed(run, at)
            if before or (tmp_path / "set" / "dataset.json").exists():
                assert verify(tmp_path / "set")[0] == []
                found = Manifest.read(tmp_path / "set")
                assert found.generation in (before, generation)
                assert found.runs is not None
            if ended:
                break
            if at % 2 == 0:
                run()
                assert verify(tmp_path / "set")[0] == []
                check_runs(
                    PackedFiles(tmp_path / "set"), rows[: len(PackedFiles(tmp_path / "set"))], "episode:frame"
                )
            shutil.rmtree(tmp_path / "set")
            if state.exists():
                shutil.copytree(state, tmp_path / "set")
            at += how_many(7, 1)
        assert at > 20


def killed(run: Callable[[], None], at: int) -> bool:
    """Run in a child that is killed at point ``at``; False if it came to its end."""
    child = os.fork()
    if child == 0:
        killer = Killer(at)
        for name in ("replace", "unlink", "rmdir", "mkdir", "fsync"):
            setattr(os, name, killer.around(getattr(os, name)))
        try:
            run()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


# ---- The command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["jsonl", "csv", "parquet"])
def test_an_unpacked_set_gets_its_runs_again(
    tmp_path: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(random.Random(15), shuffled=True)
    packed(rows, tmp_path / "set", "scene:nanos:nanos@ns")
    assert main(["unpack", str(tmp_path / "set"), str(tmp_path / "files"), "--table", table]) == 0
    words = re.search(r"--runs ([^\s']+)", capsys.readouterr().out)
    assert words is not None
    fastload.pack(tmp_path / "files" / f"samples.{table}", tmp_path / "again", raw=True, runs=words[1])
    check_runs(PackedFiles(tmp_path / "again"), rows, words[1])
    assert main(["unpack", str(tmp_path / "set"), str(tmp_path / "json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == words[1]


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        f"seq{run}/f{number}.jpg": encoded(20 * run + number) for run in range(3) for number in range(run + 1)
    }
    source, folder = make_tree(tmp_path / "source", files), tmp_path / "set"
    assert main(["pack", str(source), str(folder), "--runs", "/:/:30fps", "--quiet", "--num-proc", "1"]) == 0
    assert re.search(r"runs +3, by /:/:30fps\n", capsys.readouterr().out)
    assert main(["info", str(folder)]) == 0
    assert "3 by /:/:30fps, of 1 / 2 / 3 samples (min / median / max)" in capsys.readouterr().out
    assert main(["info", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["runs"]
    assert said == {"by": "/:/:30fps", "count": 3, "min": 1, "median": 2, "max": 3}
    assert main(["pack", str(source), str(folder), "--runs", "a:b:c:d", "--quiet"]) == 1
    assert "runs are BY[:ORDER[:TIME]]: BY and ORDER are fields or '/'" in capsys.readouterr().err
    unfit = ["pack", str(source), str(tmp_path / "other"), "--runs", "take", "--dry-run"]
    assert main(unfit) == 1
    assert "no field 'take', which is to be BY" in capsys.readouterr().err
