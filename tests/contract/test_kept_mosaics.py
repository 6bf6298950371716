"""Pictures of mosaics that are kept for the samples that follow: they change no byte and no error."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damaged_set import damaged
from PIL import Image as PilImage

import fastload
from fastload import DataLoader, Image, Mask, Ranks, errors
from fastload import transforms as T
from fastload.backends import fields as kept_pictures

COUNT = 40
SIZE = 64
SEED = 3
SIDES = [(30 + 37 * i % 171, 24 + 53 * i % 149) for i in range(COUNT)]  # width, height
FORMATS: list[dict[str, Any]] = [
    {"format": "JPEG", "quality": 90},
    {"format": "JPEG", "subsampling": 0, "progressive": True},
    {"format": "PNG"},
    {"format": "WEBP"},
    {"format": "BMP"},
]


def encoded(number: int) -> bytes:
    width, height = SIDES[number]
    y, x, c = np.mgrid[:height, :width, :3]
    pixels = (127 + 120 * np.sin(0.3 * x + 0.17 * y * (c + 1) + number)).astype(np.uint8)
    out = io.BytesIO()
    PilImage.fromarray(pixels).save(out, **FORMATS[number % len(FORMATS)])
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = []
    for i in range(COUNT):
        mask = np.random.default_rng(i).integers(0, 9, SIDES[i][::-1], np.uint8)
        samples.append({"image": encoded(i), "mask": PilImage.fromarray(mask)})
    out = tmp_path_factory.mktemp("kept") / "packed"
    fastload.pack(samples, out, schema={"image": Image(), "mask": Mask()})
    return out


def load(folder: Path, transform: Any, **options: Any) -> DataLoader:
    """Each picture four times an epoch, which is long enough for the window; or in order."""
    settings: dict[str, Any] = {"batch_size": 8, "seed": SEED, "num_workers": 2, **options}
    if "shuffle" not in settings:
        settings["sampler"] = fastload.SubsetSampler(list(range(COUNT)) * 4)
    return DataLoader(folder, transform=transform, **settings)


def delivered(loader: DataLoader, epochs: int = 2) -> tuple[list[torch.Tensor], int]:
    """All that it delivers, and how many pictures were used again."""
    found = []
    with loader:
        for _ in range(epochs):
            for batch in loader:
                found += [batch[name].clone() for name in ("image", "mask", "valid") if name in batch]
        return found, loader.stats()["kept"]["used_again"]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


JOBS = {
    "four": T.Mosaic(SIZE),
    "nine": T.Mosaic(SIZE, tiles=9, degrees=30),
    "mixed": T.Compose([T.Mosaic(SIZE, 0.6, shear=5, perspective=0.001), T.MixUp(0.5)]),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("most", [512 << 20, 6 * 3 * SIZE * SIZE], ids=["all", "few"])
def test_they_change_no_byte(folder: Path, monkeypatch: pytest.MonkeyPatch, job: str, most: int) -> None:
    monkeypatch.setattr(kept_pictures, "MOST_KEPT", most)
    found, again = delivered(load(folder, JOBS[job]))
    monkeypatch.setattr(kept_pictures, "MOST_KEPT", 0)
    wanted, never = delivered(load(folder, JOBS[job], num_workers=1))
    assert same(found, wanted)
    assert never == 0 < again


def test_a_rank_finds_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eights of a global batch belong to one rank, so it has decoded most of what it needs."""
    sampler = fastload.SubsetSampler(list(range(COUNT)) * 7)  # long enough for the window
    options = {"shuffle": None, "sampler": sampler, "ranks": Ranks(1, 2)}
    found, again = delivered(load(folder, JOBS["four"], **options), 1)
    assert again > len(sampler) // 2
    monkeypatch.setattr(kept_pictures, "MOST_KEPT", 0)
    assert same(delivered(load(folder, JOBS["four"], **options), 1)[0], found)


def test_no_more_than_asked_for_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_pictures, "MOST_KEPT", 5 * 3 * SIZE * SIZE)
    with load(folder, JOBS["four"]) as loader:
        for _ in loader:
            assert loader.stats()["kept"]["bytes"] <= kept_pictures.MOST_KEPT
        plan = loader.memory_plan()
        threads = loader.stats()["threads"]
        assert plan["mosaic_bytes"] == kept_pictures.MOST_KEPT + threads * 6 * 3 * SIZE * SIZE
        assert plan["total"] >= plan["mosaic_bytes"] + plan["slots"] * plan["slot_bytes"]


def test_where_nobody_comes_again_nothing_is_kept(folder: Path) -> None:
    with load(folder, JOBS["four"], shuffle=False) as loader:
        for _ in loader:
            pass
        assert loader.stats()["kept"] == {"used_again": 0, "bytes": 0}


def errors_of(loader: DataLoader) -> list[str]:
    found = []
    with loader:
        batches = iter(loader)
        for _ in range(COUNT * 4 // 8):
            try:
                next(batches)
            except errors.SampleError as error:
                found.append(str(error))
    return found


def test_damage_is_found_as_without(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture of each format is damaged: what of it is whole is shown, and the rest is said alike."""
    copy = damaged(folder, tmp_path / "damaged", [5, 11, 17, 23])
    found, again = delivered(load(copy, JOBS["four"], on_error="skip"))
    words = errors_of(load(copy, JOBS["four"]))
    monkeypatch.setattr(kept_pictures, "MOST_KEPT", 0)
    wanted, _ = delivered(load(copy, JOBS["four"], on_error="skip"))
    assert same(found, wanted)
    assert again > 0
    assert words == errors_of(load(copy, JOBS["four"]))
    assert any("put together with it" in one for one in words)
