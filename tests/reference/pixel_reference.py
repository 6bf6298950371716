"""What a transform's operations on pixels draw for a sample, slowly and obviously: groups and numbers one
after the other, as csrc/core/transform/pixels/ says."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from transform_reference import Draws, below, philox, uniform

from fastload._native import _C
from fastload.transforms.plan import Drawn, PixelUse, Plan

FIRST_OP = 64  # DrawOp::kPixels
BLOCKS = 32  # PixelDraws::kBlocks
GROUPS = {"all": 128, "choice": 129, "order": 130, "augmix": 131, "some": 132, "mix_and_blend": 133}
GROUPS["blend_in_turn"] = 134

Step = tuple[str, tuple[float, ...]]  # an operation and its numbers


def normal(words: list[int]) -> float:
    """By Box and Muller."""
    radius = math.sqrt(-2 * math.log(1 - uniform(words[0], words[1])))
    return radius * math.cos(2 * math.pi * uniform(words[2], words[3]))


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
            level += std * normal(words)
        level = min(max(level, 0.0), top) / per * scale
        level = float(int(level)) if truncate else level
        if sign:
            coin = self.draws.words(op, first + 2 + 2 * place)
            level = -level if uniform(coin[0], coin[1]) < 0.5 else level
        return min(max(level + offset, low), high)

    def choice(self, use: PixelUse, op: int, first: int) -> int:
        """Which part it is."""
        words = self.draws.words(op, first + 1)
        at, sums = uniform(words[0], words[1]) * math.fsum(use.numbers), 0.0  # type: ignore[arg-type]
        for i, weight in enumerate(use.numbers):
            assert isinstance(weight, float)
            sums += weight
            if at < sums:
                return i
        return len(use.parts) - 1

    def steps(self, use: PixelUse, happens: bool) -> list[Step]:
        """Of a use and its parts, which are counted whether they happen or not."""
        operation = _C.PIXEL_OPERATIONS.get(use.name)
        op = FIRST_OP + (GROUPS[use.name] if operation is None else operation[0])
        first = self.seen.get(use.name, 0) * BLOCKS
        self.seen[use.name] = self.seen.get(use.name, 0) + 1
        if happens:
            words = self.draws.words(op, first)
            happens = uniform(words[0], words[1]) < use.probability
        only = self.choice(use, op, first) if happens and use.name == "choice" else None
        parts = [self.steps(part, happens and only in (None, i)) for i, part in enumerate(use.parts)]
        if not happens:
            return []
        if operation is not None:
            numbers = [self.number(number, op, first, i) for i, number in enumerate(use.numbers)]
            return [(use.name, tuple(numbers))]
        if use.name == "order":
            key = self.draws.words(op, first + BLOCKS - 1)[:2]
            for i in range(len(parts) - 1, 0, -1):
                words = philox([i, 0, 0, 0], key)
                j = below(words[0], words[1], i + 1)
                parts[i], parts[j] = parts[j], parts[i]
        if use.name == "some":
            return some(use, parts, self.draws.words(op, first + BLOCKS - 1)[:2])
        if use.name in ("augmix", "mix_and_blend", "blend_in_turn"):
            return mixed(use, parts, self.draws.words(op, first + BLOCKS - 1)[:2])
        return [step for part in parts for step in part]


def some(use: PixelUse, parts: list[list[Step]], key: list[int]) -> list[Step]:
    """As many parts as the first number says, by weight, none twice."""
    count, *weights = [float(number) for number in use.numbers]  # type: ignore[arg-type]
    found: list[Step] = []
    for i in range(int(count)):
        words = philox([i, 0, 0, 0], key)
        at, total = uniform(words[0], words[1]), 0.0
        for weight in weights:
            total += weight
        at *= total
        taken = 0
        for k, weight in enumerate(weights):
            if weight > 0:
                taken = k
                if at < weight:
                    break
            at -= weight
        weights[taken] = 0.0
        found += parts[taken]
    return found


class _Stream:
    """Blocks of a generator, one by one."""

    def __init__(self, key: list[int]) -> None:
        self.key, self.spent = key, 0

    def block(self) -> list[int]:
        self.spent += 1
        return philox([self.spent - 1, 0, 0, 0], self.key)

    def uniform(self) -> float:
        words = self.block()
        return uniform(words[0], words[1])

    def gamma(self, alpha: float) -> float:
        """Marsaglia and Tsang, "A simple method for generating gamma variables" (2000)."""
        power = (1.0 - self.uniform()) ** (1.0 / alpha) if alpha < 1 else 1.0
        d = (alpha + 1.0 if alpha < 1 else alpha) - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = normal(self.block())
            root, u = 1.0 + c * x, 1.0 - self.uniform()
            if root > 0:
                v = root * root * root
                if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                    return d * v * power

    def dirichlet(self, alpha: float, count: int) -> list[float]:
        found = [self.gamma(alpha) for _ in range(count)]
        return [value / sum(found) for value in found]


def mixed(use: PixelUse, parts: list[list[Step]], key: list[int]) -> list[Step]:
    """The steps of a mix: each chain, followed by what adds it."""
    (alpha,) = use.numbers
    assert isinstance(alpha, float)
    stream = _Stream(key)
    original, chains = np.float32(stream.dirichlet(alpha, 2))
    weights = np.float32(stream.dirichlet(alpha, len(parts)))
    if use.name == "augmix":
        first, last = ("mix_begin", (float(original),)), ("mix_end", (1.0,))
        shares, add = weights * chains, "mix_add"
    elif use.name == "mix_and_blend":
        first, last = ("mix_begin", (0.0,)), ("mix_end", (float(chains),))
        shares, add = weights, "mix_add"
    else:
        first, last, add = ("turn_begin", ()), ("turn_end", ()), "turn_add"
        shares, left = weights * chains, np.float32(1.0)
        for i in reversed(range(len(parts))):
            shares[i] /= left
            left *= np.float32(1.0) - shares[i]
    found: list[Step] = [first]
    for part, share in zip(parts, shares, strict=True):
        found += [*part, (add, (float(share),))]
    return [*found, last]


def drawn_around(plan: Plan, draws: Draws) -> tuple[list[Step], list[Step]]:
    """What happens to the whole picture, and to the cut one; uses are counted over both."""
    sample = _Sample(draws)
    before = [step for use in plan.source for step in sample.steps(use, True)]
    return before, [step for use in plan.pixels for step in sample.steps(use, True)]


def drawn_steps(uses: Iterable[PixelUse], draws: Draws) -> list[Step]:
    """The operations of ``plan.pixels`` that happen to a sample, in order, each with its numbers."""
    sample = _Sample(draws)
    return [step for use in uses for step in sample.steps(use, True)]
