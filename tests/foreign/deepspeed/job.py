"""Training by DeepSpeed's engine (ZeRO stage 1, gradients accumulated over two batches), by its launcher."""

from __future__ import annotations

import json
import sys
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.dataloader import RepeatingLoader
from foreign_runs import (
    BATCH,
    COUNT,
    EPOCHS,
    EngineBatches,
    digest,
    linear,
    our_loader,
    run_scenarios,
    torch_loader,
)

ENGINE = EngineBatches()


def train(given: dict[str, Any]) -> dict[str, Any]:
    """One scenario on one rank."""
    if given["loader"] == "torch":
        loader: Any = torch_loader(given["set"], given["rank"], given["world"])
    else:
        loader = our_loader(given["set"])
    before, plain = ENGINE.count, linear()
    settings = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    engine, _, _, _ = deepspeed.initialize(model=plain, optimizer=optimizer, config=settings)
    labels: list[list[int]] = []
    if "resume" in given:
        _, kept = engine.load_checkpoint(str(given["folder"] / "state"))
        loader.load_state_dict(kept["loader"])
    total = EPOCHS * COUNT // BATCH // given["world"] - 2 * engine.global_steps
    batches = RepeatingLoader(loader)
    for _ in range(min(total, given.get("stop", total))):
        images, wanted = next(batches)
        labels.append(wanted.tolist())
        engine.backward(torch.nn.functional.cross_entropy(engine(images), wanted))
        engine.step()
    if "stop" in given:
        engine.save_checkpoint(str(given["folder"] / "state"), client_state={"loader": loader.state_dict()})
    found = {"engine": ENGINE.count - before, "weights": digest(plain), "updates": engine.global_steps}
    return {**found, "labels": labels, "steps": len(labels)}


if __name__ == "__main__":
    arguments = json.loads(next(word for word in sys.argv if word.startswith("{")))
    # DeepSpeed would compile collectives of its own first, which takes minutes: gloo's will do.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    run_scenarios(train, arguments, dist.get_rank())
