"""The fuzzing campaign without a fuzzer: whose turn it is, what it counts, what it keeps, and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import fuzz_campaign
import fuzz_corpus
import fuzz_coverage
import pytest
from fuzz_campaign import FUZZERS, ROOT, Record, State

FUZZ = ROOT / "tests" / "cpp" / "fuzz"
# Counts itself, and finds something where its seed says so.
FUZZER = """#!/bin/sh
echo "stat::number_of_executed_units: 1234" >&2
for word in "$@"; do
  case $word in -artifact_prefix=*) prefix=${word#*=} ;; esac
done
[ -z "$FUZZ_TEST_FINDS" ] || { echo broken > "${prefix}crash-1"; echo "FINDING: not true" >&2; exit 77; }
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """A campaign in a folder of its own, with a fuzzer that does nothing."""
    programs = tmp_path / "fuzz" / "tests/cpp/fuzz"
    programs.mkdir(parents=True)
    for target in fuzz_campaign.all_targets():
        (programs / target).write_text(FUZZER)
        (programs / target).chmod(0o755)
    monkeypatch.setattr(fuzz_campaign, "FUZZERS", tmp_path / "fuzz")
    return State(tmp_path / "campaign")


def test_every_target_is_known_everywhere() -> None:
    """A target of CMakeLists.txt has a source, seeds and a place in make fuzz, and there are no others."""
    targets = fuzz_campaign.all_targets()
    assert len(targets) == len(set(targets)) > 10
    assert {path.stem for path in FUZZ.glob("fuzz_*.cpp")} == set(targets)
    seeds = (FUZZ / "make_seeds.py").read_text()
    script = (ROOT / "tools" / "sanitize.sh").read_text()
    run = re.search(r"FUZZ_TARGETS:-([^}]*)}", script)
    assert run is not None
    assert set(run[1].split()) == set(targets)
    assert all(f'"{target}"' in seeds for target in targets)


def test_oss_fuzz_builds_every_target() -> None:
    """build.sh builds what CMake calls fuzz_targets, which is all of them, and ships what has seeds."""
    script = (ROOT / "tools/oss_fuzz/build.sh").read_text()
    assert "--target fuzz_targets" in script
    assert '"$work"/seeds/*/' in script
    lists = (FUZZ / "CMakeLists.txt").read_text()
    assert "add_custom_target(fuzz_targets DEPENDS ${jpeg_targets} ${other_targets})" in lists
    dictionaries = sorted(path.stem for path in (ROOT / "tools/oss_fuzz").glob("*.dict"))
    assert dictionaries
    assert set(dictionaries) <= set(fuzz_campaign.all_targets())


def test_cheap_targets_get_more_time_and_slow_ones_their_share(tmp_path: Path) -> None:
    state = State(tmp_path)
    rates = {"fast": 10_000, "slow": 10, "other": 5_000}
    for _ in range(600):
        target = fuzz_campaign.next_target(state, list(rates))
        record = state.record(target)
        record.turns += 1
        record.seconds += 10
        record.executions += 10 * rates[target]
    seconds = {name: record.seconds for name, record in state.records.items()}
    assert 0.2 < seconds["other"] / seconds["fast"] < 0.3  # the square of a half
    assert 0.08 < seconds["slow"] / seconds["fast"] < 0.12


def test_a_campaign_goes_on_where_it_was(state: State) -> None:
    targets = fuzz_campaign.all_targets()
    fuzz_campaign.run(state, targets, 3 * 1234, 1, float("inf"))
    assert state.executions == 3 * 1234
    again = State(state.folder)
    assert again.executions == 3 * 1234
    fuzz_campaign.run(again, targets, 5 * 1234, 1, float("inf"))
    assert State(state.folder).executions == 5 * 1234


def test_findings_are_kept_and_told(
    state: State, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUZZ_TEST_FINDS", "1")
    words = ["run", "--no-build", "--executions", "1", "--folder", str(state.folder)]
    assert fuzz_campaign.main([*words, "--targets", "fuzz_index"]) == 1
    said = capsys.readouterr().out
    assert "FINDING: not true" in said
    told = json.loads(said.splitlines()[-1])
    assert told["bad"] == [["fuzz_index", "fuzz_index-crash-1"]]
    assert told["points"] == {"fuzz_index": 1234}


def test_the_choice_reaches_all_that_the_corpus_reaches(tmp_path: Path) -> None:
    def made(name: str, size: int, features: set[int]) -> fuzz_corpus.Input:
        path = tmp_path / name
        path.write_bytes(bytes(range(256))[:size] * 3)
        return fuzz_corpus.Input("fuzz_index", path, frozenset(features))

    inputs = [
        made("known", 10, {1, 2}),
        made("large", 250, {3, 4, 5}),
        made("small", 10, {3, 4}),
        made("last", 20, {5, 6}),
    ]
    chosen = fuzz_corpus.choose(inputs, {1, 2})
    assert [one.path.name for one in chosen] == ["small", "last"]


def test_features_are_read_from_a_merge() -> None:
    control = "3\n0\n/a\n/b\n/c\nSTARTED 0 5\nFT 0 7 9\nCOV 0 1\nSTARTED 1 6\nFT 1 9\nCOV 1\nSTARTED 2 9\n"
    assert fuzz_corpus.features_of(control) == {"/a": frozenset({7, 9}), "/b": frozenset({9})}


def test_the_kept_corpus_is_small_and_of_known_targets() -> None:
    lines = fuzz_corpus.CORPUS.read_text().splitlines()
    assert lines
    assert fuzz_corpus.CORPUS.stat().st_size < 100 * 1024
    assert {line.split()[0] for line in lines} <= set(fuzz_campaign.all_targets())
    assert len({tuple(line.split()[:2]) for line in lines}) == len(lines)


def test_the_page_names_every_file(state: State) -> None:
    """With what was run of it, or why no target reaches it."""
    state.record("fuzz_index").executions = 1_000_000
    names = [path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc/core").rglob("*.cpp")]
    assert len(names) > 100
    files = {name: fuzz_coverage.Covered() for name in names}
    files["csrc/core/shard/index.cpp"] = fuzz_coverage.Covered(40, 30, 20, 10, ["fuzz_index"])
    reached = {name for name in names if name.startswith(("csrc/core/base", "csrc/core/decode"))}
    reached |= {name for name in names if name.startswith(("csrc/core/transcode", "csrc/core/shard"))}
    for name in reached - {"csrc/core/shard/index.cpp"}:
        files[name] = fuzz_coverage.Covered(4, 4, 2, 2, ["fuzz_decode"])
    page = fuzz_coverage.page(state, fuzz_campaign.all_targets(), files)
    assert "1,000,000 executions" in page
    assert "| shard/index.cpp | 40 | 75% | 50% | index |" in page
    assert "engine/pool.cpp" in page
    assert str(ROOT) not in page
    assert all(name.removeprefix("csrc/core/") in page for name in names)


def test_a_file_without_a_reason_is_an_error() -> None:
    with pytest.raises(KeyError, match="no fuzz target reaches it"):
        fuzz_coverage.reason("csrc/core/elsewhere/new.cpp")


def test_a_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(SystemExit, match="apt-get install llvm"):
        fuzz_campaign.needs("llvm-program-that-is-not-there", "llvm")


def test_record_rates_are_of_all_turns() -> None:
    assert Record(executions=300, seconds=3).rate == 100
    assert FUZZERS.name == "fuzz"
