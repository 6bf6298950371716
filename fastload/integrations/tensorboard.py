"""A loader's clocks as TensorBoard scalars.

::

    from torch.utils.tensorboard import SummaryWriter
    from fastload.integrations.tensorboard import Scalars

    scalars = Scalars(loader, SummaryWriter("runs/1"), every=50)
    for batch in loader:
        train(batch)
        scalars.step()
"""

from __future__ import annotations

from typing import Any, Protocol

from fastload.integrations.stats_stream import Every
from fastload.loader.view import Clocks


class Writer(Protocol):
    """What scalars are written to: torch's SummaryWriter, tensorboardX's, or anything like it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> Any:
        """Write one number."""


class Scalars(Every):
    """A writer of :func:`fastload.integrations.stats_stream.scalars` every ``every`` steps.

    Args:
        loader: the loader whose clocks are read.
        writer: where they are written; it is not closed.
        every: steps between two points of a curve.
        tag: put before each name, so that two loaders can have separate charts.
    """

    def __init__(self, loader: Clocks, writer: Writer, every: int = 50, tag: str = "fastload") -> None:
        def write(step: int, values: dict[str, float]) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)

        super().__init__(every, loader, write, f"{tag}/")
