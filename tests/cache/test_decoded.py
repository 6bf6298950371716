"""``Cache(decoded=...)`` without a cache: every picture is decoded and scaled on the fly.

The reference is what ``fastload pack --raw --max-side`` packs, read without it.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, same
from odd_files import ODD_FILES, odd_file, write_files
from plain_pack import plain_pack

from fastload import Cache, DataLoader, OnError, PackedDataset, mix
from fastload import transforms as T
from fastload.cache.tiers import bounded_sizes, decoded_bytes
from fastload.errors import SampleError
from fastload.packing import PackOptions, pack
from fastload.packing.recoding import bounded

SIDES = (48, 64, "full")
NORMALIZE = T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


class Packs:
    """The odd files as they are, and as ``pack --raw`` makes them for each side."""

    def __init__(self, root: Path) -> None:
        source = write_files(root / "source")
        pack(source, root / "files", PackOptions(num_proc=1))
        self.files = root / "files"
        self.raw: dict[Any, Path] = {}
        for side in SIDES:
            options = PackOptions(raw=True, max_side=None if side == "full" else side, num_proc=1)
            pack(source, root / f"raw-{side}", options)
            self.raw[side] = root / f"raw-{side}"


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    return Packs(tmp_path_factory.mktemp("packs"))


def loader(data: Any, **options: Any) -> DataLoader:
    settings = {"batch_size": 5, "shuffle": True, "seed": 3, "num_workers": 2, "transform": CROP}
    return DataLoader(data, **{**settings, "cache": "off", **options})


def epochs(data: Any, count: int = 2, **options: Any) -> list[Any]:
    with loader(data, **options) as made:
        return [batch for _ in range(count) for batch in all_batches(made)]


def with_dtype(dtype: torch.dtype) -> T.Compose:
    normalize = [] if dtype == torch.uint8 else [NORMALIZE]
    return T.Compose(
        [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToDtype(dtype, scale=True), *normalize]
    )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "transform",
    [
        CROP,
        T.Compose([T.RandomResizedCrop((16, 30), interpolation="bicubic"), NORMALIZE]),
        T.Compose([T.Resize(40, max_size=90), T.CenterCrop(32)]),
        T.Resize((20, 50)),
        T.CenterCrop(70),
    ],
    ids=["crop", "bicubic", "resize", "exact", "center"],
)
def test_batches_are_those_of_a_raw_pack(packs: Packs, side: Any, transform: Any) -> None:
    expected = epochs(packs.raw[side], transform=transform)
    assert same(epochs(packs.files, transform=transform, cache=Cache("off", decoded=side)), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_all_dtypes(packs: Packs, dtype: torch.dtype) -> None:
    transform = with_dtype(dtype)
    expected = epochs(packs.raw[64], transform=transform)
    assert expected[0][0].dtype == dtype
    assert same(epochs(packs.files, transform=transform, cache=Cache("off", decoded=64)), expected)


def test_full_is_as_without(packs: Packs) -> None:
    assert same(epochs(packs.files, cache=Cache("off", decoded="full")), epochs(packs.files))
    assert not same(epochs(packs.files, cache=Cache("off", decoded=48)), epochs(packs.files))


def test_python_callables_and_pictures_of_different_sizes(packs: Packs) -> None:
    transform = T.Compose([T.Resize(30), T.ToDtype("uint8"), lambda image: image.float().mean(dim=(1, 2))])
    expected = epochs(packs.raw[48], transform=transform)
    assert same(epochs(packs.files, transform=transform, cache=Cache("off", decoded=48)), expected)


def test_no_transform_and_a_mix(tmp_path: Path) -> None:
    """Pictures of one size stay of one size, the bounded one."""
    parts = [
        plain_pack(tmp_path / "a", [odd_file(80, 60), odd_file(80, 60, "PNG")], [0, 1]),
        plain_pack(tmp_path / "b", [odd_file(80, 60, quality=30)], [2]),
    ]
    [(images, labels)] = epochs(mix(parts), 1, transform=None, cache=Cache("off", decoded=40), shuffle=False)
    assert images.shape == (3, 3, 30, 40)
    assert labels.tolist() == [0, 1, 2]


def test_counts_name_the_decoder_once(packs: Packs) -> None:
    with loader(packs.files, cache=Cache("off", decoded=48)) as made:
        all_batches(made)
    stats = made.stats()
    paths = ("jpeg", "jpeg_turbo", "png", "webp", "pil")
    assert (
        sum(stats["decoded"][path] for path in paths) == stats["stages"]["decode"]["count"] >= len(ODD_FILES)
    )
    assert stats["decoded"]["raw"] == 0


def test_damage_is_the_same_fault(tmp_path: Path) -> None:
    """A scaled picture needs all of the file, whatever the crop; the message is the decoder's."""
    cut = odd_file(200, 150, "PNG")[:-300]
    whole = odd_file(200, 150, "PNG")
    data = plain_pack(tmp_path, [whole, cut, whole])
    messages = []
    for options in ({}, {"cache": Cache("off", decoded=64)}):
        with loader(data, transform=T.Resize((20, 20)), shuffle=False, **options) as made:
            with pytest.raises(SampleError) as caught:
                all_batches(made)
            messages.append(str(caught.value))
    assert messages[0] == messages[1]
    [(images, labels)] = epochs(data, 1, shuffle=False, cache=Cache("off", decoded=64), on_error="skip")
    assert labels[1] == -100
    assert not images[1].any()


def test_damage_beside_the_crop_of_a_picture_that_is_not_scaled(tmp_path: Path) -> None:
    """As without the tier: crops that do not need what is damaged are given."""
    data = plain_pack(tmp_path, [odd_file(200, 150, "PNG")[:-9000]], [0])
    small = T.RandomResizedCrop(8, scale=(0.02, 0.04))
    expected = epochs(data, 20, transform=small, on_error="skip")
    assert len({int(labels[0]) for _, labels in expected}) == 2
    for side in ("full", 200):
        assert same(
            epochs(data, 20, transform=small, cache=Cache("off", decoded=side), on_error="skip"), expected
        )


def test_max_pixels_is_of_the_file(tmp_path: Path) -> None:
    data = plain_pack(tmp_path, [odd_file(100, 100), odd_file(50, 50)], [0, 1])
    [(_, labels)] = epochs(
        data,
        1,
        cache=Cache("off", decoded=32),
        on_error=OnError("skip", max_pixels=5000),
        shuffle=False,
        batch_size=2,
    )
    assert labels.tolist() == [-100, 1]


@pytest.mark.parametrize("side", [0, -1, 65_501, "half", "", 1.5, True])
def test_sides_that_cannot_be(packs: Packs, side: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="Cache.decoded must be"):
        loader(packs.files, cache=Cache("off", decoded=side))


def test_it_is_for_packed_data() -> None:
    data = torch.utils.data.TensorDataset(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="Cache.decoded.* is for packed datasets"):
        DataLoader(data, cache=Cache(decoded=64))


def in_fractions(width: int, height: int, side: int) -> tuple[int, int]:
    """The longer side at most ``side``, the other in proportion; a half is rounded to even."""
    scale = min(Fraction(1), Fraction(side, max(width, height)))
    return max(1, round(width * scale)), max(1, round(height * scale))


def test_sizes_are_those_of_pack() -> None:
    """Against fractions, halves included; what is not known stays unknown."""
    rng = np.random.default_rng(0)
    width, height = rng.integers(1, 65_501, (2, 3000))
    width[:9], height[:9] = [2, 3, 5, 7, 64, 65, 1, 65_500, 640], [64, 128, 128, 128, 64, 64, 65_500, 1, 3]
    for side in (1, 2, 32, 48, 64, 500, 65_500):
        found = np.stack(bounded_sizes(width, height, side), 1)
        expected = [in_fractions(int(w), int(h), side) for w, h in zip(width, height, strict=True)]
        assert found.tolist() == [list(size) for size in expected]
        assert [
            bounded(int(w), int(h), side) for w, h in zip(width[:9], height[:9], strict=True)
        ] == expected[:9]
    assert bounded_sizes(0, 0, 48) == (0, 0)
    assert [int(size) for size in bounded_sizes(70, 90, "full")] == [70, 90]


def test_bytes_of_records(packs: Packs) -> None:
    """What the layout of the cache file reckons with is what a raw pack has; 0 for sizes not in the index."""
    records = PackedDataset(packs.files).records
    for side in SIDES:
        lengths = PackedDataset(packs.raw[side]).records["length"].astype(np.int64)
        found = decoded_bytes(records, side)
        assert np.array_equal(found, np.where(records["width"] > 0, lengths, 0))
    unknown = records.copy()
    unknown["width"] = unknown["height"] = 0
    assert not decoded_bytes(unknown, 48).any()
