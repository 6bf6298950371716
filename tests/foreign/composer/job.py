"""Training by composer's Trainer, started by composer's launcher."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Releases older than torch 2.6 load their own checkpoints with what torch.load's default was then.
os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"

import bare_torchvision  # noqa: F401
import torch
from composer import Callback, Trainer
from composer.models import ComposerModel
from composer.utils import dist
from foreign_runs import EngineBatches, digest, linear, our_loader, run_scenarios, torch_loader

ENGINE = EngineBatches()


class Linear(ComposerModel):
    """The small model, as composer wants one."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear()

    def forward(self, batch: Any) -> torch.Tensor:
        return self.net(batch[0])  # type: ignore[no-any-return]

    def loss(self, outputs: Any, batch: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, batch[1])


class Notes(Callback):
    """The labels that were trained on."""

    def __init__(self) -> None:
        self.labels: list[list[int]] = []

    def batch_start(self, state: Any, logger: Any) -> None:
        self.labels.append(state.batch[1].tolist())


def train(given: dict[str, Any]) -> dict[str, Any]:
    """One scenario on one rank."""
    if given["loader"] == "torch":
        loader: Any = torch_loader(given["set"], given["rank"], given["world"])
    else:
        loader = our_loader(given["set"])
    before, steps, notes = ENGINE.count, [0], Notes()
    model = Linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer.register_step_post_hook(lambda *_: steps.__setitem__(0, steps[0] + 1))
    more: dict[str, Any] = {}
    callbacks: list[Callback] = [notes]
    if given.get("exact"):
        from fastload.integrations.composer import LoaderState

        callbacks.append(LoaderState())
        more["spin_dataloaders"] = False
    if "resume" in given:
        more["load_path"] = str(given["folder"] / "stopped.pt")
    trainer = Trainer(
        model=model,
        train_dataloader=loader,
        optimizers=optimizer,
        max_duration=f"{given['stop']}ba" if "stop" in given else "2ep",
        device="cpu",
        seed=1,
        callbacks=callbacks,
        progress_bar=False,
        log_to_console=False,
        **more,
    )
    trainer.fit()
    if "stop" in given:
        trainer.save_checkpoint(str(given["folder"] / "stopped.pt"))
    trainer.close()
    found = {"engine": ENGINE.count - before}
    return {"labels": notes.labels, "steps": steps[0], "weights": digest(model.net), **found}


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    dist.initialize_dist("cpu")
    run_scenarios(train, arguments, dist.get_global_rank())
