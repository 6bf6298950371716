"""A short soak, and that the soak finds what is wrong: batches, samples, processes that hang or grow."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_folder import memory_folder

from fastload.cache import files as cache_files
from fastload.cache.policy import Room
from fastload.errors import CacheError

sys.path.append(str(Path(__file__).parent))

import soak_jobs
from soak_check import Checker
from soak_garden import Command
from soak_jobs import Rank, Start, new_ledger, no_room
from soak_ledger import BLANK, Ledger
from soak_rank import Log, epochs, loader_of
from soak_sets import COUNT, FIELDS, Truth, make_sets
from soak_vandal import Vandal
from soak_watch import BYTES_A_ROUND, judge

HERE = Path(__file__).resolve().parent
SECONDS = 15
ROUNDS = 20


def run(program: str, given: dict[str, Any], **more: Any) -> subprocess.CompletedProcess[str]:
    """A program of this folder, as the soak starts it."""
    path = os.pathsep.join(map(str, (*filter(None, sys.path), HERE.parent / "reference", HERE)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, str(HERE / program), json.dumps(given)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.timeout(900)  # what hangs is found by the soak itself, after two minutes
def test_a_short_soak_finds_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("FASTLOAD_FAULTS_SEED", "1"))
    ended = run("soak.py", {"seconds": SECONDS, "seed": seed, "folder": str(tmp_path)})
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["bad"] == [], ended.stderr
    assert ended.returncode == 0, ended.stderr
    assert found["points"]["batches"] > 0
    assert found["points"]["starts"] >= 3
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("soak")
    return make_sets(folder / "sets", folder / "log")


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth.make()


def job(sets: dict[str, Path], **changes: Any) -> dict[str, Any]:
    """The settings of a plain job of one epoch."""
    plain = {"set": "arrow", "data": str(sets["arrow"]), "kind": "crop", "shuffle": True, "seed": 3}
    plain |= {"size": 12, "epochs": 1, "group": False, "options": {"num_workers": 1, "padding": "mark"}}
    return plain | changes


def ranks_of(job: dict[str, Any], truth: Truth, folder: Path, world: int) -> tuple[list[Any], list[str]]:
    """The job's ranks, one after the other in this process: what each noted, and what was wrong."""
    noted, bad = [], []
    for rank in range(world):
        path = folder / f"rank{rank}"
        with loader_of(job, rank, world) as loader:
            checker = Checker(truth, job["kind"], job["seed"])
            epochs(job, {"rank": rank, "world": world, "pace": 0}, loader, checker, Log(path))
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        noted.append([line for line in lines if "ids" in line])
        bad += [line["bad"] for line in lines if "bad" in line]
    return noted, bad


@pytest.mark.parametrize("kind", ["crop", "crop-float", "fixed", "fixed-float", "callable", FIELDS])
def test_right_batches_are_right(sets: dict[str, Path], truth: Truth, tmp_path: Path, kind: str) -> None:
    name = FIELDS if kind == FIELDS else "arrow"
    given = job(sets, kind=kind, set=name, data=str(sets[name]))
    noted, bad = ranks_of(given, truth, tmp_path, 2)
    ledger = new_ledger(given)
    ledger.take(noted)
    assert (bad, ledger.bad) == ([], [])
    assert (ledger.epochs, ledger.samples) == (1, COUNT)


@pytest.mark.parametrize("defect", ["label", "pixel"])
@pytest.mark.parametrize("kind", ["crop", "crop-float", "fixed"])
def test_a_wrong_batch_is_found(
    sets: dict[str, Path], truth: Truth, tmp_path: Path, kind: str, defect: str
) -> None:
    _, bad = ranks_of(job(sets, kind=kind, defect=defect), truth, tmp_path, 1)
    assert len(bad) == 1
    assert bad[0].startswith("pixels of samples [")


def test_a_rank_that_gets_a_batch_again_is_found(sets: dict[str, Path], truth: Truth, tmp_path: Path) -> None:
    """Each picture is right, and each is its label's; but some samples came twice, and others never."""
    given = job(sets, defect="again")
    noted, bad = ranks_of(given, truth, tmp_path, 2)
    ledger = new_ledger(given)
    ledger.take(noted)
    assert bad == []
    twice = noted[0][3]["ids"]
    assert [text for text in ledger.bad if f"and has {sorted(twice)} twice" in text]


def lines(*positions: int, size: int) -> list[dict[str, Any]]:
    """What a rank alone notes that gets samples in their order, one batch up to each of these positions."""
    return [
        {"ids": list(range(max(0, at - size), at)), "state": {"epoch": 0, "position": at}} for at in positions
    ]


def test_the_ledger_of_resumed_jobs() -> None:
    """Two ranks, of which one was slower, then one rank that does again what one of them had not done."""
    ledger = Ledger(12, 4)
    states = [{"epoch": 0, "position": at} for at in (4, 8)]
    first = [{"ids": [0, 1], "state": states[0]}, {"ids": [4, 5], "state": states[1]}]
    ledger.take([first, [{"ids": [2, 3], "state": states[0]}]])
    assert (ledger.at, ledger.state, ledger.bad) == ((0, 4), states[0], [])
    ledger.take([lines(8, 12, size=4)])
    assert (ledger.at, ledger.bad, ledger.samples, ledger.epochs) == ((1, 0), [], 12, 1)


@pytest.mark.parametrize(
    ("again", "words"),
    [
        (lines(12, size=4), "to a batch at"),  # a batch was left out
        ([{"ids": [6, 5, 4, 7], "state": {"epoch": 0, "position": 8}}], "is sample 6 now and was 4"),
        ([{"ids": [4, 5, 6], "state": {"epoch": 0, "position": 8}}], "got 3 samples, not 4"),
    ],
)
def test_the_ledger_finds_what_resuming_lost(again: list[Any], words: str) -> None:
    ledger = Ledger(12, 4)
    states = [{"epoch": 0, "position": at} for at in (4, 8)]
    first = [{"ids": [0, 1], "state": states[0]}, {"ids": [4, 5], "state": states[1]}]
    ledger.take([first, [{"ids": [2, 3], "state": states[0]}]])
    ledger.take([again])
    assert [text for text in ledger.bad if words in text]


def test_lack_of_room_is_known_by_the_products_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both places where a cache of an explicit size finds none raise what the campaign lets pass."""
    room = Room(10, 5, 10, "the limit", "Raise it.")
    assert no_room(f"fastload.errors.CacheError: {room.lacking(1 << 20, 'The cache')}")
    monkeypatch.setattr(cache_files, "promised_bytes", lambda folder: 1 << 60)
    with memory_folder(tmp_path) as folder, pytest.raises(CacheError) as caught:
        cache_files._check_free(folder, 1 << 20)
    assert no_room(f"fastload.errors.CacheError: {caught.value}")
    assert not no_room("fastload.errors.CacheError: the folder is not trusted")
    assert not no_room(f"ValueError: {caught.value}")


def test_a_job_that_hangs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_jobs, "SILENCE", 0.1)
    with subprocess.Popen(["sleep", "100"]) as process:
        start = object.__new__(Start)
        start.ranks = [Rank(process.pid, tmp_path / "log", tmp_path / "errors", process, time.monotonic())]
        bad: list[str] = []
        while start.living:
            bad += start.poll()[1]
    assert len(bad) == 1
    assert bad[0].startswith("hangs: nothing for 0 s, sleep ")
    assert process.returncode == -signal.SIGABRT


def ended(folder: Path, status: int, *told: dict[str, Any], sent: set[int] | None = None) -> Start:
    """A start of one rank that has ended."""
    start = object.__new__(Start)
    start.job, start.world = {"group": False}, 1
    rank = Rank(0, folder / "log", folder / "errors", None, 0.0, status=status, sent=sent or set())
    rank.told = list(told)
    rank.lines = lines(4, 8, size=4)
    start.ranks = [rank]
    return start


@pytest.mark.parametrize(
    ("status", "told", "sent", "words"),
    [
        (0, {"ended": True}, None, ""),
        (0, {}, None, "exit status 0"),
        (-signal.SIGKILL, {}, {signal.SIGKILL}, ""),
        (-signal.SIGSEGV, {}, {signal.SIGTERM}, "exit status -11"),
        (-signal.SIGTERM, {}, None, "exit status -15"),
        (-signal.SIGTERM, {"preempted": {"epoch": 0, "position": 8}}, {signal.SIGTERM}, ""),
        (-signal.SIGTERM, {"preempted": {"epoch": 0, "position": 4}}, {signal.SIGTERM}, "was preempted at"),
        (3, {"error": "fastload.errors.CacheError: known"}, None, ""),
        (3, {"error": "builtins.KeyError: 5"}, None, "builtins.KeyError: 5"),
        (0, {"ended": True, "bad": "pixels"}, None, "pixels"),
    ],
)
def test_how_a_rank_may_end(
    tmp_path: Path, status: int, told: dict[str, Any], sent: set[int] | None, words: str
) -> None:
    bad = ended(tmp_path, status, told, sent=sent).wrong(lambda error: "known" in error)
    assert len(bad) == (words != "")
    assert words in "".join(bad)


def test_a_command_that_fails_is_found(tmp_path: Path) -> None:
    command = object.__new__(Command)
    command.words, command.log, command.code = ["warm", "x"], tmp_path / "log", 1
    command.hangs = command.killed = False
    command.log.write_text("no room")
    assert command.wrong((0, 1)) == ""
    assert command.wrong((0, 3)) == "fastload warm x: exit code 1: no room"
    command.hangs = True
    assert "hangs" in command.wrong((0, 1))


@pytest.mark.parametrize(
    ("mended", "on_error", "blanks", "found"),
    [
        (False, "skip", 1, False),
        (False, "raise", 1, True),  # a sample is left out, and nobody asked for that
        (True, "skip", 1, True),  # nothing is damaged any more
        (True, "skip", 0, False),
    ],
)
def test_what_a_victim_may_skip(mended: bool, on_error: str, blanks: int, found: bool) -> None:
    vandal = object.__new__(Vandal)
    vandal.bad, vandal.mended, vandal.damage, vandal.number, vandal.number_of_start = [], mended, "", 1, 1
    vandal.job = {"size": COUNT, "shuffle": True, "options": {"on_error": on_error, "padding": "mark"}}
    ids = [*range(COUNT - blanks), *[BLANK] * blanks]
    vandal._count(
        [{"ids": ids, "state": {"epoch": epoch, "position": COUNT}} for epoch in range(2)], blanks > 0
    )
    assert bool(vandal.bad) == found


@pytest.fixture
def cache() -> Iterator[Path]:
    """A folder in memory."""
    folder = Path(f"/dev/shm/fastload-test-soak-{os.getpid()}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("role", "defect", "words"),
    [("trains", "batches kept", "anonymous memory grows by"), ("opens", "loaders kept", "grew from")],
)
def test_a_process_that_grows_is_found(
    sets: dict[str, Path], tmp_path: Path, cache: Path, role: str, defect: str, words: str
) -> None:
    given = {"role": role, "sets": {name: str(path) for name, path in sets.items()}, "seed": 1, "url": ""}
    given |= {"disk": str(tmp_path / "disk"), "log": str(tmp_path / "log"), "pace": 0, "rounds": ROUNDS}
    ended = run("soak_steady.py", {**given, "defect": defect}, FASTLOAD_CACHE_DIR=str(cache))
    assert ended.returncode == 0, ended.stderr
    noted = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    notes = [line["note"] for line in noted if "note" in line]
    assert len(notes) == ROUNDS
    bad = judge(role, notes, settled=True)[1]
    assert [text for text in bad if words in text], notes


def notes_of(rounds: int, grows: float, noise: int) -> list[dict[str, Any]]:
    """A process whose memory goes up and down, and grows by so many bytes a round."""
    chance = random.Random(5)
    quiet = dict.fromkeys(("descriptors", "threads", "mappings", "children", "shared", "file", "pss"), 7)
    return [
        {**quiet, "round": round_, "anonymous": int(1e8 + grows * round_ + chance.uniform(-noise, noise))}
        for round_ in range(rounds)
    ]


def test_memory_that_grows_and_memory_that_moves() -> None:
    assert judge("still", notes_of(4000, 0, 500_000), settled=True)[1] == []
    assert judge("below the bound", notes_of(4000, BYTES_A_ROUND / 2, 500_000), settled=True)[1] == []
    bad = judge("a kept loader in 25 rounds", notes_of(4000, 4000, 500_000), settled=True)[1]
    assert len(bad) == 1
    assert "anonymous memory grows by" in bad[0]
    assert judge("too short", notes_of(5, 0, 0), settled=True)[1] != []
