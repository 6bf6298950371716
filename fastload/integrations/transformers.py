"""Hugging Face Trainer, which makes its loaders itself: a mixin that makes them with fastload.

from fastload.integrations.transformers import PackedLoaders

class MyTrainer(PackedLoaders, Trainer):
    train_transform = T.Compose([...])
    eval_transform = T.Compose([...])

MyTrainer(model, args, train_dataset=fastload.PackedDataset("packed/train"), ...)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

import fastload
from fastload.dataset.views import SourceKind, kind_of


@dataclass(frozen=True)
class NamedBatch:
    """A ``batch_transform`` that makes a dict of images and labels, as Hugging Face models take them.

    Args:
        images, labels: their names in the dict.
    """

    images: str = "pixel_values"
    labels: str = "labels"

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {self.images: images, self.labels: labels}


class PackedLoaders:
    """A mixin for ``transformers.Trainer``: fastload.DataLoader reads packed datasets, others stay as before.

    Batch sizes, accumulation, workers, ``dataloader_drop_last`` and the seed (``data_seed``, else ``seed``)
    are those of the ``TrainingArguments``; ``dataloader_num_workers=0`` means this rank's CPU budget.
    Ranks, resuming, and padding of the last evaluation batch are handled as for torch's loader.

    Attributes:
        train_transform, eval_transform: ``transform`` of the DataLoaders.
        batch_names: what the model calls images and labels.
        loader_options: more arguments for all DataLoaders.
    """

    train_transform: Any = None
    eval_transform: Any = None
    batch_names: Any = NamedBatch()
    loader_options: ClassVar[Mapping[str, Any]] = {}

    def get_train_dataloader(self) -> Any:
        """Return the training loader, prepared by Accelerate.

        Raises:
            See :class:`fastload.DataLoader`.
        """
        trainer: Any = self
        dataset = _opened(trainer.train_dataset)
        if kind_of(dataset) is not SourceKind.PACKED:
            return super().get_train_dataloader()  # type: ignore[misc]
        drop_last = trainer.args.dataloader_drop_last
        size = trainer._train_batch_size
        return self._prepared(dataset, size, self.train_transform, shuffle=True, drop_last=drop_last)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return an evaluation loader, prepared by Accelerate.

        Raises:
            See :class:`fastload.DataLoader`.
        """
        trainer: Any = self
        dataset = trainer.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dataset, str) and isinstance(trainer.eval_dataset, Mapping):
            dataset = trainer.eval_dataset.get(dataset, dataset)
        dataset = _opened(dataset)
        if kind_of(dataset) is not SourceKind.PACKED:
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return self._prepared(dataset, trainer.args.eval_batch_size, self.eval_transform)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return a loader to predict with, prepared by Accelerate.

        Raises:
            See :class:`fastload.DataLoader`.
        """
        dataset, trainer = _opened(test_dataset), self
        if kind_of(dataset) is not SourceKind.PACKED:
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return self._prepared(dataset, trainer.args.eval_batch_size, self.eval_transform)  # type: ignore[attr-defined]

    def _prepared(self, dataset: Any, batch_size: int, transform: Any, **more: Any) -> Any:
        trainer: Any = self
        args = trainer.args
        options: dict[str, Any] = {
            "transform": transform,
            "batch_transform": self.batch_names,
            "num_workers": args.dataloader_num_workers or None,
            "prefetch_factor": args.dataloader_prefetch_factor,
            "pin_memory": args.dataloader_pin_memory,
            "seed": args.seed if args.data_seed is None else args.data_seed,
        }
        loader: Any = fastload.DataLoader(dataset, batch_size, **{**options, **more, **self.loader_options})
        return trainer.accelerator.prepare(loader)


def _opened(dataset: Any) -> Any:
    """Open the folder of a packed dataset; return anything else as it is."""
    if isinstance(dataset, os.PathLike) or (isinstance(dataset, str) and os.path.isdir(dataset)):
        return fastload.PackedDataset(os.fspath(dataset))
    return dataset
