"""Captions: what a batch has of texts, as ``DataLoader(text=...)`` is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Captions"]

_PICKS = ("one", "first", "all")


@dataclass(frozen=True)
class Captions:
    """``DataLoader(text={"captions": Captions(...)})``: which texts of a sample, and what is made of them
    (``docs/guide/text.md``).

    Args:
        tokenize: given a batch's texts, a list of str, it returns what the batch has of them: a tensor, list
            or mapping of these with a row for each text. It runs in threads of its own, batches ahead, and
            must depend on its texts alone. None: the texts themselves.
        pick: of several texts: "one", drawn anew in each epoch; "first"; or "all". Without any: "".

    Raises:
        TypeError: ``tokenize`` cannot be called.
        ValueError: no such ``pick``.
    """

    tokenize: Callable[[list[str]], Any] | None = None
    pick: Literal["one", "first", "all"] = "one"

    def __post_init__(self) -> None:
        if self.tokenize is not None and not callable(self.tokenize):
            raise TypeError(f"Captions.tokenize must be callable. Found: {self.tokenize!r}.")
        if self.pick not in _PICKS:
            raise ValueError(f"Captions.pick must be one of {', '.join(_PICKS)}. Found: {self.pick!r}.")
