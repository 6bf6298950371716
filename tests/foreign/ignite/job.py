"""Training by ignite: idist.Parallel starts the ranks, create_supervised_trainer makes the steps."""

from __future__ import annotations

import json
import sys
from typing import Any

import ignite.distributed as idist
import torch
from foreign_runs import (
    BATCH,
    EPOCHS,
    SEED,
    EngineBatches,
    chain,
    digest,
    linear,
    our_loader,
    run_scenarios,
    torch_loader,
)
from ignite.engine import DeterministicEngine, Events, create_supervised_trainer
from ignite.handlers import Checkpoint
from torch.utils.data import DistributedSampler

ENGINE = EngineBatches()


def make_loader(given: dict[str, Any]) -> Any:
    """By the argument ``loader``: ours, torch's, or what auto_dataloader makes."""
    if given["loader"] == "torch":
        return torch_loader(given["set"], given["rank"], given["world"])
    if given["loader"] == "auto":
        from fastload.integrations.ignite import auto_dataloader

        batch = BATCH * given["world"]  # which ignite's rule divides
        return auto_dataloader(given["set"], batch_size=batch, shuffle=True, transform=chain(), seed=SEED)
    return our_loader(given["set"])


def make_trainer(deterministic: bool, model: Any, optimizer: Any) -> Any:
    """ignite's trainer, or its engine that repeats the order of batches when it resumes."""
    loss = torch.nn.functional.cross_entropy
    if not deterministic:
        return create_supervised_trainer(model, optimizer, loss)

    def step(engine: Any, batch: Any) -> float:
        optimizer.zero_grad()
        value = loss(model(batch[0]), batch[1])
        value.backward()
        optimizer.step()
        return float(value)

    return DeterministicEngine(step)


def train(given: dict[str, Any]) -> dict[str, Any]:
    """One scenario on one rank."""
    loader = make_loader(given)
    before = ENGINE.count
    plain = linear()
    model = idist.auto_model(plain)
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    deterministic = given.get("deterministic", False)
    trainer = make_trainer(deterministic, model, optimizer)
    labels: list[list[int]] = []
    steps = [0]
    optimizer.register_step_post_hook(lambda *_: steps.__setitem__(0, steps[0] + 1))
    kept = {"trainer": trainer, "model": plain, "optimizer": optimizer}
    if not deterministic and given["loader"] != "torch":
        kept["loader"] = loader  # has state_dict() and load_state_dict(), which is what Checkpoint wants
    state = given["folder"] / f"state{given['rank']}.pt"
    resumed = "resume" in given
    if resumed:
        Checkpoint.load_objects(kept, torch.load(state, weights_only=False))

    @trainer.on(Events.EPOCH_STARTED)
    def set_epoch() -> None:
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(trainer.state.epoch - 1)

    @trainer.on(Events.ITERATION_COMPLETED)
    def note() -> None:
        labels.append(trainer.state.batch[1].tolist())
        if given.get("stop") == trainer.state.iteration:
            torch.save({name: part.state_dict() for name, part in kept.items()}, state)
            trainer.terminate()

    trainer.run(loader, max_epochs=EPOCHS)
    found = {"engine": ENGINE.count - before, "kind": type(loader).__module__}
    return {"labels": labels, "steps": steps[0], "weights": digest(plain), **found}


def rank_main(local_rank: int, given: dict[str, Any]) -> None:
    """All scenarios on one rank."""
    run_scenarios(train, given, idist.get_rank())


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    how = {"backend": "gloo", "nproc_per_node": given["world"]} if given["world"] > 1 else {}
    with idist.Parallel(**how) as parallel:
        parallel.run(rank_main, given)
