"""Training as torchvision's reference scripts for classification do it, started by torchrun.

Their presets, samplers and loops are scripts, in no wheel; what they do is written down here again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import bare_torchvision  # noqa: F401
import torch
import torch.distributed as dist
from foreign_runs import COUNT, EPOCHS, EngineBatches, digest, linear, our_loader, run_scenarios, torch_loader
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms._presets import ImageClassification
from torchvision.transforms.functional import InterpolationMode

ENGINE = EngineBatches()
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class TrainPreset:
    """ClassificationPresetTrain, with its chain inside: crop, flip, policy, tensor, normalise, erase."""

    def __init__(self, module: Any, policy: Any = None, erase: float = 0.0) -> None:
        steps: list[Any] = [
            module.RandomResizedCrop(32, interpolation=InterpolationMode.BILINEAR, antialias=True)
        ]
        steps += [module.RandomHorizontalFlip(0.5)]
        steps += [] if policy is None else [policy]
        steps += [module.PILToTensor()]
        steps += [v2.ToDtype(torch.float, scale=True) if module is v2 else v1.ConvertImageDtype(torch.float)]
        steps += [module.Normalize(mean=MEAN, std=STD)]
        steps += [module.RandomErasing(p=erase)] if erase else []
        self.transforms = module.Compose(steps)

    def __call__(self, image: Any) -> Any:
        return self.transforms(image)


def presets() -> dict[str, Any]:
    """The chains by name; "opaque" hides the same chain from the loader, as the reference's object does."""
    plain = TrainPreset(v1)
    return {
        "plain": plain.transforms,
        "v2": TrainPreset(v2).transforms,
        "opaque": plain,
        "policy": TrainPreset(v1, v1.TrivialAugmentWide(), erase=0.5).transforms,
        "eval": ImageClassification(crop_size=32, resize_size=36),
    }


class RepeatedSampler(torch.utils.data.Sampler[int]):
    """Each sample three times, on three different ranks or in turn: what the reference's RASampler does."""

    def __init__(self, count: int, rank: int, world: int) -> None:
        self.count, self.rank, self.num_replicas, self.epoch = count, rank, world, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 3 * self.count // self.num_replicas

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.epoch))
        repeated = [int(i) for i in order for _ in range(3)]
        return iter(repeated[self.rank :: self.num_replicas][: len(self)])


MIX = v2.RandomChoice([v2.MixUp(num_classes=COUNT, alpha=0.2), v2.CutMix(num_classes=COUNT, alpha=1.0)])


def mixed(batch: Any) -> Any:
    """The reference's collate_fn."""
    return MIX(*torch.utils.data.default_collate(batch))


def make_loader(given: dict[str, Any]) -> Any:
    """By the arguments ``loader``, ``preset``, ``mix`` and ``repeat``."""
    more: dict[str, Any] = {"transform": presets()[given.get("preset", "plain")]}
    if given["loader"] == "torch":
        return torch_loader(given["set"], given["rank"], given["world"], **more)
    if given.get("mix"):
        more |= {"collate_fn": mixed}
    if given.get("repeat"):
        more |= {"sampler": RepeatedSampler(COUNT, given["rank"], given["world"]), "shuffle": False}
    return our_loader(given["set"], **more)


def train(given: dict[str, Any]) -> dict[str, Any]:
    """One scenario on one rank: the reference's loop."""
    loader, before, plain = make_loader(given), ENGINE.count, linear()
    model: Any = torch.nn.parallel.DistributedDataParallel(plain) if given["world"] > 1 else plain
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps, labels, sums, first = 0, [], [], 0
    state = given["folder"] / f"state{given['rank']}.pt"
    if "resume" in given:
        kept = torch.load(state)
        plain.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        loader.load_state_dict(kept["loader"])
        first = kept["epoch"]
    for epoch in range(first, EPOCHS):
        if given["world"] > 1:
            loader.sampler.set_epoch(epoch)
        for image, target in loader:
            loss = torch.nn.functional.cross_entropy(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            labels.append((target if target.ndim == 1 else target.argmax(1)).tolist())
            sums.append(list(zip(labels[-1], image.double().sum((1, 2, 3)).tolist(), strict=True)))
            if steps == given.get("stop"):
                kept = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save({**kept, "loader": loader.state_dict()}, state)
                break
        if "stop" in given:
            break
    found = {"engine": ENGINE.count - before, "weights": digest(plain), "sums": sums}
    return {**found, "labels": labels, "steps": steps}


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    run_scenarios(train, json.loads(sys.argv[1]), int(os.environ.get("RANK", "0")))
    if dist.is_initialized():
        dist.destroy_process_group()
