"""What a rank does under Accelerate: programs.py SCENARIO,... PACKED OUT. Each writes OUT/rank<r>.json.

Scenarios give a result for torch's own loader over the plain pictures and one for fastload's.
"""

from __future__ import annotations

import faulthandler
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState
from numbered_set import SIDE, NumberedPictures, loss_of, tiny_model, weights_of, write_result

import fastload
from fastload import transforms as T

VALID = T.Compose([T.Resize(SIDE), T.CenterCrop(SIDE), T.ToDtype("float32", scale=True)])
AUGMENTED = T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)])
KINDS = ("torch", "dataset", "packed")
PACKED = Path(sys.argv[2])
OUT = Path(sys.argv[3])


def accelerator_of(accumulate: int = 1, **config: Any) -> Accelerator:
    """A new Accelerator, as in a new process."""
    AcceleratorState._reset_state(reset_partial_state=False)
    GradientState._reset_state()
    return Accelerator(
        cpu=True,
        gradient_accumulation_steps=accumulate,
        dataloader_config=DataLoaderConfiguration(**config),
    )


def loader_of(kind: str, batch: int = 4, shuffle: bool = False, **options: Any) -> Any:
    """A loader of torch's, of fastload's over the same Dataset, or of fastload's over the packed set."""
    if kind == "torch":
        return torch.utils.data.DataLoader(NumberedPictures(), batch, shuffle, **options)
    if kind == "dataset":
        return fastload.DataLoader(NumberedPictures(), batch, shuffle, seed=7, **options)
    transform = AUGMENTED if shuffle else VALID
    options = {"seed": 7, "num_workers": 2, **options}
    return fastload.DataLoader(PACKED, batch, shuffle, transform=transform, **options)


class Run:
    """A model that is trained, and what happens meanwhile."""

    def __init__(self, accelerator: Accelerator, loader: Any) -> None:
        model = tiny_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        self.accelerator = accelerator
        self.model, self.optimizer, self.loader = accelerator.prepare(model, optimizer, loader)
        self.given = loader
        self.epochs: list[list[list[int]]] = []
        self.syncs: list[str] = []
        self.ends: list[str] = []

    def epoch(self, loader: Any = None, after: Callable[[int], bool] = lambda step: False) -> None:
        """One pass; it is left where ``after(step)`` is true."""
        self.epochs.append([])
        self.syncs.append("")
        self.ends.append("")
        for step, (images, labels) in enumerate(self.loader if loader is None else loader):
            assert images.shape[1:] == (3, SIDE, SIDE), images.shape
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(loss_of(self.model(images), labels))
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.epochs[-1].append(labels.tolist())
            self.syncs[-1] += "FT"[self.accelerator.sync_gradients]
            self.ends[-1] += "FT"[self.accelerator.gradient_state.end_of_dataloader]
            if after(step):
                break

    def result(self) -> dict[str, Any]:
        """What the test compares."""
        model = self.accelerator.unwrap_model(self.model)
        return {
            "epochs": self.epochs,
            "syncs": self.syncs,
            "ends": self.ends,
            "weights": weights_of(model),
            "in_dataloader": self.accelerator.gradient_state.in_dataloader,
            **engine_of(self.given),
        }


def engine_of(loader: Any) -> dict[str, Any]:
    """How many batches and samples the engine gave, and how many it decoded."""
    if not isinstance(loader, fastload.DataLoader):
        return {}
    found = loader.stats()
    return {
        "batches": found["data_wait"]["count"],
        "samples": found["samples"],
        "decoded": found["stages"]["decode"]["count"],
    }


def accumulation() -> dict[str, Any]:
    """Two epochs with accumulation over four batches; an evaluation begins within the first one."""
    results = {}
    for kind in KINDS:
        accelerator = accelerator_of(accumulate=4)
        run = Run(accelerator, loader_of(kind))
        other = accelerator.prepare(loader_of(kind, 16))

        def look(step: int, other: Any = other, leave: bool = kind != "torch") -> bool:
            if step == 2:
                for _ in other:
                    if leave:  # over torch's loader accumulation would fail then
                        break
            return False

        run.epoch(after=look)
        run.epoch()
        results[kind] = run.result()
    return results


def gather() -> dict[str, Any]:
    """gather_for_metrics over an evaluation set, with every kind of padding."""
    results: dict[str, Any] = {}
    cases = {
        "torch": loader_of("torch"),
        "dataset": loader_of("dataset"),
        "packed": loader_of("packed"),
        "mark": loader_of("packed", padding="mark"),
        "repeat": loader_of("packed", padding="repeat"),
        "whole": loader_of("packed", 3),
        "large": loader_of("packed", 50),
    }
    for name, loader in cases.items():
        accelerator = accelerator_of()
        prepared = accelerator.prepare(loader)
        rows: list[int] = []
        for images, labels in prepared:
            assert len(images) == len(labels)
            rows += accelerator.gather_for_metrics(labels).tolist()
        results[name] = {"rows": rows, "length": len(prepared), **engine_of(loader)}
    accelerator = accelerator_of()
    prepared = accelerator.prepare(loader_of("packed"))
    objects = [
        row
        for _, labels in prepared
        for row in accelerator.gather_for_metrics(
            [f"row {n}" for n in labels.tolist()], use_gather_object=True
        )
    ]
    results["objects"] = objects
    return results


def skip() -> dict[str, Any]:
    """skip_first_batches, by the method, by the function, and of a loader that skips already."""
    from accelerate import skip_first_batches

    results: dict[str, Any] = {}
    whole = Run(accelerator_of(accumulate=4), loader_of("packed", shuffle=True))
    for _ in range(3):
        whole.epoch()
    results["whole"] = whole.result()
    for name in ("method", "function", "twice", "set_epoch"):
        run = Run(accelerator_of(accumulate=4), loader_of("packed", shuffle=True))
        if name == "set_epoch":
            run.loader.set_epoch(1)
        if name == "function":
            skipping = skip_first_batches(run.loader, 3)
        elif name == "twice":
            skipping = skip_first_batches(skip_first_batches(run.loader, 2), 1)
        else:
            skipping = run.accelerator.skip_first_batches(run.loader, 3)
        run.epoch(skipping)
        run.epoch()
        length = len(skipping)
        results[name] = {**run.result(), "length": length, "kind": type(skipping).__name__}
    torch_run = Run(accelerator_of(accumulate=4), loader_of("torch"))
    torch_run.epoch(torch_run.accelerator.skip_first_batches(torch_run.loader, 3))
    torch_run.epoch()
    results["torch"] = torch_run.result()
    return results


def checkpoint() -> dict[str, Any]:
    """Interrupted in the second epoch, with and without use_stateful_dataloader, and at an epoch's end."""
    results: dict[str, Any] = {}
    for stateful in (False, True):
        name = "stateful" if stateful else "plain"
        config = {"use_stateful_dataloader": stateful}
        torch.manual_seed(1)
        whole = Run(accelerator_of(accumulate=2, **config), loader_of("packed", shuffle=True, seed=None))
        for _ in range(3):
            whole.epoch()
        results[f"{name} whole"] = whole.result()

        torch.manual_seed(1)
        first = Run(accelerator_of(accumulate=2, **config), loader_of("packed", shuffle=True, seed=None))
        folder = OUT / name

        def save(step: int, run: Run = first, folder: Path = folder) -> bool:
            if step == 3:
                run.accelerator.save_state(str(folder))
            return step == 3

        first.epoch()
        first.epoch(after=save)

        torch.manual_seed(2)  # what was saved decides, not what a new process begins with
        second = Run(accelerator_of(accumulate=2, **config), loader_of("packed", shuffle=True, seed=None))
        second.accelerator.load_state(str(folder))
        if stateful:
            second.epoch()
        else:
            second.epoch(second.accelerator.skip_first_batches(second.loader, 4))
        second.epoch()
        results[f"{name} resumed"] = {**second.result(), "before": first.epochs}
    return results


def epoch_end() -> dict[str, Any]:
    """A checkpoint in the body of an epoch's last batch: the next epoch comes next."""
    results: dict[str, Any] = {}
    for stateful in (False, True):
        config = {"use_stateful_dataloader": stateful}
        whole = Run(accelerator_of(**config), loader_of("packed", shuffle=True))
        folder = OUT / f"end{stateful}"

        def save(step: int, run: Run = whole, folder: Path = folder) -> bool:
            if run.accelerator.gradient_state.end_of_dataloader and len(run.epochs) == 1:
                run.accelerator.save_state(str(folder))
            return False

        whole.epoch(after=save)
        whole.epoch()
        resumed = Run(accelerator_of(**config), loader_of("packed", shuffle=True))
        resumed.accelerator.load_state(str(folder))
        resumed.epoch()
        name = "stateful" if stateful else "plain"
        results[name] = {"whole": whole.result(), "resumed": resumed.result()}
    return results


def splitting() -> dict[str, Any]:
    """split_batches: the batch size is that of all ranks together."""
    results = {}
    for kind in KINDS:
        accelerator = accelerator_of(split_batches=True)
        run = Run(accelerator, loader_of(kind, 8))
        run.epoch()
        rows: list[int] = []
        for _, labels in run.loader:
            rows += accelerator.gather_for_metrics(labels).tolist()
        results[kind] = {**run.result(), "rows": rows}
    try:
        accelerator_of(split_batches=True).prepare(loader_of("packed", 5))
        results["odd"] = "no error"
    except ValueError as error:
        results["odd"] = str(error)
    return results


def uneven() -> dict[str, Any]:
    """even_batches=False, by the configuration, and as join_uneven_inputs sets it for a while."""
    results: dict[str, Any] = {}
    for kind in ("torch", "packed"):
        loader = loader_of(kind)
        prepared = accelerator_of(even_batches=False).prepare(loader)
        results[kind] = {"epochs": [labels_of(prepared)], **engine_of(loader)}
        accelerator = accelerator_of()
        prepared = accelerator.prepare(loader_of(kind))
        if accelerator.num_processes > 1:  # as Accelerator.join_uneven_inputs does
            assert prepared.batch_sampler.even_batches
            prepared.batch_sampler.even_batches = False
        epochs = [labels_of(prepared)]
        if accelerator.num_processes > 1:
            prepared.batch_sampler.even_batches = True
        results[f"{kind} joined"] = {"epochs": [*epochs, labels_of(prepared)]}
    return results


def labels_of(loader: Any) -> list[list[int]]:
    """The labels of one pass."""
    return [labels.tolist() for _, labels in loader]


class Stream(torch.utils.data.IterableDataset[torch.Tensor]):
    """20 numbers."""

    def __iter__(self) -> Any:
        return iter(torch.arange(20))


def others() -> dict[str, Any]:
    """dispatch_batches is refused; a stream is Accelerate's to divide; batches go to the device."""
    results: dict[str, Any] = {}
    try:
        accelerator_of(dispatch_batches=True).prepare(loader_of("packed"))
        results["dispatch"] = "no error"
    except ValueError as error:
        results["dispatch"] = str(error)
    accelerator = accelerator_of(dispatch_batches=False)
    stream = accelerator.prepare(fastload.DataLoader(Stream(), 2))
    results["stream"] = [batch.tolist() for batch in stream]
    accelerator = accelerator_of()
    accelerator.state.device = torch.device("meta")
    placed = accelerator.prepare(loader_of("packed"))
    results["placed"] = sorted({tensor.device.type for batch in placed for tensor in batch})
    unplaced = accelerator.prepare_data_loader(loader_of("packed"), device_placement=False)
    results["unplaced"] = sorted({tensor.device.type for batch in unplaced for tensor in batch})
    accelerator.state.device = torch.device("cpu")
    accelerator = accelerator_of()
    twice = accelerator.prepare(accelerator.prepare(loader_of("packed")))
    results["prepared"] = [len(accelerator._dataloaders), type(twice) is fastload.DataLoader]
    results["ends"] = ["FT"[accelerator.gradient_state.end_of_dataloader] for _ in twice]
    return results


def meshes() -> dict[str, Any]:
    """The mesh of a ParallelismConfig, made as an Accelerator does; ranks along cp share their batches."""
    from accelerate.parallelism_config import ParallelismConfig

    mesh = ParallelismConfig(dp_shard_size=2, cp_size=2).build_device_mesh("cpu")
    torch.manual_seed(torch.distributed.get_rank())
    loader = fastload.DataLoader(PACKED, 4, shuffle=True, transform=AUGMENTED, num_workers=1)
    found = [[*labels.tolist(), float(images.double().sum())] for images, labels in loader]
    return {"place": mesh["dp_shard"].get_local_rank(), "batches": found}


if __name__ == "__main__":
    faulthandler.dump_traceback_later(200)
    torch.set_num_threads(1)
    rank = accelerator_of().process_index
    results = {}
    for scenario in sys.argv[1].split(","):
        try:
            results[scenario] = globals()[scenario]()
        except Exception:
            results[scenario] = {"error": traceback.format_exc()}
    write_result(OUT, rank, results)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
