"""A replica group of one rank, whose model counts what it was trained on: weight i is how often sample i was.

The loss is minus the sum of the samples' weights, times the number of replica groups, by which torchft
divides; so a step adds one to each sample of the global batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from numbered_set import ROWS
from torchft import Manager, Optimizer, ProcessGroupGloo

from fastload import DataLoader
from fastload import transforms as T
from fastload.integrations.torchft import QuorumLoader

PATIENCE = 120.0  # seconds


class Counts(torch.nn.Module):
    """A weight for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(ROWS))

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        """Return minus the weights of these samples; padding has none."""
        return -self.weights[labels[labels >= 0]]


def wait_for(path: Path) -> None:
    """Until another process has made it."""
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < end, f"{path} is missing"
        time.sleep(0.01)


def main(given: dict[str, Any]) -> None:
    folder, number = Path(given["folder"]), given["number"]
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    counts = Counts()
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=20)),
        load_state_dict=lambda state: counts.load_state_dict(state),
        state_dict=lambda: {name: value.clone() for name, value in counts.state_dict().items()},
        min_replica_size=1,
        timeout=timedelta(seconds=20),
        use_async_quorum=given["is_async"],
        init_sync=False,  # all begin with the same weights
        replica_id=f"group{number}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=given["lighthouse"],
    )
    optimizer = Optimizer(manager, torch.optim.SGD(counts.parameters(), lr=1.0))
    options = {"batch_size": 2, "shuffle": True, "padding": "mark", "seed": 7, "num_workers": 1}
    loader = DataLoader(given["set"], transform=T.Resize((8, 8)), **options)
    batches = QuorumLoader(loader, manager)
    (folder / f"ready-{number}-{given['life']}").touch()
    worlds, failed = [], 0
    while batches.state_dict()["epoch"] < given["epochs"]:
        for _, labels in batches:
            optimizer.zero_grad()
            step = manager.current_step()
            worlds.append(manager.num_participants())
            if len(worlds) == given["dies_at"]:
                os.kill(os.getpid(), signal.SIGKILL)
            (counts(labels).sum() * manager.num_participants()).backward()
            manager.allreduce(counts.weights.grad).wait()  # its DDP raises where a peer dies in backward()
            optimizer.step()
            failed += manager.current_step() == step
            if len(worlds) in given["waits"]:
                wait_for(folder / given["waits"].pop(len(worlds)))
            time.sleep(0.02)  # others start meanwhile
    found = {"counts": counts.weights.tolist(), "worlds": worlds, "failed": failed}
    found |= {"loader": batches.state_dict()}
    found |= {"step": manager.current_step(), "stats": loader.stats()["world"]}
    (folder / f"end-{number}-{given['life']}.json").write_text(json.dumps(found))
    wait_for(folder / "done")  # the store and the sender of states are this process's
    manager.shutdown(wait=False)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    main({**arguments, "waits": {int(step): name for step, name in arguments["waits"].items()}})
    sys.stdout.flush()
    os._exit(0)  # torchft's threads wait for their peers
