"""Scenarios of bench_doctor.py --device: a network trains there as the step, and its loader has one fault."""

from __future__ import annotations

from doctor.scenarios import CORES, Place, Scenario, crops
from loaders.jobs import MEAN, STD

from fastload import transforms as T

__all__ = ["TRAINING"]

BATCH = {"cuda": 128, "cpu": 8}


def _loader(place: Place, **options: object) -> object:
    """fastload's; normalised on the device, if it is told of one."""
    given = {"batch_size": BATCH[place.device], "transform": crops(T.Normalize(MEAN, STD))} | options
    return place.loader("plain", **given)


def _torch_loader(place: Place, workers: int) -> object:
    return place.torch_loader(batch_size=BATCH[place.device], num_workers=workers, persistent_workers=True)


FEW = max(1, CORES // 4)
HALF = max(1, CORES // 2)

TRAINING: tuple[Scenario, ...] = (
    Scenario(
        "training, one thread", ("few-workers",), "threads",
        lambda p: _loader(p, device=p.device, num_workers=1), lambda p: _loader(p, device=p.device),
        model="resnet18",
    ),
    Scenario(
        "training, pageable memory", ("transfer",), "pin-memory",
        lambda p: _loader(p, num_workers=HALF), lambda p: _loader(p, num_workers=HALF, device=p.device),
        model="resnet18",
    ),
    Scenario(
        "training, few of torch's workers", ("few-workers",), "workers",
        lambda p: _torch_loader(p, FEW), lambda p: _torch_loader(p, CORES), model="resnet18", warm_up=3.0,
    ),
    Scenario(
        "training, nothing wrong", ("step",), "", lambda p: _loader(p, device=p.device), model="resnet50",
    ),
)  # fmt: skip
