"""Whether two samples come from one distribution."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np


def same_shares(found: Counter[Any], wanted: Counter[Any], least: int = 12) -> bool:
    """Chi-square of two samples of categories, at one in ten thousand; rare categories are one."""
    keys = [key for key in {**found, **wanted} if found[key] + wanted[key] >= 2 * least]
    pairs = [(found[key], wanted[key]) for key in keys]
    rest = (sum(found.values()) - sum(a for a, _ in pairs), sum(wanted.values()) - sum(b for _, b in pairs))
    pairs += [rest] if sum(rest) >= 2 * least else []
    ratio = math.sqrt(sum(wanted.values()) / sum(found.values()))
    square = sum((a * ratio - b / ratio) ** 2 / (a + b) for a, b in pairs)
    degrees = len(pairs) - 1
    if degrees == 0:
        return set(found) == set(wanted)
    # Wilson and Hilferty: the cube root of chi-square over its degrees is nearly normal.
    spread = 2 / (9 * degrees)
    return bool((square / degrees) ** (1 / 3) < 1 - spread + 3.72 * math.sqrt(spread))


def same_values(found: Any, wanted: Any) -> bool:
    """Kolmogorov and Smirnov's test of two samples of numbers, at one in ten thousand."""
    a, b = np.sort(np.asarray(found, float)), np.sort(np.asarray(wanted, float))
    both = np.concatenate([a, b])
    shares = [np.searchsorted(values, both, "right") / len(values) for values in (a, b)]
    bound = 2.23 * math.sqrt((len(a) + len(b)) / (len(a) * len(b)))
    return bool(np.abs(shares[0] - shares[1]).max() < bound)
