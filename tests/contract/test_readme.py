"""The README's Python examples run as they stand, on folders packed as its commands say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from house_sources import ROOT
from pictures import jpegs

from fastload.cli import main

PYTHON = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``imagenet``, ``imagenet-lmdb`` and ``imagenet-hdf5``, of the same few images."""
    place = tmp_path_factory.mktemp("readme")
    for split, count in (("train", 6), ("val", 4)):
        for number, data in enumerate(jpegs(count)):
            path = place / "imagenet-folder" / split / f"class{number % 2}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for output, format in (("imagenet", "arrow"), ("imagenet-lmdb", "lmdb"), ("imagenet-hdf5", "hdf5")):
        arguments = [
            "pack",
            str(place / "imagenet-folder"),
            str(place / output),
            "--format",
            format,
            "--quiet",
        ]
        assert main([*arguments, "--num-proc", "1"]) == 0
    return place


def run(code: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the example's names are at its end. Executing this project's own README is the point here."""
    monkeypatch.chdir(workplace)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def example(word: str) -> str:
    """The one example that has ``word`` in it."""
    (code,) = [code for code in PYTHON if word in code]
    return code


def first_file(workplace: Path) -> bytes:
    return (workplace / "imagenet-folder" / "train" / "class0" / "0.jpg").read_bytes()


def test_the_examples_are_known() -> None:
    assert len(PYTHON) == 5


def test_data_loader(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = example("DataLoader(").replace("batch_size=256", "batch_size=2").replace("...  ", "break")
    names = run(code, workplace, monkeypatch)
    assert names["images"].shape == (2, 3, 224, 224)
    assert [len(names["train"]), len(names["val"])] == [3, 2]
    names["train"].close()


@pytest.mark.parametrize("library", ["pyarrow", "h5py"])
def test_bytes_and_label_by_stock_library(
    library: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run(example(f"import {library}"), workplace, monkeypatch)
    assert (bytes(names["jpeg"]), int(names["label"])) == (first_file(workplace), 0)


def test_bytes_by_lmdb(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(example("import lmdb"), workplace, monkeypatch)["jpeg"] == first_file(workplace)


def test_images_by_datasets(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    found = run(example("from datasets"), workplace, monkeypatch)["images"][0]
    assert found["label"] == 0
    assert found["image"].size[0] > 1
