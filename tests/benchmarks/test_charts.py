"""charts/: committed charts and tables are those of the committed results, and what they show is right."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from charts import axes, bars, content, draw, results, svg
from charts.content import CHARTS
from charts.tables import TABLES

SVG = "{http://www.w3.org/2000/svg}"
NAMES = {*CHARTS, "jobs"}
ADVICE = "run python benchmarks/charts/draw.py"


def row(name: str, median: float, **more: Any) -> dict[str, Any]:
    """A row of bench_loader's figures."""
    found = {
        "name": name, "median": median, "low": 0.9 * median, "high": 1.2 * median, "workers": 2,
        "versions": {"torch": "2.13.0", "its own": "1.5"}, "first_batch_s": 1.26, "memory_mb": 1500,
        "outside_cores": 0.02, "kb_an_image": 110.0, "runs": [median, 0.9 * median, 1.2 * median],
    }  # fmt: skip
    return {**found, **more}


def figures() -> dict[str, Any]:
    """A made-up result of every figure."""
    rates = {"fastload": 4000.0, "torch_pil": 500.0, "dali_fused": 800.0, "fastload_noentries": 3000.0}
    classic = {job: [row(name, rate) for name, rate in rates.items()] for job in ("train_u8", "train_f32")}
    forms = {"fastload": 110, "fastload_raw": 600, "fastload_coefficients": 130, "fastload_small": 95}
    rank = {"low": 1.0, "high": 9000.0, "file": 10, "cache": 112, "processes": 6}
    return {
        "classic": {"jobs": classic, "sweep": {"dali_fused": {"2": 700, "3": 800, "4": None}}},
        "raw": {"jobs": {"train_u8": [row("fastload_raw256", 25000.0), row("ffcv_raw256", 5000.0)]}},
        "recipes": {"jobs": {"rand_augment": [row("fastload", 2000.0), row("torch_pil", 250.0)]}},
        "cores": {
            str(count): {"command": "c", "jobs": {"train_u8": [row("fastload", 2000.0 * count)]}}
            for count in (1, 8)
        },
        "bytes": {"jobs": {"train_u8": [row(name, 4000.0, kb_an_image=kb) for name, kb in forms.items()]}},
        "memory": {"rows": [
            {**rank, "name": name, "ranks": 2, "median": median}
            for name, median in (("fastload", 500.0), ("torch", 1250.0))
        ]},
        "training": {"device_name": "NVIDIA X", "amp": "bf16", "batch": 256, "threads": 16, "rows": [
            {"name": name, "model": "resnet18", "median": rate, "low": rate, "high": rate, "step_ms": 20.0,
             "wait_ms": 0.2, "wait_share": 0.01, "cores": 8.0, "outside_cores": 0.0}
            for name, rate in (("synthetic", 13000.0), ("fastload", 12900.0), ("torch_pil", 2600.0))
        ]},
        "vision": {"jobs": {"Qwen2-VL": [
            row("transformers, PIL", 100.0), row("transformers, torchvision", 200.0),
            row("fastload, float32", 900.0), row("fastload, uint8", 1100.0),
        ]}},
        "windows": {"jobs": {"windows": [
            row("LeRobot, 1 workers", 8.0, mb=117), row("LeRobot, 2 workers", 10.0, mb=117),
            row("fastload, full, float32", 250.0, mb=464),
        ]}},
        "packing": {"rows": [{**row("arrow x1", 439.0), "size_ratio": 1.01}]},
    }  # fmt: skip


def write(folder: Path, name: str, **more: Any) -> None:
    """A results file."""
    body = {
        "date": "2026-11-24T10:00:00+00:00", "commit": "abc", "quick": False,
        "command": "python benchmarks/all.py",
        "machine": {"cpu": "AMD EPYC Processor", "cores": 2}, "images": {"files": 500, "mean_kb": 110.3},
        "figures": {name: {"command": "c", **figure} if name != "cores" else figure
                    for name, figure in figures().items()},
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({**body, **more}))


def test_charts_and_tables_are_those_of_the_results() -> None:
    found = draw.files(draw.RESULTS, draw.CHART_FOLDER, draw.DOCUMENT)
    assert [path.name for path, text in found.items() if path.read_text(encoding="utf-8") != text] == [], (
        ADVICE
    )
    stale = {path.name for path in draw.CHART_FOLDER.glob("*.svg")} - {path.name for path in found}
    assert stale == set(), "nothing draws these"


def test_results_are_small_and_name_no_machine() -> None:
    results = sorted(draw.RESULTS.glob("*.json"))
    assert results != []
    for path in results:
        assert path.stat().st_size < 100_000
        text = path.read_text()
        assert re.findall(r'[\s"=](/[\w.-]+/[\w./-]+)', text) == []
        assert {"commit", "date", "machine", "command", "missing"} <= set(json.loads(text))


def drawn(tmp_path: Path) -> dict[str, str]:
    """Name -> text of every file that is made of the made-up results."""
    write(tmp_path / "results", "one")
    document = tmp_path / "latest.md"
    marks = [f"<!-- {name}: begin -->\nold\n<!-- {name}: end -->" for name in TABLES]
    document.write_text("\n".join(["kept", *marks, ""]))
    return {path.name: text for path, text in draw.files(tmp_path / "results", tmp_path, document).items()}


def words_of(text: str) -> Sequence[str]:
    """All that a drawing says."""
    return [element.text or "" for element in ElementTree.fromstring(text).iter(f"{SVG}text")]


def test_every_chart_says_values_ratios_and_source(tmp_path: Path) -> None:
    found = drawn(tmp_path)
    assert set(found) == {f"{name}-{theme}.svg" for name in NAMES for theme in svg.THEMES} | {"latest.md"}
    classic = words_of(found["classic-light.svg"])
    assert {"4,000", "500 · 8.0×", "800 · 5.0×", "torch DataLoader + Pillow"} <= set(classic)
    assert "fastload, no entry points" not in classic
    assert "torchvision 250 · 8.0×" in words_of(found["recipes-dark.svg"])
    assert "1,250 MB · torch DataLoader" in words_of(found["memory-dark.svg"])
    assert "4,000/s, 600 kB" in words_of(found["bytes-light.svg"])
    assert {'12,900 · fastload, device="cuda"', "ResNet-18"} <= set(words_of(found["training-light.svg"]))
    jobs = set(words_of(found["jobs-dark.svg"]))
    assert {"8.0× RandAugment", "9.0× Qwen2-VL", "25.0× three frames of two cameras"} <= jobs
    assert {"fastload", "16,000", "8"} <= set(words_of(found["cores-light.svg"]))
    for name, text in found.items():
        if name.endswith(".svg"):
            root = ElementTree.fromstring(text)
            assert root.find(f"{SVG}title") is not None
            assert re.search("00|×", root.findtext(f"{SVG}desc") or "")
            assert "2 cores of AMD EPYC, 2026-11-24." in " ".join(words_of(text))


def test_ratios_of_jobs_are_of_medians_and_of_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides' rounds in pairs; what was not measured is left out."""
    ours = row("fastload, float32", 900.0, runs=[800.0, 900.0, 1000.0])
    vision = {"jobs": {"Qwen2-VL": [row("transformers, PIL", 100.0, runs=[100.0, 50.0, 200.0]), ours]}}
    write(tmp_path, "one", figures={"vision": vision})
    seen: list[bars.Group] = []
    monkeypatch.setattr(content, "bars", lambda drawing, groups: seen.extend(groups))
    content.jobs(results.newest(tmp_path))
    ((bar,),) = (group.bars for group in seen)
    assert (bar.words, bar.value, bar.low, bar.high) == ("9.0× Qwen2-VL", 9.0, 5.0, 18.0)


def test_nothing_is_drawn_outside(tmp_path: Path) -> None:
    for name, text in drawn(tmp_path).items():
        if not name.endswith(".svg"):
            continue
        root = ElementTree.fromstring(text)
        height = float(root.attrib["viewBox"].split()[3])
        for element in root.iter(f"{SVG}text"):
            size = element.attrib["class"].split()[0]
            width = svg.width_of(element.text or "", size)
            x = float(element.attrib["x"]) - width * {"end": 1, "middle": 0.5}.get(
                element.attrib["class"].split()[-1], 0
            )
            assert x >= -1, (name, element.text)
            assert x + width <= svg.WIDTH + 1, (name, element.text)
            assert 0 < float(element.attrib["y"]) < height


def test_the_tables_have_medians_ranges_and_ratios(tmp_path: Path) -> None:
    text = drawn(tmp_path)["latest.md"]
    assert text.startswith("kept\n")
    assert "old" not in text
    rates = "500 [450-600] | 8.0"
    line = f"| torch DataLoader + Pillow | 2 | {rates} | {rates} | 1.3 | 1,500 | its own 1.5 |"
    assert line in text.splitlines()
    assert "| DALI on the CPU | 700 | 800 | fails |" in text
    assert "| FFCV, raw pixels, longer side 256 | 5,000 [4,500-6,000] | 5.0 |" in text
    assert "| Qwen2-VL | transformers, torchvision | 200 [180-240] | 4.5 |" in text
    assert "| Qwen2-VL | fastload, uint8 | 1,100 [990-1,320] |  |" in text
    assert "| fastload, full, float32 | 250 [225-300] | 25.0 | 464 |" in text
    assert "2 cores of AMD EPYC, 2026-11-24, commit `abc`. 500 images, 110 kB each on average." in text


def test_the_newest_measured_figure_counts(tmp_path: Path) -> None:
    one = {"packing": {"rows": [], "mark": 1}}
    write(tmp_path, "older", date="2026-11-23T10:00:00+00:00")
    write(tmp_path, "newer", figures=one)
    write(tmp_path, "tried", date="2026-11-25T10:00:00+00:00", quick=True)
    found = results.newest(tmp_path)
    assert found["packing"].figure["mark"] == 1
    assert found["classic"].date == "2026-11-23"


def test_other_work_is_told(tmp_path: Path) -> None:
    busy = {"jobs": {"train_u8": [row("fastload", 1.0, outside_cores=0.6)]}}
    write(tmp_path, "one", figures={"classic": busy})
    assert results.newest(tmp_path)["classic"].conditions() == " Not quiet: other work took up to 0.6 cores."


def test_labels_keep_their_distance() -> None:
    assert axes.spread([10.0, 12.0, 90.0], 30.0, 200.0) == [10.0, 40.0, 90.0]
    assert axes.spread([95.0, 90.0], 30.0, 100.0) == [100.0, 70.0]


def test_a_long_name_is_not_cut_off() -> None:
    name = "torch DataLoader + pillow-simd"
    drawing = svg.Drawing("a", "b", "c")
    points = [axes.Point(count, count, count, count, kind="rival") for count in (1.0, 2.0)]
    axes.curves(drawing, [axes.Curve(name, points, "rival")], "cores", "images/s")
    (start,) = re.findall(rf'<text[^>]* x="([\d.]+)"[^>]*>{re.escape(name)}', drawing.render("light"))
    assert float(start) + svg.width_of(name, "value") <= svg.WIDTH


@pytest.mark.parametrize(("highest", "found"), [(1.0, 6), (4897.0, 5), (9900.0, 5), (26000.0, 6)])
def test_ticks_are_few_and_round(highest: float, found: int) -> None:
    ticks = axes.ticks(highest)
    assert len(ticks) == found
    assert ticks[-1] <= highest


def test_bars_have_one_scale() -> None:
    drawing = svg.Drawing("a", "b", "c")
    made = [bars.Bar(value, value, value, "", "ours") for value in (100.0, 50.0)]
    bars.bars(drawing, [bars.Group("one", made[:1]), bars.Group("other", made[1:])])
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', drawing.render("light"))]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)


def test_the_command_writes_them(tmp_path: Path) -> None:
    write(tmp_path / "results", "one")
    shutil.copy(draw.DOCUMENT, tmp_path / "latest.md")
    places = [
        "--results",
        tmp_path / "results",
        "--charts",
        tmp_path / "charts",
        "--document",
        tmp_path / "latest.md",
    ]
    assert draw.main([str(place) for place in places]) == 0
    assert len(list((tmp_path / "charts").glob("*.svg"))) == 2 * len(NAMES)
