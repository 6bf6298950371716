"""Fits with Lightning's Trainer: trainer_program.py STRATEGY DEVICES PACKED OUT."""

from __future__ import annotations

import faulthandler
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch
from numbered_set import SIDE, NumberedPictures, loss_of, tiny_model, weights_of, write_result

import fastload
from fastload import transforms as T

STRATEGY, DEVICES, PACKED, OUT = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
VALID = T.Compose([T.Resize(SIDE), T.CenterCrop(SIDE), T.ToDtype("float32", scale=True)])
AUGMENTED = T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)])


class Seen(L.LightningModule):
    """A model that is trained, and what each epoch brought.

    Args:
        stop: (epoch, batch) after which to save a checkpoint and stop.
        result: where the rank writes at the end of the fit, for processes that do not come back.
    """

    def __init__(self, stop: tuple[int, int] | None = None, result: Path | None = None) -> None:
        super().__init__()
        self.inner = tiny_model()
        self.stop = stop
        self.result_folder = result
        self.train_labels: dict[int, list[list[int]]] = {}
        self.val_labels: dict[int, list[list[int]]] = {}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-4)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        images, labels = batch
        assert images.shape[1:] == (3, SIDE, SIDE), images.shape
        self.train_labels.setdefault(self.current_epoch, []).append(labels.tolist())
        return loss_of(self.inner(images), labels)

    def on_train_batch_end(self, outputs: Any, batch: Any, number: int) -> None:
        if self.stop == (self.current_epoch, number):
            self.trainer.save_checkpoint(OUT / "middle.ckpt")
            self.trainer.should_stop = True
            self.trainer.limit_train_batches = 0
            raise KeyboardInterrupt

    def validation_step(self, batch: Any, number: int) -> None:
        if not self.trainer.sanity_checking:
            self.val_labels.setdefault(self.current_epoch, []).append(batch[1].tolist())

    def predict_step(self, batch: Any, number: int) -> torch.Tensor:
        return batch[1]

    def seen(self) -> dict[str, Any]:
        """What the test compares."""
        return {
            "train": list(self.train_labels.values()),
            "val": list(self.val_labels.values()),
            "steps": self.trainer.global_step,
            "weights": weights_of(self.inner),
            "engine": [engine_of(loader) for loader in loaders_of(self.trainer)],
        }

    def on_fit_end(self) -> None:
        if self.result_folder is not None:
            write_result(self.result_folder, self.global_rank, self.seen())


def loaders_of(trainer: L.Trainer) -> list[Any]:
    """The training loader that the Trainer iterates over, and the validation loader."""
    train = trainer.train_dataloader
    return [train, trainer.val_dataloaders] if trainer.val_dataloaders is not None else [train]


def engine_of(loader: Any) -> dict[str, Any]:
    """How many batches and samples the engine gave."""
    if type(loader) is not fastload.DataLoader:
        return {"kind": type(loader).__module__}
    found = loader.stats()
    decoded = found["stages"]["decode"]["count"]
    return {"kind": "fastload", "batches": found["data_wait"]["count"], "decoded": decoded}


def loaders(kind: str, **options: Any) -> tuple[Any, Any]:
    """A training and a validation loader, made before there is a process group."""
    if kind == "torch":
        made = torch.utils.data.DataLoader
        return made(NumberedPictures(), 4, shuffle=True), made(NumberedPictures(), 4)
    train = fastload.DataLoader(PACKED, 4, shuffle=True, transform=AUGMENTED, num_workers=2, **options)
    return train, fastload.DataLoader(PACKED, 4, transform=VALID, num_workers=2)


class Pictures(L.LightningDataModule):
    """Loaders made in hooks, where Lightning wraps constructors."""

    def train_dataloader(self) -> Any:
        return loaders("packed", seed=7)[0]


def trainer_of(**options: Any) -> L.Trainer:
    """A Trainer without logs, on the strategy under test."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "barebones": False, "num_sanity_val_steps": 0}
    return L.Trainer(accelerator="cpu", devices=DEVICES, strategy=STRATEGY, **quiet, **options)


def fit(kind: str, epochs: int, stop: Any = None, checkpoint: Any = None, **options: Any) -> dict[str, Any]:
    """One fit in this process."""
    model = Seen(stop)
    trainer = trainer_of(max_epochs=epochs, **options)
    try:
        trainer.fit(model, *loaders(kind), ckpt_path=checkpoint)
    except (KeyboardInterrupt, SystemExit):
        if stop is None:
            raise
    return model.seen()


def everything() -> dict[str, Any]:
    """All scenarios, for strategies whose processes run this script."""
    results: dict[str, Any] = {}
    for kind in ("torch", "packed"):
        L.seed_everything(3)
        results[kind] = fit(kind, 3, accumulate_grad_batches=4)
    L.seed_everything(3)
    results["stopped"] = fit("packed", 3, stop=(1, 3), accumulate_grad_batches=4)
    L.seed_everything(4)  # what was saved decides
    results["resumed"] = fit("packed", 3, checkpoint=OUT / "middle.ckpt", accumulate_grad_batches=4)
    L.seed_everything(5)
    results["other seed"] = fit("packed", 1)
    for name, source in {"overfit": loaders("packed", seed=7)[0], "overfit in a hook": Pictures()}.items():
        model = Seen()
        trainer = trainer_of(max_epochs=2, overfit_batches=2)
        if isinstance(source, L.LightningDataModule):
            trainer.fit(model, datamodule=source)
        else:
            trainer.fit(model, source)
        results[name] = model.seen()
    predicted = trainer_of().predict(Seen(), loaders("packed")[1])
    results["predict"] = [batch.tolist() for batch in predicted or []]
    return results


if __name__ == "__main__":
    faulthandler.dump_traceback_later(200)
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    if "spawn" in STRATEGY:
        L.seed_everything(3)
        trainer_of(max_epochs=2).fit(Seen(result=OUT), *loaders("packed"))
    else:
        found = everything()
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        write_result(OUT, rank, found)
