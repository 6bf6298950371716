"""Training as timm's train.py does it, on what fastload's create_loader makes, started by torchrun.

The script is in no wheel; what it does with a loader is written down here again.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import bare_torchvision  # noqa: F401
import timm.data
import torch
import torch.distributed as dist
from foreign_runs import (
    BATCH,
    COUNT,
    EPOCHS,
    SEED,
    EngineBatches,
    digest,
    linear,
    our_loader,
    run_scenarios,
    torch_loader,
)
from timm.data import FastCollateMixup, create_transform
from timm.data.distributed_sampler import RepeatAugSampler

import fastload
from fastload.integrations.timm import create_loader

ENGINE = EngineBatches()


def wanted(given: dict[str, Any]) -> dict[str, Any]:
    """create_loader's arguments."""
    arguments: dict[str, Any] = {"input_size": (3, 32, 32), "batch_size": BATCH, "is_training": True}
    arguments |= {"interpolation": "bilinear", "color_jitter": 0.0, "num_workers": 2}
    arguments |= {"distributed": given["world"] > 1, "device": torch.device("cpu"), "pin_memory": False}
    return {**arguments, "use_prefetcher": given.get("prefetcher", False), **given.get("arguments", {})}


def make_loader(given: dict[str, Any]) -> Any:
    """By the argument ``loader``."""
    arguments = wanted(given)
    if given["loader"] == "torch":
        chain = create_transform((3, 32, 32), is_training=True, interpolation="bilinear", color_jitter=0.0)
        return torch_loader(given["set"], given["rank"], given["world"], transform=chain)
    if given["loader"] == "plain":  # timm's transform object, given to our loader
        chain = create_transform((3, 32, 32), is_training=True, interpolation="bilinear", color_jitter=0.0)
        return our_loader(given["set"], transform=chain)
    if given["loader"] == "timm's":
        return timm.data.create_loader(fastload.PackedDataset(given["set"]), **arguments)
    if given.get("mixup"):
        arguments["collate_fn"] = FastCollateMixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=COUNT)
    engine: dict[str, Any] = {"seed": SEED}
    if arguments.get("num_aug_repeats"):  # timm's own, but older releases round 40 samples down to none
        engine["sampler"] = RepeatAugSampler(range(COUNT), num_repeats=3, selected_round=0)
    return create_loader(str(given["set"]), **arguments, engine=engine)


def loss_of(outputs: Any, target: Any) -> Any:
    """Cross entropy with class indices or probabilities."""
    return torch.nn.functional.cross_entropy(outputs, target)


def train(given: dict[str, Any]) -> dict[str, Any]:
    """One scenario on one rank."""
    loader, before, plain = make_loader(given), ENGINE.count, linear()
    model: Any = torch.nn.parallel.DistributedDataParallel(plain) if given["world"] > 1 else plain
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps, labels, sums, first = 0, [], [], 0
    state = given["folder"] / f"state{given['rank']}.pt"
    torch.manual_seed(given["rank"])  # random erasing in PrefetchLoader draws from it
    if "resume" in given:
        kept = torch.load(state)
        plain.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        loader.load_state_dict(kept["loader"])
        first = kept["epoch"]
    for epoch in range(first, EPOCHS):
        assert loader.dataset is not None
        if given.get("mixup_off") == epoch and loader.mixup_enabled:
            loader.mixup_enabled = False
        if given["world"] > 1 and hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        assert len(loader) > 0
        for image, target in loader:
            assert image.dtype == torch.float32
            loss = loss_of(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            labels.append((target if target.ndim == 1 else target.argmax(1)).tolist())
            sums.append([target.ndim, *image.double().sum((1, 2, 3)).tolist()])
            if steps == given.get("stop"):
                kept = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save({**kept, "loader": loader.state_dict()}, state)
                break
        if "stop" in given:
            break
    found = {"engine": ENGINE.count - before, "weights": digest(plain), "sums": sums}
    return {**found, "labels": labels, "steps": steps, "kind": type(loader).__name__}


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    run_scenarios(train, json.loads(sys.argv[1]), int(os.environ.get("RANK", "0")))
    if dist.is_initialized():
        dist.destroy_process_group()
