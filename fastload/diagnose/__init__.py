"""Why a training loop waits. The module itself can be called: ``fastload.diagnose(loader)``."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastload.diagnose.facts import Verdict
    from fastload.diagnose.pages import History, Report
    from fastload.diagnose.ranks import Gathered
    from fastload.diagnose.watch import Diagnosis


def report(
    loader: Any = None,
    verdict: Verdict | None = None,
    *,
    ranks: Gathered | None = None,
    history: History | None = None,
    seconds: float = 3.0,
) -> Report:
    """Make a page with charts of a loop and its loader, for a notebook or ``.save("report.html")``.

    Args:
        loader: a fastload.DataLoader to examine for about ten seconds: its clocks so far; a second loader
            with the same arguments, run for ``seconds`` without a step; some hundred samples one by one; its
            order. The loader itself does not change. None: only the verdict.
        verdict: the doctor's, shown first; None: a verdict from the loader's clocks.
        ranks: from :func:`fastload.diagnose.ranks.gathered_stats`, to show which rank is slow.
        history: the loader's clocks while the loop ran, if they were recorded.
        seconds: for the second loader.

    Raises:
        LibraryMissing: matplotlib is not installed.
        TypeError: ``loader`` is not a fastload.DataLoader.
        ValueError: neither a verdict nor a loader.
    """
    from fastload.diagnose.pages import Report  # imported only when it is used

    return Report(loader, verdict, ranks, history, seconds)


class Diagnose(ModuleType):
    """The type of this module, which is also a function."""

    report = staticmethod(report)

    def __call__(self, loader: Any = None, *, seconds: float = 60.0) -> Diagnosis:
        from fastload.diagnose.watch import diagnose

        return diagnose(loader, seconds=seconds)


sys.modules[__name__].__class__ = Diagnose
if TYPE_CHECKING:
    this: Diagnose  # this module
