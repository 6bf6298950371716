"""The demo's sample: what is in it, and that the same Pillow makes the same bytes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import make_sample
import pytest
from PIL import Image


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_plan_is_large_and_mixed_enough() -> None:
    plans = list(make_sample.plan(make_sample.SPLITS, seed=0))
    assert len(plans) >= 600
    assert len({plan.name for plan in plans}) >= 8
    assert len({plan.path for plan in plans}) == len(plans)
    kinds = Counter(plan.kind for plan in plans)
    assert set(kinds) == {"420", "444", "progressive", "gray", "png", "webp"}
    assert min(kinds.values()) >= 10
    assert kinds["420"] > kinds["444"] > kinds["progressive"]


def test_same_bytes_again(sample: Path, tmp_path: Path) -> None:
    make_sample.main([str(tmp_path / "again"), "--train", "4", "--val", "2"])
    assert files(tmp_path / "again") == files(sample)


def test_another_seed_gives_other_bytes(sample: Path, tmp_path: Path) -> None:
    make_sample.main([str(tmp_path / "other"), "--train", "4", "--val", "2", "--seed", "1"])
    assert not set(files(tmp_path / "other").values()) & set(files(sample).values())


def test_images_are_like_those_of_the_web(sample: Path) -> None:
    images = [path for path in sample.rglob("*") if path.suffix in {".jpg", ".png", ".webp"}]
    assert len(images) == 12 * 6
    for path in images:
        with Image.open(path) as image:
            image.load()
            assert 100 <= min(image.size) <= max(image.size) <= 500
            assert {".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP"}[path.suffix] == image.format


@pytest.mark.parametrize("kind", ["420", "444", "progressive", "gray", "png", "webp"])
def test_each_kind_is_what_it_says(tmp_path: Path, kind: str) -> None:
    picture = make_sample.crop(make_sample.load_photograph("cat"), random.Random(1))
    path = tmp_path / "x.jpg"
    path = path.with_suffix(make_sample.SUFFIX.get(kind, ".jpg"))
    make_sample.save(picture, path, kind, random.Random(2))
    with Image.open(path) as image:
        assert image.mode == ("L" if kind == "gray" else "RGB")
        assert bool(image.info.get("progressive")) == (kind == "progressive")
        if kind in {"420", "444"}:
            sampling = {layer[1:3] for layer in image.layer}  # type: ignore[attr-defined]
            assert sampling == ({(1, 1)} if kind == "444" else {(2, 2), (1, 1)})


def test_made_twice_is_made_once(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in sample.rglob("*")}
    make_sample.main([str(sample), "--train", "4", "--val", "2"])
    assert "already there" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in sample.rglob("*")} == before


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(SystemExit, match="is not this sample"):
        make_sample.main([str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(make_sample, "save", fail)
    with pytest.raises(KeyboardInterrupt):
        make_sample.main([str(tmp_path / "images")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--train", "--val"])
def test_no_images_is_refused(tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_sample.main([str(tmp_path / "x"), option, "0"])
    assert "must be at least 1. Found: " in capsys.readouterr().err
