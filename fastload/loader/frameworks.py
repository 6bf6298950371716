"""What the loader answers a framework that asks: ``fastload.integrations`` is imported then, not before."""

from __future__ import annotations

import sys
import weakref
from importlib import import_module
from typing import Any

from fastload.loader.epochs import Epochs

__all__ = ["accelerate_asks", "epoch_meant", "let_skip", "lightning_made", "look_for_accelerate"]


def _integration(name: str) -> Any:
    return import_module(f"fastload.integrations.{name}")


def accelerate_asks(loader: Any) -> bool:
    """The value of ``loader._is_accelerate_prepared``; see :mod:`fastload.integrations.accelerate`."""
    return bool(_integration("accelerate").is_prepared(loader))


def look_for_accelerate(loader: Any) -> None:
    """Warn where Accelerate runs several ranks and has not been given ``loader``."""
    if "accelerate.state" in sys.modules:
        _integration("accelerate").warn_unprepared(loader)


def let_skip() -> None:
    """Before somebody takes ``loader.batch_sampler``: it may be Accelerate's ``skip_first_batches``."""
    if "accelerate.data_loader" in sys.modules:
        _integration("skipping").let_skip()


def lightning_made(loader: Any) -> None:
    """At the end of the constructor: Lightning may have noted its arguments, to call it again."""
    if "__pl_saved_args" in loader.__dict__:
        _integration("lightning").name_arguments(loader)


def epoch_meant(epochs: weakref.ref[Epochs], epoch: int) -> int:
    """The epoch that somebody means by ``set_epoch(epoch)``."""
    found = epochs()
    if found is None or found.resumed is None or "lightning.fabric.wrappers" not in sys.modules:
        return epoch
    return int(_integration("lightning").epoch_of_fabric(epoch, found.resumed))
