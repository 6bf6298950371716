"""Training by Ray Train: a TorchTrainer starts the ranks, each an actor of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ray
import ray.train.torch
import torch
from foreign_jobs import environment
from foreign_runs import EPOCHS, EngineBatches, digest, linear, our_loader, run_scenarios, torch_loader
from ray.train import RunConfig, ScalingConfig

ENGINE = EngineBatches()


def make_loader(given: dict[str, Any]) -> tuple[Any, Any]:
    """By the argument ``loader``: what has the state, and what is iterated."""
    if given["loader"] == "torch":
        loader = torch_loader(given["set"], given["rank"], given["world"])
        return loader, ray.train.torch.prepare_data_loader(loader)
    ours = our_loader(given["set"])
    if given["loader"] == "ray's":
        return ours, ray.train.torch.prepare_data_loader(ours)
    from fastload.integrations.ray import prepare_data_loader

    return ours, prepare_data_loader(ours)


def train(given: dict[str, Any]) -> dict[str, Any]:
    """One scenario on one rank."""
    before, plain = ENGINE.count, linear()
    loader, batches = make_loader(given)
    model = ray.train.torch.prepare_model(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps, labels, state = [0], [], given["folder"] / f"state{given['rank']}.pt"
    optimizer.register_step_post_hook(lambda *_: steps.__setitem__(0, steps[0] + 1))
    first = 0
    if "resume" in given:
        kept = torch.load(state)
        plain.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        loader.load_state_dict(kept["loader"])
        first = kept["epoch"]
    for epoch in range(first, EPOCHS):
        loader.sampler.set_epoch(epoch)
        for images, wanted in batches:
            labels.append(wanted.tolist())
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), wanted).backward()
            optimizer.step()
            if steps[0] == given.get("stop"):
                kept = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save({**kept, "loader": loader.state_dict()}, state)
                break
        if "stop" in given:
            break
    found = {"engine": ENGINE.count - before, "steps": steps[0], "weights": digest(plain)}
    return {**found, "labels": labels, "kind": type(batches).__name__}


def rank_main(given: dict[str, Any]) -> None:
    """All scenarios on one rank."""
    run_scenarios(train, given, ray.train.get_context().get_world_rank())


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    path = str(Path(__file__).parent) + ":" + environment()["PYTHONPATH"]
    ray.init(
        num_cpus=4,  # by the name only: older releases count one for the trainer itself
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        runtime_env={"env_vars": {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}},
    )
    from job import rank_main as imported  # by name: Ray would copy what is in __main__, classes and all

    ray.train.torch.TorchTrainer(
        imported,
        train_loop_config=arguments,
        scaling_config=ScalingConfig(num_workers=arguments["world"], resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=arguments["out"] + "/ray"),
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
    ).fit()
    ray.shutdown()
