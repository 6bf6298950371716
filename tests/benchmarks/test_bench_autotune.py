"""bench_autotune in its smallest form, and when a rate counts as reached."""

from __future__ import annotations

import json
from pathlib import Path

import bench_knobs
import pytest
from bench_autotune import main
from doctor.autotune import ALL, NAMES, reached
from doctor.scenarios import SCENARIOS
from small_photos import write_photos


def test_a_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_photos(tmp_path / "photos", 64)
    output = tmp_path / "found.json"
    options = ["--only", "slow step, one thread", "--seconds", "0.3", "--tune", "1.5", "--rounds", "1"]
    given = [str(tmp_path / "photos"), *options, "--workdir", str(tmp_path), "--output", str(output)]
    assert main(given) == 0
    row = json.loads(output.read_text())["rows"][0]
    assert row["ratio"] == row["steady"] / row["best_rate"] > 0
    assert {one["num_workers"] for one in row["sweep"]} == {1, 2, 3}
    assert len({one["prefetch_factor"] for one in row["sweep"]}) == 2
    assert "| slow step, one thread |" in capsys.readouterr().out


def test_its_scenarios_exist() -> None:
    assert set(NAMES) < {scenario.name for scenario in ALL}


def test_a_rate_is_reached_once_two_seconds_have_it() -> None:
    pieces = [(0.5 * (number + 1), 100.0 if number < 6 else 200.0) for number in range(20)]
    assert reached(pieces, 99) == 0
    assert reached(pieces, 150) == 2.0  # half of the two seconds behind it
    assert reached(pieces, 200) == 3.0
    assert reached(pieces, 201) is None


def test_settings_are_swept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(tmp_path / "photos", 64)
    plain = next(one for one in SCENARIOS if one.name == "one thread")
    cases = [(plain, "num_workers", (1, 2)), (plain, "read-ahead, MiB", (1, 64))]
    monkeypatch.setattr(bench_knobs, "cases", lambda: cases)
    output = tmp_path / "found.json"
    options = ["--seconds", "0.2", "--rounds", "1", "--workdir", str(tmp_path), "--output", str(output)]
    assert bench_knobs.main([str(tmp_path / "photos"), *options]) == 0
    rows = json.loads(output.read_text())["rows"]
    assert [sorted(row["rates"], key=int) for row in rows] == [["1", "2"], ["1", "64"]]
    assert "| one thread | read-ahead, MiB |" in capfd.readouterr().out
