"""The benchmarks' images.py, jobs.py and candidate.py: what the candidates are given, how they are timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loaders import candidate, jobs
from sets import images

JPEG = b"\xff\xd8\xff\xe0 not read further"


def test_files_are_repeated_until_there_are_enough(tmp_path: Path) -> None:
    for name in ("a/1.jpg", "a/2.jpg", "b/deep/3.jpg"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(JPEG + name.encode())
    (tmp_path / "source" / "b" / "4.png").write_bytes(b"\x89PNG")
    assert images.repeat_images(tmp_path / "source", tmp_path / "target", 8) == (9, 1)
    found = jobs.listing(tmp_path / "target")
    assert [label for _, label in found] == [0] * 6 + [1] * 3
    contents = sorted(Path(path).read_bytes() for path, _ in found)
    assert contents == sorted(3 * [JPEG + b"a/1.jpg", JPEG + b"a/2.jpg", JPEG + b"b/deep/3.jpg"])


def test_a_flat_folder_becomes_one_class(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "1.jpg").write_bytes(JPEG)
    images.repeat_images(tmp_path / "source", tmp_path / "target", 2)
    assert jobs.class_names(tmp_path / "target") == ["all"]


def test_a_folder_without_jpegs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(b"GIF89a")
    with pytest.raises(ValueError, match="no JPEG"):
        images.repeat_images(tmp_path, tmp_path / "target", 2)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (224, 224), (5000, 10), (1, 1)])
def test_random_crop_lies_inside_and_covers_what_torchvisions_does(width: int, height: int) -> None:
    shares = []
    for _ in range(2000):
        left, top, w, h = jobs.random_crop(width, height)
        assert 0 <= left <= left + w <= width
        assert 0 <= top <= top + h <= height
        assert w > 0
        assert h > 0
        shares.append(w * h / (width * height))
    if (width, height) == (500, 375):  # 0.432 over torchvision's own draws; the mean's deviation is 0.006
        assert 0.40 < sum(shares) / len(shares) < 0.46


def test_every_candidate_has_the_protocol() -> None:
    assert "torch_pil" in candidate.names()
    for name in candidate.names():
        module, variant = candidate.find(name)
        assert variant == ""
        for function in ("versions", "prepare", "batches"):
            assert callable(getattr(module, function))
        for each in module.VARIANTS:
            assert candidate.find(f"{name}_{each}") == (module, each)


@pytest.mark.parametrize("name", ["nothing", "ffcv_png"])
def test_unknown_candidates_and_variants_are_refused(name: str) -> None:
    with pytest.raises(SystemExit, match=r"there are|it has"):
        candidate.find(name)


def test_rate_counts_whole_rounds_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def batches() -> Iterator[int]:  # three workers: a burst of three batches every 0.25 s
        nonlocal now
        while True:
            now += 0.25
            yield 8
            yield 8
            yield 8

    monkeypatch.setattr(candidate.time, "monotonic", lambda: now)
    result = candidate.rate(batches(), threads=3, seconds=2.5, started=99.0)
    assert result["first_batch"] == pytest.approx(1.25)
    assert result["images"] % 24 == 0
    assert result["seconds"] == pytest.approx(2.5)
    assert result["rate"] == pytest.approx(96.0)
