"""What a program for GPUs and folders of images finds here: a CPU, packed sets, and a tiny model."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.distributed as dist

import fastload


class Tiny(torch.nn.Module):
    """The model that programs get which ask torchvision or timm for one."""

    def __init__(self, num_classes: int = 1000, **more: Any) -> None:
        super().__init__()
        self.pool = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
        self.fc = torch.nn.Linear(48, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc(self.pool(images))  # type: ignore[no-any-return]


def packed_folders() -> None:
    """torchvision, where ImageFolder opens a packed folder, as in a program whose user has packed his."""
    import bare_torchvision  # noqa: F401
    import torchvision
    from torchvision.models._api import register_model

    torchvision.datasets.ImageFolder = fastload.PackedDataset
    torchvision.models.tiny = register_model("tiny")(lambda **given: Tiny(**given))


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives for ``names`` and what is in them modules that have everything."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not any(name == one or name.startswith(f"{one}.") for one in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return MagicMock(__version__="99.0.0", name=spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def let_be_absent(names: Sequence[str]) -> None:
    """Let a program import ``names``, packages or modules of its own that its loaders do without."""
    sys.meta_path.insert(0, _Absent(names))


def without_gpu() -> None:
    """Let ``.cuda()`` and its like do nothing, and gloo take NCCL's place."""

    def same(value: Any, *given: Any, **more: Any) -> Any:
        return value

    begin, tensor = dist.init_process_group, torch.tensor
    replicate = torch.nn.parallel.DistributedDataParallel

    def init_process_group(backend: Any = None, device_id: Any = None, **more: Any) -> None:
        if not dist.is_initialized():
            begin("gloo", **more)

    def replicated(module: Any, device_ids: Any = None, **more: Any) -> Any:
        return replicate(module, **more)

    for where, name, what in (
        (torch.cuda, "set_device", lambda *given: None),
        (torch.cuda, "synchronize", lambda *given: None),
        (torch.Tensor, "cuda", same),
        (torch.nn.Module, "cuda", same),
        (torch, "tensor", lambda data, device=None, **more: tensor(data, **more)),
        (dist, "init_process_group", init_process_group),
        # A gloo group that DDP is the last to hold sometimes waits for itself when it is freed.
        (dist, "destroy_process_group", lambda: None),
        (torch.nn.parallel, "DistributedDataParallel", replicated),
    ):
        setattr(where, name, what)
