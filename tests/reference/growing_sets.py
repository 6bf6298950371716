"""Sets that grow, beside a list in Python that says what is in them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from recode_sets import pictures

import fastload
from fastload import Boxes, Bytes, Image, Images, Label, Labels, Mask, Scalar, Text
from fastload.packing.drop import drop

__all__ = ["CLASSES", "SCHEMA", "Grown", "field_rows", "field_schema", "rows"]

SCHEMA = {"image": Image(), "label": Label(("a", "b", "c")), "number": Scalar("int64"), "text": Text()}
CLASSES = ("a", "b", "c", "d", "e")


def rows(first: int, count: int) -> list[dict[str, Any]]:
    """Rows whose values say which they are: pictures of one colour, a number, a text of any length."""
    return [
        {
            "image": np.full((8, 8, 3), number % 251, np.uint8),
            "label": CLASSES[number % (3 if number < 30 else 5)],
            "number": number,
            "text": "x" * (number % 7) + str(number),
        }
        for number in range(first, first + count)
    ]


def field_schema(names: tuple[str, ...], kinds: tuple[str, ...]) -> dict[str, Any]:
    """Every way in which a set stores a field, with these classes of samples and of objects."""
    return {
        "label": Label(names), "image": Image(), "second": Image(), "mask": Mask(), "bytes": Bytes(),
        "boxes": Boxes("xyxy"), "text": Text(), "more": Images(), "kinds": Labels(kinds),
    }  # fmt: skip


def field_rows(count: int) -> list[dict[str, Any]]:
    """Rows of that schema, whose labels are numbers."""
    found = list(pictures().values())
    mask = np.arange(3000, dtype=np.uint8).reshape(50, 60) % 7
    return [
        {
            "label": i % 3, "image": found[i], "second": found[-1 - i], "mask": mask, "bytes": found[i],
            "boxes": np.full((i, 4), [1, 2, 30, 40], np.float32), "text": f"number {i}",
            "more": [found[i], None] if i % 2 else None, "kinds": np.arange(i) % 2,
        }
        for i in range(count)
    ]  # fmt: skip


@dataclass
class Grown:
    """A set, and the numbers of its rows as a list says them.

    Attributes:
        folder: the set's.
        numbers: of all rows, by sample id.
        generations: of each generation so far, the sample ids that it has.
    """

    folder: Path
    format: str = "arrow"
    numbers: list[int] = field(default_factory=list)
    generations: list[list[int]] = field(default_factory=list)

    @classmethod
    def begun(cls, folder: Path, count: int, format_name: str = "arrow", **options: Any) -> Grown:
        """A set of the first rows."""
        made = cls(folder, format_name)
        fastload.pack(
            rows(0, count), folder, SCHEMA, format=format_name, raw=True, **{"shard_size": 4096, **options}
        )
        made.numbers = list(range(count))
        made.generations = [list(range(count))]
        return made

    def append(self, count: int) -> None:
        """Append the next rows."""
        first = len(self.numbers)
        schema = {**SCHEMA, "label": Label(CLASSES)}
        fastload.pack(rows(first, count), self.folder, schema, append=True)
        self.numbers += range(first, first + count)
        self.generations.append(self.generations[-1] + list(range(first, first + count)))

    def drop(self, ids: list[int]) -> None:
        """Drop samples."""
        drop(self.folder, ids)
        gone = set(ids)
        self.generations.append([sample for sample in self.generations[-1] if sample not in gone])

    def change(self, draw: random.Random) -> None:
        """Append or drop a few, at random."""
        now = self.generations[-1]
        if draw.random() < 0.5 or len(now) < 4:
            self.append(draw.randrange(1, 9))
        else:
            self.drop(draw.sample(now, draw.randrange(1, len(now) // 2)))
