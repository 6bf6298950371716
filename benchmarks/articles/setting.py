"""What all tables of bench_articles.py are told, and what a table is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from harness.measure import Run, Summary, failures, summarize, values_of
from harness.rounds import Measure

__all__ = ["Chart", "Measure", "Setting", "Table", "done", "summary"]


@dataclass(frozen=True)
class Setting:
    """The arguments of a benchmark, as text between its processes."""

    workdir: str
    images: str  # class folders of JPEGs
    device: str
    gpus: int
    threads: int
    batch: int
    size: int
    model: str
    amp: str
    seconds: float
    digits: int  # records of the MNIST table
    mnist: str = ""  # folder with MNIST's own files
    ranks: int = 0  # processes of the DDP rung

    @property
    def folder(self) -> Path:
        """``workdir`` as a path."""
        return Path(self.workdir)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Setting:
        return Setting(**json.loads(text))


@dataclass(frozen=True)
class Chart:
    """Medians and ranges to draw: series -> x -> summary. "bars" beside or on each other, or "lines"."""

    title: str
    unit: str
    kind: str  # "bars", "stacked", "lines"
    series: Mapping[str, Mapping[str, Summary]] = field(default_factory=dict)


class Table(Protocol):
    """A module of this folder."""

    def prepare(self, setting: Setting) -> None:
        """Make what the cases read, once."""

    def cases(self, setting: Setting) -> Sequence[str]:
        """Names; each is a process that is asked for rounds."""

    def start(self, case: str, setting: Setting) -> Measure:
        """In that process: get ready, or skip() with a reason; what measures one round."""

    def report(self, runs: Sequence[Run], setting: Setting) -> str:
        """Markdown."""

    def chart(self, runs: Sequence[Run], setting: Setting) -> Chart:
        """The same as a picture."""


def done(runs: Sequence[Run]) -> list[str]:
    """Cases that have figures, in order."""
    bad = failures(runs)
    return [name for name in dict.fromkeys(run.name for run in runs) if name not in bad]


def summary(runs: Sequence[Run], case: str, key: str) -> Summary:
    """Median and range of one value."""
    return summarize(values_of(runs, case, key))
