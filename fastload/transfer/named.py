"""The images and labels of a batch that transforms of whole batches take: of a pair, or by name of a dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["UNNAMED", "Named", "describe"]


def describe(batch: Any) -> str:
    """A batch in a few words, for messages."""
    kind = type(batch).__name__
    return f"{kind} of {', '.join(map(repr, batch))}" if isinstance(batch, Mapping) else kind


@dataclass(frozen=True)
class Named:
    """Which fields of a batch that is a mapping are its images and its labels.

    Args:
        image, label: the keys; None: not known, or not needed.
    """

    image: str | None = None
    label: str | None = None

    def check(self, batch: Mapping[str, Any], images: bool, labels: bool) -> None:
        """Whether a batch has what is needed.

        Raises:
            TypeError: it has not.
        """
        for needed, which in ((images, "image"), (labels, "label")):
            name = getattr(self, which)
            if needed and (name is None or name not in batch):
                raise TypeError(
                    f"batch_transform needs to know the {which}s of a batch. Found: {describe(batch)}, and "
                    f"{which}={name!r}. Say which: batch_transform=OfFields(..., {which}=NAME)."
                )
            if needed and not isinstance(batch[name], torch.Tensor):
                raise TypeError(
                    f"batch_transform needs the {which}s of a batch as one tensor. Found: {which}s {name!r} "
                    f"as {type(batch[name]).__name__}. Let the transform make pictures of one size."
                )

    def pair(self, batch: Any) -> tuple[Any, Any]:
        """Images and labels of a batch; of a mapping None for what has no name.

        Raises:
            TypeError: a callable has taken them out of it.
        """
        if not isinstance(batch, Mapping):
            return batch[0], batch[1]
        for name in (self.image, self.label):
            if name is not None and name not in batch:
                raise TypeError(f"A callable in batch_transform returned no {name!r}: {describe(batch)}.")
        image, label = self.image, self.label
        return (None if image is None else batch[image]), (None if label is None else batch[label])

    def put(self, batch: Any, images: Any, labels: Any) -> Any:
        """The batch with these in their place."""
        if not isinstance(batch, Mapping):
            return images, labels
        values = {self.image: images, self.label: labels}
        return {**batch, **{name: value for name, value in values.items() if name is not None}}


UNNAMED = Named()
