"""What a transform's operations on pixels draw for a sample, slowly and obviously: groups and numbers one
after the other, as csrc/core/transform/pixels/ says."""

from __future__ import annotations

import math
from collections.abc import Iterable

from transform_reference import Draws, below, philox, uniform

from fastload._native import _C
from fastload.transforms.plan import Drawn, PixelUse

FIRST_OP = 64  # DrawOp::kPixels
BLOCKS = 32  # PixelDraws::kBlocks
GROUPS = {"all": 128, "choice": 129, "order": 130}

Step = tuple[str, tuple[float, ...]]  # an operation and its numbers


class _Sample:
    def __init__(self, draws: Draws) -> None:
        self.draws, self.seen = draws, dict[str, int]()

    def number(self, number: float | Drawn, op: int, first: int, place: int) -> float:
        if not isinstance(number, Drawn):
            return number
        words = self.draws.words(op, first + 1 + 2 * place)
        u, values = uniform(words[0], words[1]), number.values
        if number.kind == "uniform":
            return values[0] + u * (values[1] - values[0])
        if number.kind == "among":
            return values[below(words[0], words[1], len(values))]
        assert number.kind == "level"
        mean, std, top, per, scale, truncate, sign, offset, low, high = values
        level = mean
        if math.isinf(std):
            level = u * mean
        elif std > 0:
            level += std * math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * uniform(*words[2:]))
        level = min(max(level, 0.0), top) / per * scale
        level = float(int(level)) if truncate else level
        if sign:
            coin = self.draws.words(op, first + 2 + 2 * place)
            level = -level if uniform(coin[0], coin[1]) < 0.5 else level
        return min(max(level + offset, low), high)

    def steps(self, use: PixelUse, happens: bool) -> list[Step]:
        """Of a use and its parts, which are counted whether they happen or not."""
        operation = _C.PIXEL_OPERATIONS.get(use.name)
        op = FIRST_OP + (GROUPS[use.name] if operation is None else operation[0])
        first = self.seen.get(use.name, 0) * BLOCKS
        self.seen[use.name] = self.seen.get(use.name, 0) + 1
        words = self.draws.words(op, first)
        happens &= uniform(words[0], words[1]) < use.probability
        parts = [self.steps(part, happens) for part in use.parts]
        if not happens:
            return []
        if operation is not None:
            numbers = [self.number(number, op, first, i) for i, number in enumerate(use.numbers)]
            return [(use.name, tuple(numbers))]
        if use.name == "choice":
            words = self.draws.words(op, first + 1)
            at, sums = uniform(words[0], words[1]) * math.fsum(use.numbers), 0.0  # type: ignore[arg-type]
            for part, weight in zip(parts, use.numbers, strict=True):
                assert isinstance(weight, float)
                sums += weight
                if at < sums:
                    return part
            return parts[-1]
        if use.name == "order":
            key = self.draws.words(op, first + BLOCKS - 1)[:2]
            for i in range(len(parts) - 1, 0, -1):
                words = philox([i, 0, 0, 0], key)
                j = below(words[0], words[1], i + 1)
                parts[i], parts[j] = parts[j], parts[i]
        return [step for part in parts for step in part]


def drawn_steps(uses: Iterable[PixelUse], draws: Draws) -> list[Step]:
    """The operations of ``plan.pixels`` that happen to a sample, in order, each with its numbers."""
    sample = _Sample(draws)
    return [step for use in uses for step in sample.steps(use, True)]
