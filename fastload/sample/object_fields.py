"""The kinds of fields whose values have an entry for each object of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastload.sample.kind import Kind, optional

__all__ = ["Boxes", "Keypoints", "Labels", "Polygons", "Texts"]


@dataclass(frozen=True)
class Boxes(Kind):
    """Boxes of objects: (n, 4) float32.

    Args:
        format: ``"xyxy"`` (corners), ``"xywh"`` (left, top, width, height) or ``"cxcywh"`` (centre, width,
            height).
        relative: in parts of the picture's width and height, instead of pixels.
    """

    name: ClassVar[str] = "boxes"
    format: str = "xyxy"
    relative: bool = False

    def __post_init__(self) -> None:
        self._check_choice("format", ("xyxy", "xywh", "cxcywh"))
        self._check_choice("relative", (False, True))

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<f4")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (4,)

    @property
    def has_rows(self) -> bool:
        return True


@dataclass(frozen=True)
class Polygons(Kind):
    """Outlines or areas of objects, in pixels.

    Args:
        format: ``"polygons"`` (of each object any number of polygons of x, y, float32), ``"rle"`` (COCO's run
            lengths), or ``"mixed"`` (of each object either of the two; x, y are float64).
    """

    name: ClassVar[str] = "polygons"
    format: str = "polygons"

    def __post_init__(self) -> None:
        self._check_choice("format", ("polygons", "rle", "mixed"))


@dataclass(frozen=True)
class Keypoints(Kind):
    """Points of objects: (n, points, 3) float32 of x, y (pixels) and visibility, or (n, points, 2).

    Args:
        points: of each object.
        visibility: whether each point has one; COCO's is 0 not labelled, 1 hidden, 2 visible.
        pairs: which points change places in a mirror, as (1, 2) for left and right eye.
    """

    name: ClassVar[str] = "keypoints"
    points: int
    visibility: bool = True
    pairs: tuple[tuple[int, int], ...] = optional(())

    def __post_init__(self) -> None:
        self._check_integer("points", 1, 65535)
        self._check_choice("visibility", (False, True))
        try:
            pairs = tuple((first, second) for first, second in self.pairs)
        except (TypeError, ValueError):
            pairs = ((-1, -1),)
        points = [point for pair in pairs for point in pair]
        whole = all(isinstance(point, int) and not isinstance(point, bool) for point in points)
        if not whole or not all(0 <= a < b < self.points for a, b in pairs) or len(set(points)) < len(points):
            self._fail(
                "pairs", f"pairs of points (i, j), 0 <= i < j < {self.points}, no point in two of them"
            )
        object.__setattr__(self, "pairs", pairs)

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<f4")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (self.points, 3 if self.visibility else 2)

    @property
    def has_rows(self) -> bool:
        return True


@dataclass(frozen=True)
class Labels(Kind):
    """The classes of objects: of each its index, -1 for none.

    Args:
        classes: names of the classes; (): indices without names.
        ids: the number that the source calls each class, as COCO's category ids; (): its index.
    """

    name: ClassVar[str] = "labels"
    classes: tuple[str, ...] = ()
    ids: tuple[int, ...] = optional(())

    def __post_init__(self) -> None:
        self._check_names("classes")
        object.__setattr__(self, "ids", tuple(self.ids) if isinstance(self.ids, list) else self.ids)
        legal = f"() or {len(self.classes)} different integers of 64 bits, one for each class"
        if not isinstance(self.ids, tuple) or not all(map(_is_integer, self.ids)):
            self._fail("ids", legal)
        if self.ids and not len(set(self.ids)) == len(self.ids) == len(self.classes):
            self._fail("ids", legal)

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<i4")

    @property
    def has_rows(self) -> bool:
        return True

    @cached_property
    def indices(self) -> dict[str, int]:
        """Index by class name; of two classes of one name the first."""
        return {name: index for index, name in reversed(list(enumerate(self.classes)))}


@dataclass(frozen=True)
class Texts(Kind):
    """Any number of str, as the captions of a picture."""

    name: ClassVar[str] = "texts"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
