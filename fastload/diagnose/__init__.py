"""Why a training loop waits. The module itself can be called: ``fastload.diagnose(loader)``."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastload.diagnose.watch import Diagnosis


class _Callable(ModuleType):
    """A module that is also a function."""

    def __call__(self, loader: Any = None, *, seconds: float = 60.0) -> Diagnosis:
        from fastload.diagnose.watch import diagnose  # imported only when it is used

        return diagnose(loader, seconds=seconds)


sys.modules[__name__].__class__ = _Callable
