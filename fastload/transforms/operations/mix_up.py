"""Two samples mixed, with the objects of both."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Misplaced, Operation, Stage, set_field

__all__ = ["OPERATION", "MixUp"]


@dataclass(frozen=True)
class MixUp:
    """With probability ``p``, mix a sample with another one and keep the objects of both: Ultralytics' MixUp
    (8.4). It stands directly behind :class:`Mosaic`, which the other sample goes through, too.

    Pictures are mixed by a weight from Beta(alpha, alpha); masks are those of the heavier one. The mix of
    whole batches for classification is ``fastload.transforms.batch.MixUp``.

    Args:
        p: in [0, 1].
        alpha: above 0.

    Raises:
        TypeError, ValueError: an argument outside its range.
    """

    p: float = 0.0
    alpha: float = 32.0

    def __post_init__(self) -> None:
        set_field(self, "p", arguments.probability("MixUp.p", self.p))
        (alpha,) = arguments.floats("MixUp.alpha", (self.alpha,), 1)
        if alpha <= 0:
            raise ValueError(f"MixUp.alpha must be above 0. Found: {alpha:g}.")
        set_field(self, "alpha", alpha)


def _add(draft: Draft, spec: MixUp, strict: bool) -> Draft:
    plan = draft.plan
    behind = plan.mosaic is not None and plan.mosaic.mixup == 0.0
    if not behind or draft.stage is not Stage.NOTHING or draft.plan.geometry or draft.in_group:
        raise Misplaced(f"{spec!r} must stand directly behind Mosaic, once.")
    assert plan.mosaic is not None
    return draft.then(Stage.NOTHING, mosaic=replace(plan.mosaic, mixup=spec.p, alpha=spec.alpha))


OPERATION = Operation(MixUp, _add, {})
