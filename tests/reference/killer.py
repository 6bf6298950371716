"""A process that kills itself at a chosen place."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

__all__ = ["Killer"]


class Killer:
    """Sends SIGKILL to this process around the k-th call: even k before it, odd k after it."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.step()
            result = call(*arguments, **named)
            self.step()
            return result

        return counted

    def step(self) -> None:
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1
