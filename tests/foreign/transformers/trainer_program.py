"""Hugging Face's Trainer: trainer_program.py PACKED SAVE_STEPS OUT. Each rank writes OUT/rank<r>.json."""

from __future__ import annotations

import faulthandler
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from numbered_set import SIDE, NumberedPictures, loss_of, tiny_model, weights_of, write_result
from transformers import Trainer, TrainingArguments, set_seed

import fastload
from fastload import transforms as T
from fastload.integrations.transformers import NamedBatch, PackedLoaders

PACKED, SAVE_STEPS, OUT = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
VALID = T.Compose([T.Resize((SIDE, SIDE)), T.ToDtype("float32", scale=True)])
AUGMENTED = T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)])


class Model(torch.nn.Module):
    """A model that notes the labels of what it is trained with."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tiny_model()
        self.trained: list[list[int]] = []

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        assert pixel_values.shape[1:] == (3, SIDE, SIDE), pixel_values.shape
        if self.training:
            self.trained.append(labels.tolist())
        output = self.inner(pixel_values)
        return {"loss": loss_of(output, labels), "logits": output}


class MixedIn(PackedLoaders, Trainer):
    """The short way."""

    train_transform = AUGMENTED
    eval_transform = VALID
    made: Any = None

    def _prepared(self, *args: Any, **options: Any) -> Any:
        self.made = super()._prepared(*args, **options)
        return self.made


class Overridden(Trainer):
    """The way that Trainer's documentation shows."""

    made: Any = None

    def get_train_dataloader(self) -> Any:
        named = {"batch_transform": NamedBatch(), "num_workers": 2}
        loader = fastload.DataLoader(self.train_dataset, 4, shuffle=True, transform=AUGMENTED, **named)
        self.made = self.accelerator.prepare(loader)
        return self.made

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        found = eval_dataset or self.eval_dataset
        loader = fastload.DataLoader(found, 4, transform=VALID, batch_transform=NamedBatch(), num_workers=2)
        self.made = self.accelerator.prepare(loader)
        return self.made

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        return self.get_eval_dataloader(test_dataset)


class Unprepared(Overridden):
    """The mistake: the loader is not given to Accelerate."""

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return fastload.DataLoader(self.eval_dataset, 4, transform=VALID, batch_transform=NamedBatch())


def collated(samples: list[Any]) -> dict[str, torch.Tensor]:
    """torch's way to a dict."""
    images, labels = zip(*samples, strict=True)
    return {"pixel_values": torch.stack(images), "labels": torch.tensor(labels)}


def metrics(found: Any) -> dict[str, Any]:
    """The rows that were evaluated, and a number that depends on the model."""
    rows = [int(row) for row in found.label_ids]
    return {"rows": rows, "sum": float(found.predictions.sum())}


def trainer_of(kind: str, name: str, **options: Any) -> Any:
    """A Trainer of one kind."""
    arguments = {
        "use_cpu": True,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 3,
        "learning_rate": 1e-3,
        "save_strategy": "steps",
        "save_steps": SAVE_STEPS,
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": 3,
        "remove_unused_columns": False,
        "label_names": ["labels"],
        **options,
    }
    args = TrainingArguments(output_dir=str(OUT / name), **arguments)
    data: Any = NumberedPictures() if kind == "torch" else fastload.PackedDataset(PACKED)
    made = {"torch": Trainer, "mixin": MixedIn, "override": Overridden, "unprepared": Unprepared}[kind]
    collator = collated if kind == "torch" else None
    model = Model()
    return made(
        model=model,
        args=args,
        train_dataset=data,
        eval_dataset=data,
        data_collator=collator,
        compute_metrics=metrics,
    )


def result_of(trainer: Any) -> dict[str, Any]:
    """What the test compares."""
    found: dict[str, Any] = {"steps": trainer.state.global_step, "trained": trainer.model.trained}
    found["weights"] = weights_of(trainer.model)
    if getattr(trainer, "made", None) is not None:
        found["engine"] = engine_of(trainer.made)
    return found


def engine_of(loader: Any) -> dict[str, Any]:
    """How many batches the engine gave."""
    stats = loader.stats()
    decoded = stats["stages"]["decode"]["count"]
    return {"batches": stats["data_wait"]["count"], "decoded": decoded, "kind": type(loader).__module__}


def run() -> dict[str, Any]:
    """Training, resuming and evaluation, by torch's loader and both ways to ours."""
    results: dict[str, Any] = {}
    for kind in ("torch", "mixin", "override"):
        whole = trainer_of(kind, kind)
        whole.train()
        results[kind] = result_of(whole)
        if kind == "torch":
            continue
        set_seed(11)  # a new process
        resumed = trainer_of(kind, f"{kind} resumed")
        resumed.train(resume_from_checkpoint=str(OUT / kind / f"checkpoint-{SAVE_STEPS}"))
        results[f"{kind} resumed"] = result_of(resumed)
    for kind in ("torch", "mixin", "override"):
        evaluating = trainer_of(kind, f"{kind} evaluated")
        found = evaluating.evaluate()
        predicted = evaluating.predict(evaluating.eval_dataset)
        results[f"{kind} evaluated"] = {
            "rows": found["eval_rows"],
            "sum": found["eval_sum"],
            "loss": found["eval_loss"],
            "predicted": predicted.metrics["test_rows"],
            **({"engine": engine_of(evaluating.made)} if kind != "torch" else {}),
        }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unprepared = trainer_of("unprepared", "unprepared").evaluate()
    words = [str(warning.message) for warning in caught if "Accelerator.prepare" in str(warning.message)]
    results["unprepared"] = {"rows": unprepared["eval_rows"], "words": words}
    return results


if __name__ == "__main__":
    faulthandler.dump_traceback_later(250)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = run()
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    write_result(OUT, rank, found)
