"""The picture turned by a right angle, or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Misplaced, Operation, Stage, set_field
from fastload.transforms.plan import GeometryUse

__all__ = ["OPERATION", "RandomQuarterTurn"]


@dataclass(frozen=True)
class RandomQuarterTurn:
    """Turn the picture counter-clockwise by quarters, as ``numpy.rot90``: pixels are moved, none is
    computed. With flips before or behind it these are the eight symmetries of a square.

    An odd number of quarters exchanges height and width: where these differ, samples do, too.

    Args:
        turns: quarters, each in [0, 3]; one is drawn uniformly for each sample. One that is named
            twice is twice as likely.

    Raises:
        TypeError, ValueError: no quarters, or one outside [0, 3].
    """

    turns: int | Sequence[int] = (0, 1, 2, 3)

    def __post_init__(self) -> None:
        given = (self.turns,) if isinstance(self.turns, int) else tuple(self.turns)
        if not given:
            raise ValueError(
                "RandomQuarterTurn.turns must have at least one number of quarters. Found: none."
            )
        turns = tuple(arguments.whole("RandomQuarterTurn.turns", turn, 0, 3) for turn in given)
        set_field(self, "turns", turns)


def _upside_down_before(draft: Draft, spec: RandomQuarterTurn) -> Draft:
    """The draft with what turned pictures upside down so far as a step of the geometry: behind a quarter
    turn it would be another mirror."""
    flips = draft.plan.pixels
    if not flips:
        return draft
    if len(flips) > 1 or flips[0].name != "vertical_flip":
        raise Misplaced(
            f"{spec!r} must stand before the operations on pixels, but for one RandomVerticalFlip, if a crop "
            "or a resize stands before these. Move it to the front of them."
        )
    (flip,) = flips
    use = GeometryUse(
        "vertical_flip", (flip.probability,), keeps_size=True, drawn=0.0 < flip.probability < 1.0
    )
    return replace(draft, plan=replace(draft.plan, pixels=(), geometry=(*draft.plan.geometry, use)))


def _add(draft: Draft, spec: RandomQuarterTurn, strict: bool) -> Draft:
    draft = draft.on_source()
    if draft.in_group or draft.stage is Stage.TURN or draft.stage > Stage.PIXELS:
        raise Misplaced(
            f"{spec!r} is there twice, in a group, or behind ToDtype or Normalize. It stands once, behind "
            "what crops, resizes and pads, before the operations on pixels."
        )
    draft = _upside_down_before(draft, spec)
    turns = tuple(spec.turns) if not isinstance(spec.turns, int) else (spec.turns,)
    use = GeometryUse(
        "quarter_turn",
        tuple(float(turn) for turn in turns),
        _size_behind(draft.plan.output_size, turns),
        drawn=len(set(turns)) > 1,
    )
    return draft.then(Stage.TURN, geometry=(*draft.plan.geometry, use))


def _size_behind(size: tuple[int, int] | None, turns: Sequence[int]) -> tuple[int, int] | None:
    """Height and width of what was turned, if they are the same for all samples."""
    if size is None:
        return None
    sizes = {size if turn % 2 == 0 else size[::-1] for turn in turns}
    return sizes.pop() if len(sizes) == 1 else None


OPERATION = Operation(RandomQuarterTurn, _add, {})
