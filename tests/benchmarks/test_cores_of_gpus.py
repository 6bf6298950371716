"""The page of cores a GPU needs is what the newest results, the published rates and the shapes give."""

from __future__ import annotations

import pytest
from charts.results import newest
from cores_of_gpus import DETECTION, DOCUMENT, LOADERS, RESULTS, WORKS, filled, main, number, speeds

from fastload.machine.step_rates import CROPS, RATES, SHAPES, SOURCES, fed, rate_of


def test_the_page_is_what_the_results_give() -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    made = filled(page, newest(RESULTS), DETECTION.read_text(encoding="utf-8"))
    assert made == page, f"run python benchmarks/{DOCUMENT.stem}_of_gpus.py"


def test_a_row_is_the_steps_rate_divided_by_the_speed_of_a_core() -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| H100 | resnet50 |"))
    found = speeds(newest(RESULTS), "", WORKS[0])
    assert set(found) == set(LOADERS)
    known = rate_of("H100", "resnet50")
    assert known is not None
    assert [cell.strip() for cell in row.split("|")[4:-1]] == [
        number(known.rate / found[name]) for name in LOADERS
    ]


def test_each_rate_and_shape_has_a_source_and_each_source_a_use() -> None:
    assert {each.source for each in (*RATES, *SHAPES)} == set(SOURCES)
    assert len({(rate.gpu, rate.network) for rate in RATES}) == len(RATES)
    networks = [network for work in WORKS for network in work.networks]
    assert {rate.network for rate in RATES} == set(networks)
    assert set(CROPS) <= set(networks)
    assert {shape.gpu for shape in SHAPES} <= {rate.gpu for rate in RATES}


@pytest.mark.parametrize(("cpus", "share"), [(1, 0.25), (2, 0.5), (4, 1.0), (100, 1.0)])
def test_a_loader_feeds_a_step_by_its_cores(cpus: float, share: float) -> None:
    assert fed(cpus, 50, 200) == share


def test_the_script_writes_the_page(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    from pathlib import Path

    copy = Path(str(tmp_path)) / "cores.md"
    copy.write_text("<!-- cores: begin -->\n<!-- cores: end -->\n", encoding="utf-8")
    assert main(["--document", str(copy)]) == 0
    assert "| H200 | resnet18 |" in copy.read_text(encoding="utf-8")
    assert str(copy) in capsys.readouterr().out
