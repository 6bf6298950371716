"""A rank of torchtitan: its checkpointer around our loader, saved on some ranks and loaded on others.

job.py SET FOLDER STEPS: loads the latest checkpoint of FOLDER, takes STEPS batches, saves, writes its labels.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from packed_pictures import PackedPictures
from torchtitan.components.checkpointer.dcp import CheckpointManager


class Kept:
    """What the trainer's other parts keep."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


def main(data: str, folder: str, steps: int) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    # As torchtitan's Trainer builds it.
    loader = PackedPictures.Config(dataset_path=data).build(
        dp_world_size=world,
        dp_rank=rank,
        tokenizer=None,
        seq_len=8,
        local_batch_size=2,
        snapshot_every_n_steps=1,
    )
    kept = Kept()
    checkpointer = CheckpointManager.Config(enable=True, interval=1, keep_latest_k=0).build(
        dataloader=loader,
        model_parts=[torch.nn.Linear(2, 2)],
        optimizers=Kept(),
        lr_schedulers=Kept(),
        states={"train_state": kept},
        sd_adapter=None,
        base_folder=folder,
    )
    checkpointer.load()
    labels = [wanted.tolist() for _, wanted in itertools.islice(loader, steps)]
    kept.step += steps
    checkpointer.save(kept.step)
    found = {"labels": labels, "step": kept.step, "loader": loader.state_dict()}
    Path(folder, f"{kept.step}-rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
