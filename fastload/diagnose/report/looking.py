"""All that a report says of a loader: looks at it, and leaves it as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastload.diagnose.facts import Verdict
from fastload.diagnose.report.alone import run_alone
from fastload.diagnose.report.costs_part import costs_part
from fastload.diagnose.report.loader_part import read_part, timeline_part, waterfall_part
from fastload.diagnose.report.mixing_part import measure_mixing, mixing_part
from fastload.diagnose.report.own_words import own_verdict
from fastload.diagnose.report.page import Part
from fastload.diagnose.report.sample_costs import measure_costs

if TYPE_CHECKING:
    from fastload.diagnose.report.history import History
    from fastload.loader.data_loader import DataLoader

__all__ = ["look_at"]


def look_at(
    loader: DataLoader[Any], history: History | None, seconds: float
) -> tuple[Verdict, list[Part | None]]:
    """What the loader's clocks say by themselves, and the parts of the page that are its own.

    A torch Dataset's loader has no threads of ours, and its code is not run for a report: of such a one there
    is the consumer's clock only.
    """
    stats = loader.stats()
    if not loader._arranged.packed:
        return own_verdict(stats, None), []
    alone = run_alone(loader, seconds)
    used = bool(stats["stages"]["decode"]["count"])
    clocks, whose = (stats, "Since the loader was made.") if used else (alone.stats, _WITHOUT_STEP)
    if history is not None:
        timeline = timeline_part(history.moments, "While the loop ran,")
    else:
        timeline = timeline_part(alone.moments, "A second loader of the same arguments, without a step:")
    dataset: Any = loader.dataset
    mixing, costs = measure_mixing(loader), measure_costs(dataset)
    has_classes = bool(dataset.classes) and dataset.schema.label_field is not None
    return own_verdict(stats, alone), [
        timeline,
        waterfall_part(clocks, whose),
        costs_part(costs),
        None if mixing is None else mixing_part(mixing, has_classes),
        read_part(clocks),
    ]


_WITHOUT_STEP = "The loader has not been used yet: these are the clocks of a second one, without a step."
