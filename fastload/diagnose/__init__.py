"""Why a training loop waits: what was watched, what was tried, and the verdict in words.

The room has the name of what users call, so the module itself can be called: ``fastload.diagnose(loader)``.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastload.diagnose.watch import Diagnosis


class _Callable(ModuleType):
    """A module that is its room's function, too."""

    def __call__(self, loader: Any = None, *, seconds: float = 60.0) -> Diagnosis:
        from fastload.diagnose.watch import diagnose  # what watching needs, only when it is used

        return diagnose(loader, seconds=seconds)


sys.modules[__name__].__class__ = _Callable
