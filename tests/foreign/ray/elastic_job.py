"""docs/guide/elastic.md by Ray Train: a node comes, and Ray starts the workers anew, two instead of one.

The model's weights say how often it was trained on each sample. elastic_job.py FOLDER: which has the set.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
import ray
import ray.train.torch
import torch
import torch.distributed as dist
from foreign_jobs import environment
from page_blocks import python_of
from ray.cluster_utils import Cluster
from ray.train import Checkpoint, RunConfig, ScalingConfig

from fastload import DataLoader
from fastload import transforms as T

ROWS, GLOBAL_BATCH, EPOCHS, HELD = 48, 6, 4, 6
transform = T.Resize((8, 8))
model = torch.nn.Linear(ROWS, 1, bias=False)
torch.nn.init.zeros_(model.weight)
here = 0  # steps of this process


def train_step(images: torch.Tensor, labels: torch.Tensor) -> None:
    """Count the global batch's samples; one worker stays in the middle until another one is there."""
    global here
    seen = torch.bincount(labels, minlength=ROWS)
    dist.all_reduce(seen)
    with torch.no_grad():
        model.weight += seen
    here += 1
    if here == HELD and dist.get_world_size() == 1:
        time.sleep(600)


def report(model: torch.nn.Module, loader: DataLoader) -> None:
    """A checkpoint of each step."""
    rank, world = dist.get_rank(), dist.get_world_size()
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, f"{folder}/last.pt")
        ray.train.report({}, checkpoint=Checkpoint.from_directory(folder) if rank == 0 else None)
    if rank == 0:
        with Path("trace.txt").open("a") as trace:
            trace.write(f"{world}\n")


exec(compile(python_of("elastic.md", "Ray Train"), "elastic.md", "exec"))


def rank_main(config: dict[str, Any]) -> None:
    """The page's function, in the folder of its set."""
    os.chdir(config["folder"])
    globals()["train"](config)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "end.pt")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    head = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    path = str(Path(__file__).parent) + ":" + environment()["PYTHONPATH"]
    variables = {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    }
    ray.init(address=cluster.address, runtime_env={"env_vars": variables})
    from elastic_job import rank_main as imported  # by name: Ray would copy what is in __main__

    trainer = ray.train.torch.TorchTrainer(
        imported,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=1.0),
        run_config=RunConfig(storage_path=f"{folder}/ray"),
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
    )
    training = threading.Thread(target=trainer.fit)  # a node is added in the main thread only
    training.start()
    while not (folder / "trace.txt").exists() and training.is_alive():
        time.sleep(0.1)
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    training.join()
    ray.shutdown()
    cluster.shutdown()
