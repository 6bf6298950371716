"""Processors of transformers in a loader: found however a program uses them, and fastload in their place."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from fastload.diagnose.attribution import Attribution, Place
from fastload.diagnose.causes import Evidence
from fastload.diagnose.facts import Stage
from fastload.diagnose.fixes import torch as fixes
from fastload.diagnose.fixes.processors import known_processor, picture_seconds
from fastload.diagnose.spots import Spot
from fastload.diagnose.torch_loader import TorchLoaderUnderTest
from fastload.diagnose.trial import Budget, Trial


class Siglip:
    """As transformers 4.57 leaves the settings on its object."""

    def __init__(self, **changes: Any) -> None:
        half = [0.5] * 3
        settings = {"image_mean": half, "image_std": half, "resample": 3, "size": {"height": 48, "width": 64}}
        flags = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
        vars(self).update({**settings, **flags, **changes})
        self._taken: list[tuple[int, int]] = []

    def __call__(self, images: list[Any], return_tensors: str) -> dict[str, str]:
        self._taken += [image.size for image in images]
        return {"pixel_values": return_tensors}


def as_of(module: str, name: str = "SiglipImageProcessor", **changes: Any) -> Any:
    return type(name, (Siglip,), {"__module__": module})(**changes)


images_of = as_of("transformers.models.siglip.image_processing_siglip")
helper = partial(images_of.__call__, return_tensors="pt")


def by_name(samples: list[Any]) -> Any:
    return images_of(samples, "pt")


def by_helper(samples: list[Any]) -> Any:
    return helper(samples)


def by_argument(samples: list[Any], processor: Any = None) -> Any:
    return processor(samples, "pt")


class Collator:
    def __init__(self, processor: Any) -> None:
        self.own = processor

    def collate(self, samples: list[Any]) -> Any:
        return self.own(samples, "pt")


def closed_over(processor: Any) -> Any:
    def collate(samples: list[Any]) -> Any:
        return processor(samples, "pt")

    return collate


class Pictures(Dataset[Any]):
    def __init__(self, **kept: Any) -> None:
        vars(self).update(kept)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return index


@pytest.mark.parametrize(
    ("name", "users"),
    [
        ("images_of", (by_name,)),
        ("processor", (by_helper,)),  # a bound method, which has no name there
        ("processor", (partial(by_argument, processor=images_of),)),
        ("own", (Collator(images_of).collate,)),
        ("own", (None, Collator(images_of))),
        ("processor", (closed_over(images_of),)),
        ("kept", (len, Pictures(kept=images_of, self_too=[1]))),
    ],
)
def test_a_processor_is_found_where_it_is_used(name: str, users: Any) -> None:
    assert known_processor(*users) == (name, images_of)


def test_what_fastload_cannot_do_is_not_found() -> None:
    module = "transformers.models.clip.image_processing_clip"
    for other in (as_of(module, "CLIPImageProcessor"), as_of(module, do_resize=False), as_of("mine")):
        assert known_processor(closed_over(other), Pictures(kept=other)) is None
    assert known_processor(None, DataLoader) is None
    ring = Collator(None)
    ring.own = ring
    assert known_processor(ring) is None


def test_both_take_a_picture_of_that_size() -> None:
    made = as_of("transformers.models.siglip.image_processing_siglip")
    theirs, ours = picture_seconds(made, 90, 70)
    assert made._taken
    assert set(made._taken) == {(90, 70)}
    assert theirs >= 0
    assert ours > 0


def case(collate: Any, share: float = 0.8, **seen: Any) -> fixes.TorchExamination:
    """Two workers that make 200 samples a second, 10 ms of CPU time each, mostly in a processor."""
    base = Trial(200.0, 0.01, threads=2)
    place = Place("processor", Spot("collate", "processor", "train.py", 9, "p(x)"), share)
    return fixes.TorchExamination(
        *(Budget(60), Path(), 2.0, 2, 2.0, base, None, Stage("step", 1e6)),
        TorchLoaderUnderTest(DataLoader(Pictures(), 8, collate_fn=collate)),
        Evidence(wait=0.8, makers={"processor": share}, place={"processor": place}),
        Attribution(**seen),
    )


def test_fastload_is_proposed_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def seconds(processor: Any, width: int, height: int) -> tuple[float, float]:
        assert processor is images_of
        asked.append((width, height))
        return 0.008, 0.002

    monkeypatch.setattr(fixes, "picture_seconds", seconds)
    (found,) = fixes.by_vision(case(by_name))
    assert 'fastload.DataLoader("SET", batch_size=8, transform=fastload.Vision(images_of))' in found.words
    assert "train.py line 9 (`p(x)`)" in found.words
    assert found.gain == pytest.approx(1 / (1 - 0.8 * 0.75) - 1)
    assert found.low < found.gain < found.high
    assert "A picture of 640 x 480 pixels took it 8 ms of CPU time, and fastload 2 ms" in found.evidence
    sizes = {("JPEG", 90, 70, ""): 5, ("JPEG", 9, 7, ""): 2}
    assert len(list(fixes.by_vision(case(by_name, pictures=sizes)))) == 1
    assert asked == [(640, 480), (90, 70)]


def test_it_is_not_proposed_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("takes no picture alone")

    monkeypatch.setattr(fixes, "picture_seconds", fails)
    for given in (case(by_name), case(by_name, 0.1), case(len), case(None)):
        assert list(fixes.by_vision(given)) == []
