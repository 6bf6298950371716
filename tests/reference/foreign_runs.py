"""A tiny packed set, and torch's own loader over what plain loaders recorded of it.

A framework's job runs once with our loader and once with torch's over the recorded samples: weights, labels
and optimizer steps must be equal. Every picture has a class of its own, so a label says which one it was.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from pictures import jpegs
from plain_pack import plain_pack
from torch.utils.data import Dataset, DistributedSampler

import fastload
from fastload.backends.callables import PythonBackend
from fastload.backends.native import NativeBackend
from fastload.transforms import Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype

COUNT = 40  # pictures, and classes
BATCH = 4
SEED = 7
EPOCHS = 2


def chain() -> Compose:
    """A random native transform, so that equal batches of two epochs would show."""
    return Compose(
        [
            RandomResizedCrop(32),
            RandomHorizontalFlip(),
            ToDtype("float32", scale=True),
            Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]
    )


def make_set(folder: Path) -> Path:
    """A packed set of ``COUNT`` pictures; the class is the picture."""
    plain_pack(folder, jpegs(COUNT), list(range(COUNT)), [f"{i:03}" for i in range(COUNT)])
    return folder


def our_loader(folder: Path, **more: Any) -> fastload.DataLoader:
    """The loader that the jobs replace torch's by."""
    options: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": SEED, "num_workers": 2}
    return fastload.DataLoader(folder, **{**options, "transform": chain(), **more})


class Recorded(Dataset):  # type: ignore[type-arg]
    """The samples of one rank in the order of its epochs: (3, 32, 32) float32 pictures and labels."""

    def __init__(self, folder: Path, rank: int, world: int, epochs: int = EPOCHS, **more: Any) -> None:
        loader = our_loader(folder, ranks=fastload.Ranks(rank, world, handshake="off"), **more)
        self.samples: list[tuple[torch.Tensor, int]] = []
        self.ends = [0]
        for _ in range(epochs):
            for images, labels in loader:
                self.samples += zip(images.clone(), labels.tolist(), strict=True)
            self.ends.append(len(self.samples))
        loader.close()

    def __len__(self) -> int:
        return self.ends[1]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.samples[index]


class Replay(DistributedSampler):  # type: ignore[type-arg]
    """The recorded samples of the epoch that was set, else of the one after the last."""

    def __init__(self, recorded: Recorded, rank: int, world: int) -> None:
        super().__init__(recorded, num_replicas=world, rank=rank, shuffle=False)
        self.recorded = recorded

    def __iter__(self) -> Iterator[int]:
        epoch = self.epoch
        self.epoch += 1
        yield from range(self.recorded.ends[epoch], self.recorded.ends[epoch + 1])

    def __len__(self) -> int:
        return self.recorded.ends[1]


def torch_loader(folder: Path, rank: int, world: int, **more: Any) -> torch.utils.data.DataLoader[Any]:
    """torch's own loader, with the batches of :func:`our_loader` on this rank."""
    recorded = Recorded(folder, rank, world, **more)
    return torch.utils.data.DataLoader(recorded, BATCH, sampler=Replay(recorded, rank, world))


class EngineBatches:
    """Counts the batches that the back ends of packed datasets hand over in this process."""

    def __init__(self) -> None:
        self.count = 0
        for kind in (NativeBackend, PythonBackend):
            kind.batch = self._counted(kind.batch)  # type: ignore[method-assign]

    def _counted(self, inner: Any) -> Any:
        def batch(backend: Any, key: Any) -> Any:
            result = inner(backend, key)
            self.count += 1
            return result

        return batch


def linear() -> torch.nn.Module:
    """The same small model in every process."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, COUNT))


def digest(model: torch.nn.Module) -> str:
    """What the weights are, bit for bit."""
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update(value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


#: What every framework's job runs: with our loader, with torch's, and with ours in two parts.
SCENARIOS: dict[str, dict[str, Any]] = {
    "ours": {"loader": "ours"},
    "torch": {"loader": "torch"},
    "first": {"loader": "ours", "stop": 3},
    "second": {"loader": "ours", "resume": "first"},
}


def run_scenarios(
    train: Callable[[dict[str, Any]], dict[str, Any]], given: dict[str, Any], rank: int
) -> None:
    """Train once for each of the scenarios ``given``; what is found goes into a file a scenario and rank.

    One start of interpreters and ranks serves all. ``train`` gets the scenario with ``set``, ``world``,
    ``rank`` and ``folder``, where a stopped run leaves its state.
    """
    for name, scenario in given["scenarios"].items():
        out = Path(given["out"]) / name
        out.mkdir(parents=True, exist_ok=True)
        state = Path(given["out"]) / scenario.get("resume", name)
        more = {"set": Path(given["set"]), "world": given["world"], "rank": rank, "folder": state}
        try:
            found = train({**scenario, **more})
        except Exception:
            found = {"error": traceback.format_exc()}
        (out / f"rank{rank}.json").write_text(json.dumps(found))
