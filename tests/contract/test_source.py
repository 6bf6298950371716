"""Operations before the crop in whole loaders: the same pixels however a picture comes to its thread."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import encoded, picture
from plain_pack import plain_pack
from source_reference import shown
from transform_reference import Draws

from fastload import Cache, DataLoader, PackedDataset, Ranks
from fastload import transforms as T
from fastload._native import _C
from fastload.cli import main
from fastload.errors import SampleError, SlowPathWarning
from fastload.transforms import compile_plan

JITTER = T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8)
CROP = T.RandomResizedCrop(20, scale=(0.02, 0.5))
CHAIN = T.Compose([JITTER, CROP, T.RandomHorizontalFlip(), T.RandomGrayscale(0.5)])
TURNED = T.Compose([T.RandomRotation(30), T.RandomGrayscale(0.5), CROP])
VIEWS = T.Views(one=CHAIN, plain=CROP, small=(2, TURNED))
COUNT = 30


def blobs(count: int = COUNT) -> list[bytes]:
    return [
        encoded(picture(i, 60 + 17 * i % 90, 50 + 23 * i % 80), quality=85, subsampling=i % 3)
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    return plain_pack(tmp_path_factory.mktemp("source"), blobs(), range(COUNT))


def batches(data: Any, transform: Any = CHAIN, **options: Any) -> list[Any]:
    options = {"shuffle": True, "seed": 5, "num_workers": 2, "transform": transform, **options}
    with DataLoader(data, 8, **options) as loader:
        return [batch for _ in range(2) for batch in loader]


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) > 0 and all(map(same, found, wanted))
    return torch.equal(found, wanted)


@pytest.mark.parametrize(
    "options", [{"num_workers": 1}, {"cache": Cache(decoded="full")}, {"shuffle": "block"}]
)
def test_how_it_is_read_changes_nothing(packed: PackedDataset, options: dict[str, Any]) -> None:
    wanted = batches(packed, shuffle=options.get("shuffle", True))
    assert same(batches(packed, **options), wanted)


def test_entry_points_change_nothing(packed: PackedDataset, tmp_path: Path) -> None:
    dataset = plain_pack(tmp_path / "entries", blobs(), range(COUNT))
    assert main(["index", str(dataset.folder), "--entries"]) == 0
    indexed = PackedDataset(dataset.folder)
    assert indexed.entries is not None
    assert same(batches(indexed), batches(packed))


def test_ranks_and_resumption(packed: PackedDataset) -> None:
    whole: dict[int, torch.Tensor] = {}
    options: dict[str, Any] = {"seed": 5, "transform": CHAIN, "shuffle": True}
    with DataLoader(packed, 6, **options) as loader:
        for images, labels in loader:
            whole.update(zip(labels.tolist(), images, strict=True))
    found: dict[int, torch.Tensor] = {}
    for rank in range(2):
        with DataLoader(packed, 3, ranks=Ranks(rank, 2), **options) as loader:
            iterator = iter(loader)
            first = next(iterator)
            state = loader.state_dict()
        with DataLoader(packed, 3, ranks=Ranks(rank, 2), **options) as loader:
            loader.load_state_dict(state)
            for images, labels in [first, *loader]:
                found.update(zip(labels.tolist(), images, strict=True))
    assert found.keys() == whole.keys() == set(range(COUNT))
    assert all(torch.equal(found[label], image) for label, image in whole.items())


@pytest.mark.parametrize("how", ["always", "cheaper", "never"])
def test_each_view_has_its_own(packed: PackedDataset, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """One decode for all, and each view works on a copy."""
    with monkeypatch.context() as patch:
        patch.setattr(_C, "Engine", partial(_C.Engine, decode_once=how))
        found = batches(packed, VIEWS)
    seen = 0
    for number, batch in enumerate(found):
        for image in range(len(batch["label"])):
            sample, epoch = int(batch["label"][image]), number * 8 // COUNT
            for view, (name, transform) in enumerate(zip(VIEWS.names, VIEWS.transforms, strict=True)):
                draws = Draws(5, epoch, sample, 0, view)
                wanted = shown(packed.read(sample), compile_plan(transform), draws)
                assert np.array_equal(batch[name][image].permute(1, 2, 0).numpy(), wanted), (name, sample)
                seen += 1
    assert seen == 2 * 4 * COUNT


def test_damage_is_a_fault_wherever_it_is(tmp_path: Path) -> None:
    """A crop may do without what is damaged; what works on the whole picture cannot."""
    damaged = blobs(6)
    damaged[2] = damaged[2][: len(damaged[2]) // 2]
    dataset = plain_pack(tmp_path / "damaged", damaged, range(6))
    always = T.Compose([T.ColorJitter(contrast=0.5), CROP])
    with pytest.raises(SampleError, match="the file ends early"):
        batches(dataset, always)
    with DataLoader(dataset, 6, transform=always, seed=0, on_error="skip") as loader:
        images, labels = next(iter(loader))
        assert [report.sample for report in loader.errors] == [2]
    assert labels.tolist() == [0, 1, -100, 3, 4, 5]
    assert images.flatten(1).any(1).tolist() == [label >= 0 for label in labels]


def unchanged(image: Any) -> Any:
    return image


def stacked(samples: list[Any]) -> Any:
    images = [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image, _ in samples]
    return torch.stack(images), torch.tensor([label for _, label in samples])


@pytest.mark.parametrize("side", [None, 40])
def test_pictures_for_callables_are_the_same(packed: PackedDataset, side: int | None) -> None:
    """One by one, where the engine does not make the batch."""
    wanted = batches(packed, cache=Cache(decoded=side))
    with pytest.warns(SlowPathWarning, match="unchanged"):
        found = batches(
            packed,
            T.Compose([CHAIN, unchanged]),
            collate_fn=stacked,
            num_workers=0,
            cache=Cache(decoded=side),
        )
    assert same([list(batch) for batch in found], [list(batch) for batch in wanted])


def test_it_is_said_where_they_run(packed: PackedDataset) -> None:
    with DataLoader(packed, 4, transform=CHAIN) as loader:
        text = str(loader.explain())
    assert (
        "what the crop needs, or the whole picture, if an operation before the crop needs it\n    core"
        in text
    )
    assert text.count("on the whole picture, before the crop") == 1
    assert "Python, in" not in text


def test_dali_refuses_them(packed: PackedDataset) -> None:
    with pytest.raises(
        ValueError, match=r"backend='dali' crops, resizes and mirrors; all in transform is an"
    ):
        DataLoader(packed, 4, transform=CHAIN, backend="dali")


def test_channels_other_than_rgb_are_refused(packed: PackedDataset) -> None:
    view = _C.ViewPlan(_C.GeometrySpec([], "bilinear"), 4, 4, source=_C.PixelSpec([("invert", 1.0, [])]))
    field = _C.FieldPlan("picture", format=(1, 8, False))
    with pytest.raises(ValueError, match=r"Operations on pixels take 3 channels of 8 bits. Found: 1 channel"):
        _C.Engine(packed.sources, [], [view], [field], seed=0, threads=1, max_pixels=9, fallback=None)


def test_a_white_picture_of_many_pixels_keeps_its_mean() -> None:
    """Sums of 17 million pixels leave 32 bits."""
    white = np.full((4200, 4200, 3), 255, np.uint8)
    white[0, 0] = 0
    for name, numbers in (("contrast", [0.0]), ("equalize", []), ("autocontrast", [])):
        found = _C.operate(white, _C.PixelSpec([(name, 1.0, numbers)]), 0, 0, 0)
        assert (found[1:] == 255).all()
