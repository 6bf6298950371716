"""The doctor's cases: a consistent table, samples that are counted, and rows that say what went wrong."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_doctor_cases
import pytest
from bench_doctor_cases import (
    Failed,
    cells,
    fix_of,
    is_close,
    is_named,
    main,
    output_of,
    rate_of,
    row_of,
    summary,
)
from doctor.case_data import SETS, TROUBLES, prepared
from doctor.case_rate import samples_of
from doctor.cases import CASES, CAUSES, FIXES, FOLDER, Case, marked_lines

VECTORS = next(case for case in CASES if case.script == "item_for_each_sample.py")
SLOW = next(case for case in CASES if case.trouble)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_a_case_is_consistent(case: Case) -> None:
    text = case.path.read_text()
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}
    assert names or "TensorDataset" in text
    assert '"--mended"' in text
    assert '"--data"' in text
    assert "fastload" not in text
    assert marked_lines(case)
    assert set(case.causes) <= set(CAUSES)
    assert case.causes
    assert case.fix in {"", *FIXES}
    assert case.data in SETS
    assert case.launch in {"", "torchrun 2"}
    assert case.trouble in {"", *TROUBLES}


def test_the_table_has_every_script_once() -> None:
    assert len(CASES) == 31
    assert len({case.name for case in CASES}) == len(CASES)
    scripts = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*.py")}
    scripts |= {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/train.py")}
    assert {case.script for case in CASES} == scripts


def test_a_script_is_counted(tmp_path: Path) -> None:
    data = prepared("vectors", tmp_path)
    assert data == prepared("vectors", tmp_path)
    assert rate_of(VECTORS, data, 0.4, mended=True) > 0


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="FileNotFoundError"):
        rate_of(VECTORS, tmp_path, 0.4, mended=False)
    with pytest.raises(Failed, match="not done after"):
        output_of([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)


def test_a_failed_run_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise Failed("exit status 2: unrecognized arguments")

    monkeypatch.setattr(bench_doctor_cases, "examined", broken)
    monkeypatch.setattr(bench_doctor_cases, "rate_of", lambda *_, mended=False: 100.0)
    output = tmp_path / "found.json"
    names = ["--only", VECTORS.name, "--workdir", str(tmp_path), "--output", str(output)]
    assert main(names) == 1
    row = json.loads(output.read_text())["rows"][0]
    assert "unrecognized" in row["failed"]
    assert row["gain"] == 0
    assert "right in 0 of 1" in capsys.readouterr().out


def said(case: Case, **more: Any) -> dict[str, Any]:
    path, line = min(marked_lines(case))
    return {"cause": case.causes[0], "place": {"file": str(path), "line": line}, "fixes": [], **more}


def test_what_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter((100.0, 200.0))
    monkeypatch.setattr(bench_doctor_cases, "rate_of", lambda *_, **__: next(rates))
    fixes = [{"name": FIXES[VECTORS.fix][0], "words": "Without it.", "gain": 0.95, "low": 0.9, "high": 0.97}]
    monkeypatch.setattr(bench_doctor_cases, "examined", lambda *_: said(VECTORS, fixes=fixes))
    options = bench_doctor_cases.parse(["--turns", "1"])
    row = row_of(VECTORS, options, tmp_path)
    assert (row["right"], row["named"], row["close"], row["gain"]) == (True, True, True, 1.0)
    assert "(+90% to +97%)" in " ".join(cells(VECTORS, row))
    assert summary([row]) == "right in 1 of 1; predictions within 10% in 1 of 1"


def test_a_line_is_named_only_as_it_is_marked() -> None:
    assert is_named(VECTORS, said(VECTORS))
    place = said(VECTORS)["place"]
    assert not is_named(VECTORS, {"place": {**place, "line": 1}})
    assert not is_named(VECTORS, {"place": None})


def test_a_prediction_is_close_by_its_range_or_by_ten_percent() -> None:
    assert is_close({"gain": 1.0, "low": 0.0, "high": 3.0}, 2.5)
    assert is_close({"gain": 1.0, "low": 1.0, "high": 1.0}, 0.85)
    assert is_close({"gain": 1.0, "low": 1.0, "high": 1.0}, 0.5) is False
    assert is_close(None, 0.5) is None
    assert is_close({"gain": 1.0, "low": 0.0, "high": 3.0}, 3.3)
    assert is_close({"gain": 1.0, "low": 0.0, "high": 3.0}, 3.5) is False
    few, many = {"name": "workers", "gain": 0.1}, {"name": "workers", "gain": 0.9}
    case = next(case for case in CASES if case.fix == "workers")
    assert fix_of(case, {"fixes": [{"name": "cache", "gain": 2.0}, few, many]}) == many
    assert fix_of(case, {"fixes": [{"name": "cache", "gain": 2.0}]}) is None


def test_samples_are_the_first_tensors() -> None:
    torch = pytest.importorskip("torch")
    assert samples_of([torch.zeros(4, 3), torch.zeros(4)]) == 4
    assert samples_of({"text": ["a", "b", "c"], "x": torch.zeros(2)}) == 2
    assert samples_of({"pixel_values": torch.zeros(3, 2)}) == 3
    assert samples_of(["a", "b"]) == 2


def test_the_data_is_made_from_the_command_line(tmp_path: Path) -> None:
    program = Path(bench_doctor_cases.__file__).parent / "doctor" / "case_data.py"
    subprocess.run([sys.executable, str(program), "tiles", str(tmp_path)], check=True, capture_output=True)
    assert len(list((tmp_path / "tiles" / "tiles").glob("*.npy"))) == 160
