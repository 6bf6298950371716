"""Quarter turns against numpy.rot90: pictures of every format, at every place of a chain, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from transform_reference import FLIP, Draws, below, uniform

import fastload
from fastload import DataLoader
from fastload import transforms as T
from fastload._native import _C
from fastload.sample.fields import Image, Mask
from fastload.transforms import compile_plan

TURN = 13  # DrawOp in csrc/core/base/philox.h
COUNT, SEED = 20, 5


@pytest.mark.parametrize(
    ("channels", "bits"), [(1, 8), (1, 16), (2, 16), (3, 8), (3, 16), (4, 16), (5, 8), (7, 16)]
)
def test_pictures_of_every_format(channels: int, bits: int) -> None:
    """Of sizes around the squares that memory is turned in, mirrored or not, fill and all."""
    rng = np.random.default_rng([channels, bits])
    store = _C.StoreSpec(dtype="uint8" if bits == 8 else "uint16")
    for width, height in [(1, 1), (1, 40), (31, 33), (65, 32), (40, 97)]:
        pixels = rng.integers(0, 1 << bits, (height, width, channels)).astype(f"u{bits // 8}")
        raw, data = (width, height, channels, bits), np.frombuffer(pixels.tobytes(), np.uint8)
        for flip in (False, True):
            places = (0, 0, width, height), (width, height), (-2, -1, width + 2, height + 4), flip

            def cut(quarter: int, places: Any = places, data: Any = data, raw: Any = raw) -> np.ndarray:
                view = _C.View(places, quarter=quarter)
                found = _C.cut(data, view, (channels, bits, False), store=store, raw=raw)[0]
                return found.view(f"u{bits // 8}").reshape(*view.made[::-1], channels)

            upright = cut(0)
            assert upright.any()
            for quarter in (1, 2, 3):
                assert np.array_equal(cut(quarter), np.rot90(upright, quarter))


def samples() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(1)
    for number in range(COUNT):
        height, width = (24, 24) if number % 2 else (int(side) for side in rng.integers(9, 40, 2))
        yield {
            "image": Pillow.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)),
            "mask": Pillow.fromarray(rng.integers(0, 200, (height, width), dtype=np.uint8)),
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("turns") / "set"
    fastload.pack(samples(), path, {"image": Image(), "mask": Mask(ignore=250)})
    return path


def pictures(folder: Path, chain: list[Any], **options: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each sample's picture (height, width, 3) and mask."""
    options = {"collate": "ragged", "seed": SEED, "num_workers": 2, **options}
    with DataLoader(folder, 8, transform=T.Compose(chain), **options) as loader:
        return [
            (image.permute(1, 2, 0).numpy(), mask.numpy())
            for batch in loader
            for image, mask in zip(batch["image"], batch["mask"], strict=True)
        ]


def drawn(sample: int, turns: tuple[int, ...] = (0, 1, 2, 3)) -> int:
    words = Draws(SEED, 0, sample).words(TURN, 0)
    return turns[below(words[0], words[1], len(turns))]


@pytest.mark.parametrize(
    "before",
    [
        [],
        [T.RandomHorizontalFlip()],
        [T.RandomInvert(), T.RandomVerticalFlip()],
        [T.RandomResizedCrop((20, 33), interpolation="bicubic")],
        [T.Resize(12), T.RandomCrop((10, 12)), T.RandomHorizontalFlip()],
        [T.RandomZoomOut(7), T.Resize(14), T.Pad(3, 7)],
    ],
    ids=str,
)
def test_what_stands_before_is_turned(folder: Path, before: list[Any]) -> None:
    every = pictures(folder, before)
    found = pictures(folder, [*before, T.RandomQuarterTurn()])
    assert len(found) == COUNT
    assert {drawn(number) for number in range(COUNT)} == {0, 1, 2, 3}
    for number, (picture, mask) in enumerate(found):
        quarters = drawn(number)
        assert np.array_equal(picture, np.rot90(every[number][0], quarters))
        assert np.array_equal(mask, np.rot90(every[number][1], quarters))


def test_what_stands_behind_sees_what_was_turned(folder: Path) -> None:
    """Operations that move pixels take its width and height; a flip mirrors what was turned."""
    turned = pictures(folder, [T.Resize((21, 30)), T.RandomQuarterTurn(1)])
    assert all(picture.shape == (30, 21, 3) for picture, _ in turned)
    upside = pictures(folder, [T.Resize((21, 30)), T.RandomQuarterTurn(1), T.RandomVerticalFlip(1.0)])
    mirrored = pictures(folder, [T.Resize((21, 30)), T.RandomQuarterTurn(1), T.RandomHorizontalFlip(1.0)])
    affine = T.RandomAffine(30, (0.2, 0.2))
    moved = pictures(folder, [T.Resize((21, 30)), T.RandomQuarterTurn(1), affine])
    spec = compile_plan(affine).pixel_spec()
    for number, (picture, mask) in enumerate(turned):
        assert np.array_equal(upside[number][0], picture[::-1])
        assert np.array_equal(mirrored[number][0], picture[:, ::-1])
        assert np.array_equal(mirrored[number][1], mask[:, ::-1])
        wanted = _C.operate(np.ascontiguousarray(picture), spec, SEED, 0, number, 0)
        assert np.array_equal(moved[number][0], wanted.reshape(picture.shape))


def test_the_eight_symmetries_of_a_square(folder: Path) -> None:
    """Flips both ways and turns: each sample is one of the eight, as the steps make it one by one."""
    chain = [
        T.Resize((16, 16)),
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(),
        T.RandomQuarterTurn((0, 1)),
    ]
    plain, found = pictures(folder, chain[:1]), pictures(folder, chain)
    seen = set()
    for number, (picture, mask) in enumerate(found):
        draws = Draws(SEED, 0, number)
        flips = [uniform(*draws.words(FLIP, block)[:2]) < 0.5 for block in (0, 1)]
        quarters = drawn(number, (0, 1))
        seen.add((*flips, quarters))
        for one, other in ((picture, plain[number][0]), (mask, plain[number][1])):
            other = other[:, ::-1] if flips[0] else other
            other = other[::-1] if flips[1] else other
            assert np.array_equal(one, np.rot90(other, quarters))
    assert len(seen) >= 6


def test_padded_batches_have_the_turned_sizes(folder: Path) -> None:
    listed = pictures(folder, [T.RandomQuarterTurn()])
    with DataLoader(
        folder, COUNT, transform=T.RandomQuarterTurn(), collate="pad", seed=SEED, num_workers=2
    ) as loader:
        (batch,) = [dict(batch) for batch in loader]
    assert batch["image_sizes"].tolist() == [list(mask.shape) for _, mask in listed]
    for number, (height, width) in enumerate(batch["image_sizes"].tolist()):
        image = batch["image"][number].permute(1, 2, 0).numpy()
        assert np.array_equal(image[:height, :width], listed[number][0])
        assert not image[height:].any()


def test_views_and_mosaics_are_turned(folder: Path) -> None:
    views = T.Views({"one": T.Resize((9, 9)), "two": T.Compose([T.Resize((9, 9)), T.RandomQuarterTurn(3)])})
    with DataLoader(folder, COUNT, transform=views, seed=SEED) as loader:
        (batch,) = [dict(batch) for batch in loader]
    assert torch.equal(torch.rot90(batch["one"], 3, (2, 3)), batch["two"])
    assert torch.equal(torch.rot90(batch["one_mask"], 3, (1, 2)), batch["two_mask"])
    mosaics = [pictures(folder, [T.Mosaic(32), *more]) for more in ([], [T.RandomQuarterTurn(1)])]
    for one, other in zip(*mosaics, strict=True):
        assert np.array_equal(np.rot90(one[0]), other[0])
        assert np.array_equal(np.rot90(one[1]), other[1])


def test_each_number_of_quarters_is_equally_likely() -> None:
    """Chi-square at 0.1%, of fixed draws; what is named twice is twice as likely."""
    spec = compile_plan(T.RandomQuarterTurn((0, 1, 1, 3))).geometry_spec()
    found = [_C.draw_view(spec, 8, 8, SEED, 0, sample).quarter for sample in range(4000)]
    counts = np.bincount(found, minlength=4)
    assert counts[2] == 0
    wanted = np.array([1000, 2000, 1000])
    assert (((counts[[0, 1, 3]] - wanted) ** 2) / wanted).sum() < 13.8


@pytest.mark.parametrize(
    ("chain", "size"),
    [
        ([T.RandomResizedCrop(32), T.RandomQuarterTurn()], (32, 32)),
        ([T.RandomResizedCrop((32, 20)), T.RandomQuarterTurn()], None),
        ([T.RandomResizedCrop((32, 20)), T.RandomQuarterTurn((1, 3))], (20, 32)),
        ([T.RandomResizedCrop((32, 20)), T.RandomQuarterTurn((0, 2))], (32, 20)),
        ([T.RandomQuarterTurn()], None),
        ([T.Mosaic(64), T.RandomQuarterTurn()], (64, 64)),
    ],
)
def test_sizes_are_known_where_they_can_be(chain: list[Any], size: tuple[int, int] | None) -> None:
    assert compile_plan(T.Compose(chain)).output_size == size


def test_left_and_right_change_places_by_flips_alone() -> None:
    assert not compile_plan(T.RandomQuarterTurn()).mirrors
    assert compile_plan(T.Compose([T.Resize(9), T.RandomVerticalFlip(), T.RandomQuarterTurn()])).mirrors


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ([T.RandomQuarterTurn(), T.RandomResizedCrop(9)], "out of order"),
        ([T.RandomQuarterTurn(), T.RandomQuarterTurn()], "is there twice"),
        ([T.ToDtype("float32"), T.RandomQuarterTurn()], "after ToDtype"),
        ([T.RandomCrop(9), T.RandomInvert(), T.RandomQuarterTurn()], "before the operations on pixels"),
        ([T.RandomApply([T.RandomQuarterTurn()])], "in a group"),
    ],
)
def test_other_places_are_refused(chain: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_plan(T.Compose(chain))


@pytest.mark.parametrize("turns", [(), 4, -1, (0, 1.5), "1", True])
def test_other_numbers_are_refused(turns: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"RandomQuarterTurn\.turns must"):
        T.RandomQuarterTurn(turns)
