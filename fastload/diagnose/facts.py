"""What the doctor knows and says: a loop that was watched, stages, fixes, and the verdict.

Rates are samples per second of this rank, times are seconds, sizes are bytes, shares are 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Loop:
    """A training loop that was watched, from its second batch on (the first one starts everything).

    Args:
        loader: which one, in words, as "torch DataLoader in train.py:41".
        batch_size: samples a batch of this rank.
        wait: float64, shape (batches,): inside ``next()``.
        step: float64, shape (batches,): from a batch's arrival until the next one is asked for.
        threads: what prepares data: decoding threads or worker processes; 0: the loop's own thread does.
        cpus: whole or part CPUs that this process may use (affinity and quota).
        loop_cpu: CPU seconds of the thread that runs the loop, and of what its operators started.
        loader_cpu: CPU seconds of decoding threads or of workers.
        read_bytes: what storage was asked for, as far as the system knows; None where it does not say.
        copied_bytes: from host to device; None where unknown.
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
        """The loop's whole time."""
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
            together, without a step) or "step" (alone, on a batch that is there already).
        rate: samples per second with the threads, disk or device that it has now.
        cpu: CPU seconds a sample.
        evidence: what was measured and how, in a sentence.
    """

    name: str
    rate: float
    cpu: float = 0.0
    evidence: str = ""


@dataclass(frozen=True)
class Fix:
    """Something to do, and the rate that the whole loop would then have.

    Args:
        name: its key, the name of its scenario: "threads", "max-side", "baseline", "entry-points", ...
        words: what to do, as an instruction with the option or command in it.
        rate: predicted, of the whole loop, the step included; 0: no number can be given.
        gain: ``rate`` over today's, minus 1.
        evidence: what the number was measured on.
        price: what it costs: disk, memory, pixels that change; "" for nothing.
    """

    name: str
    words: str
    rate: float
    gain: float
    evidence: str
    price: str = ""


@dataclass(frozen=True)
class Sentence:
    """One sentence of the verdict, and what it rests on."""

    text: str
    evidence: str = ""


@dataclass(frozen=True)
class Verdict:
    """What limits a loop, and what would help.

    Args:
        limit: "step" (the best answer), "storage", "decode", "transform", "python", "collate", "transfer",
            "threads" (too few for the CPUs there are), "quota" (fewer CPUs than threads), "neighbour",
            "prefetch" (uneven batches), "batch" (small ones), "ranks" or "unknown".
        rate: of the loop as it is.
        loader_rate, step_rate: of each alone; 0 where unknown.
        sentences: the verdict; the first one says what limits.
        fixes: best first.
        stages: the capacities that were measured.
        loop: what was watched; None where there was no loop, only a dataset.
    """

    limit: str
    rate: float
    loader_rate: float
    step_rate: float
    sentences: tuple[Sentence, ...]
    fixes: tuple[Fix, ...]
    stages: tuple[Stage, ...]
    loop: Loop | None = None

    def __str__(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def verbose(self) -> str:
        """Each sentence with what it rests on below it."""
        lines = []
        for sentence in self.sentences:
            lines.append(sentence.text)
            if sentence.evidence:
                lines.append(f"    {sentence.evidence}")
        return "\n".join(lines)
