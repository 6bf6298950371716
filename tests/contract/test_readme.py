"""README.md is short; a set read without fastload gives the files. All pages' blocks run in tests/docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from house_sources import ROOT
from pictures import jpegs

from fastload.cli import main

PAGE = ROOT / "docs" / "guide" / "without-fastload.md"
PYTHON = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``imagenet``, ``imagenet-lmdb`` and ``imagenet-hdf5``, of the same few images."""
    place = tmp_path_factory.mktemp("readme")
    for number, data in enumerate(jpegs(6)):
        path = place / "photos" / "train" / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for output, format in (("imagenet", "arrow"), ("imagenet-lmdb", "lmdb"), ("imagenet-hdf5", "hdf5")):
        arguments = ["pack", str(place / "photos"), str(place / output), "--format", format, "--quiet"]
        assert main([*arguments, "--num-proc", "1"]) == 0
    return place


def run(library: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the names of the one example with this library are at its end."""
    (code,) = [code for code in PYTHON if library in code]
    monkeypatch.chdir(workplace)
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)
    return names


def first_file(workplace: Path) -> bytes:
    return (workplace / "photos" / "train" / "class0" / "0.jpg").read_bytes()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_what_the_readme_links_to_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)#]+)[^)]*\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert len(named) >= 30
    assert [name for name in named if "://" not in name and not (ROOT / name).exists()] == []


def test_the_figures_are_those_of_the_measured_pages() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Install")[0]
    measured = ROOT / "docs" / "measured"
    pages = "".join((measured / f"{name}.md").read_text() for name in ("latest", "vision", "windows"))
    known = {float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*(?:\.\d+)?", pages)}
    told = re.findall(r"(\d+(?:\.\d+)?)\s+(?:images|with|times)", text)
    assert len(told) >= 6
    assert [one for one in told if float(one) not in known] == []


def test_the_examples_are_known() -> None:
    assert len(PYTHON) == 4


def test_bytes_and_label_by_pyarrow(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("pyarrow", workplace, monkeypatch)
    assert (names["jpeg"], names["label"]) == (first_file(workplace), 0)


def test_bytes_and_label_by_h5py(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run("h5py", workplace, monkeypatch)
    assert (names["jpeg"], names["label"]) == (first_file(workplace), 0)


def test_bytes_by_lmdb(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("lmdb", workplace, monkeypatch)["jpeg"] == first_file(workplace)


def test_images_by_datasets(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    found = run("from datasets", workplace, monkeypatch)["images"][0]
    assert found["label"] == 0
    assert found["image"].size[0] > 1
