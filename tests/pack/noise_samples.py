"""Large samples, in a module of their own: processes that pack them import it."""

from __future__ import annotations

from typing import Any

import numpy as np


class Noise:
    """Samples of 100 kB, 80 of them; remembers those that are asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 80

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i >= 80:
            raise IndexError(i)
        self.asked.append(i)
        rng = np.random.default_rng(i)
        return {"image": np.full((3, 3), i, np.uint8), "noise": rng.bytes(100_000), "n": i}
