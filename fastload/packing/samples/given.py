"""Where samples come from: an iterable, a sequence that is asked by position, a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fastload.errors import PackError
from fastload.packing.samples.encode import Encoder, Failed, Lessened

if TYPE_CHECKING:
    from fastload.sample.schema import Schema

__all__ = ["AnnotatedSource", "Given", "Positions", "Sample", "Stream", "at_least", "given"]

_LOOKED_AT = 16  # samples that tell one sequence from another, and whose fields are guessed from
Sample = Mapping[str, Any]


class Given(Protocol):
    """Samples to pack. Those that can be asked by position again and again have a length."""

    @property
    def root(self) -> bytes:
        """The folder that relative paths start from."""

    def __len__(self) -> int:
        """How many samples there are; TypeError: nobody knows."""

    def first(self) -> list[Sample]:
        """Some samples to guess the schema from; they come again."""

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | Failed | Lessened]:
        """Those from position ``start`` to before ``stop`` (None: all)."""

    def identity(self, encoder: Encoder) -> dict[str, Any] | None:
        """What tells these samples from others, JSON values only; None: nothing does, they come once."""

    def compared(self) -> int:
        """How many samples :meth:`identity` looks at."""

    def about_bytes(self, encoder: Encoder) -> int:
        """At least about so many bytes will be stored; 0: nobody knows."""

    def newest_ns(self) -> int:
        """The latest modification time of the files that they are known to come from; 0: there are none."""


class AnnotatedSource(Given, Protocol):
    """Samples whose fields are known before any of them is made: of tables and of annotated pictures."""

    schema: Schema

    def needed_bytes(self) -> int:
        """Bytes of the files that they are made of."""


class Stream:
    """Samples that come once, in their order."""

    def __init__(self, samples: Iterable[Sample], root: bytes, limit: int | None = None) -> None:
        self.root = root
        self._rest = islice(iter(samples), limit)
        self._first: list[Sample] = []
        self._position = 0

    def __len__(self) -> int:
        raise TypeError("an iterable has no length")

    def first(self) -> list[Sample]:
        if not self._first:
            self._first = list(islice(self._next(), _LOOKED_AT))
        return self._first

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | Failed]:
        yield from self._first
        self._position = len(self._first)
        for sample in self._next():
            self._position += 1
            yield sample

    def identity(self, encoder: Encoder) -> dict[str, Any] | None:
        return None

    def compared(self) -> int:
        return 0

    def about_bytes(self, encoder: Encoder) -> int:
        return 0

    def newest_ns(self) -> int:
        return 0

    def _next(self) -> Iterator[Sample]:
        try:
            yield from self._rest
        except Exception as error:
            raise PackError(
                f"the iterable of samples raised {type(error).__name__} after {self._position} samples: "
                f"{error}. Nothing can be asked of it again: mend it and pack anew."
            ) from error


def at_least(encoder: Encoder, some: Iterable[Sample | Failed], count: int) -> int:
    """Bytes that ``count`` samples have at least, by some of them: half of what they would have on average.

    A pack is refused for it, so it must not be too much where a few of those looked at are large.
    """
    sizes = [size for size in map(encoder.size, some) if size]
    return sum(sizes) * count // (2 * len(sizes)) if sizes else 0


class Positions:
    """A sequence: anything with ``__getitem__`` and ``__len__``, as torch's map-style datasets are."""

    def __init__(self, samples: Any, root: bytes, limit: int | None = None) -> None:
        self.root = root
        self._samples = samples
        self._count = min(len(samples), limit or len(samples))

    def __len__(self) -> int:
        return self._count

    def first(self) -> list[Sample]:
        found = (self._one(position) for position in self._spread())
        return [sample for sample in found if not isinstance(sample, Failed)]

    def samples(self, start: int, stop: int | None) -> Iterator[Sample | Failed]:
        end = self._count if stop is None else min(stop, self._count)
        return (self._one(position) for position in range(start, end))

    def identity(self, encoder: Encoder) -> dict[str, Any] | None:
        hashed = hashlib.blake2b(digest_size=16)
        for sample in map(self._one, self._spread()):
            hashed.update(encoder.digest(sample))
        return {"samples": self._count, "some": hashed.hexdigest()}

    def compared(self) -> int:
        return len(self._spread())

    def about_bytes(self, encoder: Encoder) -> int:
        return at_least(encoder, map(self._one, self._spread()), self._count)

    def newest_ns(self) -> int:
        return 0

    def _spread(self) -> list[int]:
        """Positions over the whole sequence, the first and the last among them."""
        return sorted({int(p) for p in np.linspace(0, max(self._count - 1, 0), min(_LOOKED_AT, self._count))})

    def _one(self, position: int) -> Sample | Failed:
        try:
            found: Sample = self._samples[position]
        except Exception as error:  # a user's code
            return Failed(error)
        return found


def given(samples: Any, root: bytes, limit: int | None) -> Given:
    """The samples of :func:`fastload.pack`.

    Raises:
        TypeError: neither an iterable nor a sequence.
    """
    if hasattr(samples, "__getitem__") and hasattr(samples, "__len__") and not isinstance(samples, Mapping):
        return Positions(samples, root, limit)
    if isinstance(samples, Iterable) and not isinstance(samples, (str, bytes, Mapping)):
        return Stream(samples, root, limit)
    raise TypeError(
        "samples must be an iterable of dicts, something with __getitem__ and __len__, or a path. "
        f"Found: {type(samples).__name__}."
    )
