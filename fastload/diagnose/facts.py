"""The doctor's data classes: a watched loop, stages, fixes, and the verdict.

Rates are samples per second on this rank, times are seconds, sizes are bytes, shares are 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastload.diagnose.attribution import Attribution, Place

RANGE = 0.1  # a gain's range is said if it is wider than this share of the rate


@dataclass(frozen=True)
class Loop:
    """A watched training loop, from its second batch on (the first one starts everything).

    Args:
        loader: a description of its loader, such as "torch DataLoader in train.py:41".
        batch_size: samples per batch, on this rank.
        wait: float64, shape (batches,): seconds inside ``next()``.
        step: float64, shape (batches,): seconds from a batch's arrival until the next one is asked for.
        threads: decoding threads or worker processes; 0: the loop's thread prepares the data.
        cpus: CPUs that this process may use (affinity and quota); may be a fraction.
        loop_cpu: CPU seconds of the loop's thread, and of threads that its operators started.
        loader_cpu: CPU seconds of decoding threads or of workers.
        read_bytes: bytes read from storage, by the system's count; None: not known.
        copied_bytes: bytes copied from host to device; None: not known.
        notes: further facts by name, in words or numbers ("throttled_seconds", "shm_free", "start_method").
    """

    loader: str
    batch_size: int
    wait: NDArray[np.float64]
    step: NDArray[np.float64]
    threads: int
    cpus: float
    loop_cpu: float
    loader_cpu: float
    read_bytes: int | None = None
    copied_bytes: int | None = None
    notes: Mapping[str, object] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The loop's total time."""
        return float(self.wait.sum() + self.step.sum())

    @property
    def rate(self) -> float:
        """Samples per second that the loop reached."""
        return self.batch_size * len(self.wait) / self.seconds if self.seconds > 0 else 0.0

    @property
    def wait_share(self) -> float:
        """The share of the time in which the loop waited for data."""
        return float(self.wait.sum()) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Stage:
    """What one stage could do if nothing else limited it.

    Args:
        name: "storage", "decode", "transform", "python", "collate", "transfer", "loader" (all of them
            together, without a step) or "step" (alone, on a batch that is already loaded).
        rate: samples per second with its present threads, disk or device.
        cpu: CPU seconds per sample.
        evidence: what was measured and how, in a sentence.
        delay: seconds per sample for which the step's thread waited for a CPU.
    """

    name: str
    rate: float
    cpu: float = 0.0
    evidence: str = ""
    delay: float = 0.0


@dataclass(frozen=True)
class Fix:
    """Something to do, and the rate that the loop would then have.

    Args:
        name: its key: "threads", "max-side", "baseline", "entry-points", ...
        words: what to do, with the option or command.
        rate: predicted for the loop, the step included; 0: no number can be given.
        gain: ``rate`` divided by the present rate, minus 1.
        evidence: what the number was measured on.
        price: what it costs: disk, memory, changed pixels; "" for nothing.
        low, high: the range in which the gain is expected; both 0: it is ``gain``.
        quiet_rate: predicted if nothing else used the CPUs; 0: the machine is quiet, or it is not known.
    """

    name: str
    words: str
    rate: float
    gain: float
    evidence: str
    price: str = ""
    low: float = 0.0
    high: float = 0.0
    quiet_rate: float = 0.0

    @property
    def is_range(self) -> bool:
        """Whether the gain is known only as a range."""
        return self.high - self.low > RANGE * (1 + self.gain)


@dataclass(frozen=True)
class Sentence:
    """A sentence of the verdict, and the evidence for it."""

    text: str
    evidence: str = ""


@dataclass(frozen=True)
class Verdict:
    """What limits a loop, and what would help.

    Args:
        limit: the key of a cause in :data:`fastload.diagnose.causes.CAUSES`: "step" (the best answer),
            "few-workers", "python", ...
        rate: the loop's present rate.
        loader_rate, step_rate: rate of each alone; 0: not known.
        sentences: the verdict in words.
        fixes: what would help, best first.
        stages: the measured capacities.
        loop: the watched loop; None if only a loader was examined.
        place: the line that takes the time; None: no line does, or it is not known.
        quiet_rate: the loop's rate if nothing else used the CPUs; 0: nothing does, or it is not known.
        attribution: where the time of loop and workers went; None: no profile was made.
    """

    limit: str
    rate: float
    loader_rate: float
    step_rate: float
    sentences: tuple[Sentence, ...]
    fixes: tuple[Fix, ...]
    stages: tuple[Stage, ...]
    loop: Loop | None = None
    place: Place | None = None
    quiet_rate: float = 0.0
    attribution: Attribution | None = None

    def __str__(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def verbose(self) -> str:
        """The sentences, each followed by its evidence."""
        lines = []
        for sentence in self.sentences:
            lines.append(sentence.text)
            if sentence.evidence:
                lines.append(f"    {sentence.evidence}")
        return "\n".join(lines)
