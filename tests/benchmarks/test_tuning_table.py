"""docs/guide/tuning.md: its leaves are scenarios, and their figures come from bench_doctor's JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doctor.scenarios import SCENARIOS
from tuning_table import DOCUMENT, gain, leaves, main


def test_each_scenario_is_one_leaf() -> None:
    assert sorted(leaves(DOCUMENT.read_text(encoding="utf-8"))) == sorted(one.name for one in SCENARIOS)


def test_gains_in_words() -> None:
    assert gain({"before": 200.0, "reached": 500.0}) == "200 → 500 (+150%)"
    assert gain({"before": 200.0, "reached": 0.0}) == "200: nothing to mend"


def test_figures_go_where_their_scenario_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, measured = tmp_path / "tuning.md", tmp_path / "doctor.json"
    document.write_text(
        "<!-- measured -->\nold\n<!-- /measured -->\n\n| fix | scenario | gain |\n|---|---|---|\n"
        "| more | `one` | old |\n| less | `two` | kept |\n| else | `three` | |\n",
        encoding="utf-8",
    )
    rows = [
        {"name": "one", "before": 100.0, "reached": 150.0},
        {"name": "three", "before": 80.0, "reached": 0.0},
        {"name": "two", "skipped": "no controller"},
    ]
    measured.write_text(json.dumps({"rows": rows}))
    assert main([str(measured), "--note", "Quiet.", "--document", str(document)]) == 0
    assert document.read_text(encoding="utf-8").splitlines() == [
        "<!-- measured -->",
        "Quiet.",
        "<!-- /measured -->",
        "",
        "| fix | scenario | gain |",
        "|---|---|---|",
        "| more | `one` | 100 → 150 (+50%) |",
        "| less | `two` | kept |",
        "| else | `three` | 80: nothing to mend |",
    ]
    assert capsys.readouterr().out == "Left as they were: two\n"
