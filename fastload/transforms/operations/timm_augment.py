"""timm's policies, by its configuration strings or from its objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from fastload.transforms import arguments
from fastload.transforms.operations.operation import Draft, Operation, set_field, use_of_pixels
from fastload.transforms.operations.timm_groups import auto, mixed, rand
from fastload.transforms.operations.timm_levels import Settings, operation
from fastload.transforms.operations.timm_strings import use_of_string
from fastload.transforms.plan import PixelUse

__all__ = ["OPERATION", "TimmAugment"]

_MODULE = "timm.data.auto_augment"


@dataclass(frozen=True)
class TimmAugment:
    """Augment as timm does, by timm's strings, as ``timm.data.create_transform(auto_augment=...)`` makes it,
    with Pillow's pixels.

    Pillow 13 refuses to posterize to 0 bits, which the increasing policies come to at magnitude 10, so timm
    raises there. Here Pillow's formula goes on: that picture is black.

    Args:
        config: one of timm's strings. ``rand`` and any of ``m`` (magnitude, 10), ``n`` (operations a
            picture, 2), ``p`` (probability of each, 0.5), ``mstd`` (standard deviation of the magnitude, 0;
            above 100: uniform from 0), ``mmax`` (greatest magnitude, 10), ``inc`` (1: strength always grows
            with the magnitude), ``t`` (operations: ``weights``, ``3a`` or ``3aw``), as
            ``"rand-m9-mstd0.5-inc1"``. Or ``v0``, ``v0r``, ``original``, ``originalr`` or ``3a``, and
            perhaps ``mstd``. Or ``augmix`` and any of ``m`` (3), ``w`` (chains, 3), ``d`` (operations of a
            chain, else one to three), ``a`` (alpha of the weights, 1), ``b`` (1: blended chain by chain),
            ``mstd`` (else uniform from 0).
        mean: of the channels, in [0, 1], as Normalize has it: the colour of what comes from outside the
            picture; None: gray, 128.
        interpolation: ``"bilinear"``, ``"bicubic"``, or ``"random"``: one of them, drawn for each operation.

    Raises:
        TypeError, ValueError: an argument outside its range, or a string that timm does not know.
    """

    config: str
    mean: Sequence[float] | None = None
    interpolation: Any = "random"
    use: PixelUse = field(init=False, repr=False)

    def __post_init__(self) -> None:
        settings = Settings()
        if self.mean is not None:
            mean = arguments.floats("TimmAugment.mean", self.mean, 3)
            if not all(0 <= value <= 1 for value in mean):
                raise ValueError(f"TimmAugment.mean must be in [0, 1]. Found: {self.mean!r}.")
            set_field(self, "mean", mean)
            settings = replace(settings, img_mean=[min(255, round(255 * value)) for value in mean])
        if self.interpolation != "random":
            settings = replace(settings, interpolation=self.interpolation)
        set_field(self, "use", use_of_string(self.config, settings))

    @classmethod
    def of(cls, name: str, use: PixelUse) -> TimmAugment:
        """The spec of an object of timm's."""
        found = object.__new__(cls)
        for key, value in {"config": name, "mean": None, "interpolation": None, "use": use}.items():
            set_field(found, key, value)
        return found


def _operation(op: Any) -> PixelUse:
    """Of an ``AugmentOp`` whose functions are timm's own."""
    for function in (op.aug_fn, op.level_fn):
        if function is not None and getattr(function, "func", function).__module__ != _MODULE:
            raise ValueError(f"{op.name} has a function that is not timm's")
    settings = Settings(
        translate_const=op.hparams.get("translate_const", 250),
        translate_pct=op.hparams.get("translate_pct", 0.45),
        img_mean=op.kwargs["fillcolor"],
        interpolation=op.kwargs["resample"],
        magnitude_std=op.magnitude_std,
        magnitude_max=op.magnitude_max,
    )
    return operation(op.name, min(max(float(op.prob), 0.0), 1.0), op.magnitude, settings)


def _from_rand(item: Any) -> tuple[TimmAugment]:
    ops = [_operation(op) for op in item.ops]
    weights = None if item.choice_weights is None else [float(weight) for weight in item.choice_weights]
    return (TimmAugment.of("timm's RandAugment", rand(ops, item.num_layers, weights)),)


def _from_auto(item: Any) -> tuple[TimmAugment]:
    return (
        TimmAugment.of("timm's AutoAugment", auto([[_operation(op) for op in ops] for ops in item.policy])),
    )


def _from_mixed(item: Any) -> tuple[TimmAugment]:
    ops = [_operation(op) for op in item.ops]
    if not 0 < item.alpha < inf:
        raise ValueError(f"alpha is {item.alpha}")
    use = mixed(ops, item.alpha, item.width, item.depth, item.blended)
    return (TimmAugment.of("timm's AugMixAugment", use),)


def _add(draft: Draft, spec: TimmAugment, strict: bool) -> Draft:
    return use_of_pixels(draft, spec, spec.use)


OPERATION = Operation(
    TimmAugment,
    _add,
    {
        f"{_MODULE}.RandAugment": _from_rand,
        f"{_MODULE}.AutoAugment": _from_auto,
        f"{_MODULE}.AugMixAugment": _from_mixed,
    },
    pictures_only=True,
)
