"""The grids of samples' pictures, as a chat counts them, by nothing but the pictures' sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.sample.fields import Image, Images
from fastload.vlm import counted
from fastload.vlm.frames import (
    CropFrames,
    Frames,
    OneVisionFrames,
    PatchFrames,
    PrefixFrames,
    TileFrames,
    WrappedFrames,
)
from fastload.vlm.rules import Gemma3, Idefics3, InternVL, LlavaOneVision, PaliGemma, Qwen2VL, Rule

Ints: TypeAlias = npt.NDArray[np.int64]
_SIDE = 2**31 - 1  # the core's sizes are int32


class PictureGrids:
    """The grids of a field's pictures, from the sizes that the index has. No picture is read.

    Args:
        field: the field of pictures.
        rule: what is done to them.
    """

    def __init__(self, field: str, rule: Rule) -> None:
        self.field = field
        self.rule = rule
        family, numbers = rule.core()
        self._core = _C.VisionRule(family, **numbers)

    def of(self, part: Any, samples: Ints, names: Ints | None = None) -> tuple[Ints, Ints, Ints]:
        """Return what is known of the pictures of some samples.

        Args:
            part: the packed set that has them.
            samples: (n,) their ids there.
            names: (n,) their ids for messages; None: ``samples``.

        Returns:
            Rows and columns of each picture, (pictures, 2), as batches' facts have them; the grids that a
            chat counts by, (pictures, numbers of a grid); and how many pictures each sample has, (n,).

        Raises:
            ValueError: the index has no size of a picture, or the rule has no size for it.
        """
        sizes, counts = part.picture_sizes(self.field, samples)
        known = sizes.min(axis=1, initial=_SIDE) > 0
        if not known.all():
            raise ValueError(
                f"{self._where(int(np.flatnonzero(~known)[0]), counts, samples, names)}: the index has no "
                "size of it, by which its tokens are counted. Pack the pictures in a format that the core "
                "decodes."
            )
        among = np.repeat(counts, counts).astype(np.int32)
        given = np.ascontiguousarray(sizes[:, ::-1], dtype=np.int32)  # the core has the width first
        rows, planned, _ = _C.vision_plans(self._core, given, among, strict=False)
        for wrong in np.flatnonzero(rows == 0)[:1].tolist():
            where = self._where(wrong, counts, samples, names)
            try:
                _C.vision_plans(self._core, given[wrong : wrong + 1], among[wrong : wrong + 1])
            except Exception as error:
                raise ValueError(f"{where}: {error}") from error
        cells = planned.astype(np.int64)
        make = _GRIDS.get(type(self.rule))
        return cells, cells if make is None else make(self.rule, sizes, rows), counts

    def _where(self, picture: int, counts: Ints, samples: Ints, names: Ints | None) -> str:
        ends = np.cumsum(counts)
        place = int(np.searchsorted(ends, picture, "right"))
        sample = int((samples if names is None else names)[place])
        number = picture - int(ends[place] - counts[place])
        return f"Sample {sample}, field {self.field!r}, picture {number}"


def _tiles(rule: Rule, sizes: Ints, rows: Ints) -> Ints:
    return rows[:, None].astype(np.int64)


def _crops(rule: Rule, sizes: Ints, rows: Ints) -> Ints:
    return rows[:, None].astype(np.int64) - 1


def _pixels(rule: Rule, sizes: Ints, rows: Ints) -> Ints:
    if rule.first_max_pixels is None:
        return sizes
    height, width = sizes.T
    return np.stack(counted.first(height, width, rule.first_max_pixels), axis=1)


def _nothing(rule: Rule, sizes: Ints, rows: Ints) -> Ints:
    return np.empty((len(sizes), 0), np.int64)


#: By rule, its grids; of others they are rows and columns.
_GRIDS: Mapping[type[Rule], Callable[[Any, Ints, Ints], Ints]] = {
    InternVL: _tiles,
    Gemma3: _crops,
    LlavaOneVision: _pixels,
    PaliGemma: _nothing,
}


#: By how pictures are written, the rule that makes as many rows, and numbers that both have: theirs, and its.
_RULES: Mapping[type[Frames], tuple[type[Rule], Mapping[str, str]]] = {
    PatchFrames: (Qwen2VL, {"merge": "merge"}),
    TileFrames: (Idefics3, {}),
    WrappedFrames: (InternVL, {}),
    CropFrames: (Gemma3, {}),
    PrefixFrames: (PaliGemma, {}),
    OneVisionFrames: (LlavaOneVision, {"tile": "tile", "canvases": "pinpoints"}),
}


def check_fits(frames: Frames, rule: Rule) -> None:
    """Check that a rule makes the rows that a chat writes tokens for. Frames of other classes are trusted.

    Raises:
        ValueError: it is another family's, or has other numbers.
    """
    family, numbers = _RULES.get(type(frames), (type(rule), {}))
    if not isinstance(rule, family):
        raise ValueError(
            f"Chat writes pictures by {type(frames).__name__}, whose rule is {family.__name__}. Found: "
            f"{rule!r}. Pass transform=fastload.Vision(processor) of the chat's processor."
        )
    for name, own in numbers.items():
        wanted, found = getattr(frames, name), getattr(rule, own)
        if wanted != found:
            raise ValueError(
                f"The rule's {own} must be the {name} of the chat's {type(frames).__name__}, {wanted}. "
                f"Found: {found}. Pass transform=fastload.Vision(processor) of the chat's processor."
            )


def picture_field(schema: Any, name: str | None = None) -> str:
    """Return the name of a schema's field of pictures.

    Raises:
        ValueError: there is none of this name; or, without a name, not exactly one.
    """
    names: list[str] = [one.name for one in schema if isinstance(one.kind, Image | Images)]
    if name is None and len(names) == 1:
        return names[0]
    if name is None or name not in names:
        raise ValueError(
            f"field must be the field of pictures{'' if name is None else ' of the set'}. Found: {name!r}, "
            f"and the set has {', '.join(names) or 'none'}."
        )
    return name


def by_sample(values: Ints, counts: Ints) -> list[list[Sequence[int]]]:
    """Return rows of ``values`` in lists, for each sample as many as ``counts`` says."""
    ends = np.cumsum(counts).tolist()
    rows = values.tolist()
    return [rows[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]
