"""Which rank is slow, and why, in words: from what each rank's clocks say."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fastload.ranks.exchange import in_words

__all__ = ["RankClocks", "slow_ranks", "why_words"]

_FEW = 0.05  # of the time spent waiting: what a loader that keeps up may take, too
_APART = (
    1.5  # a rank that waits that many times as long as the others' median is another matter than they are
)
_DIFFERS = 1.25  # a reason is worth its words from this ratio on


@dataclass(frozen=True)
class RankClocks:
    """One rank's loader over an interval of its own.

    Args:
        rank, host: where it runs.
        at: seconds since 1970 when this was written down.
        seconds: of the loop's time, of which ``wait`` were spent waiting for data.
        batches, samples: delivered to the loop.
        decoded: samples that the threads decoded.
        read, decode, transform: seconds that these took, summed over threads.
        threads: at once.
        encoded_bytes: of the samples that were decoded.
        late: records that had not been read ahead in time.
        hits, misses: of the node cache.
    """

    rank: int
    host: str
    at: float
    seconds: float
    wait: float
    batches: int
    samples: int
    decoded: int
    read: float
    decode: float
    transform: float
    threads: int
    encoded_bytes: float
    late: int
    hits: int
    misses: int

    @property
    def wait_share(self) -> float:
        """Of the loop's time."""
        return self.wait / self.seconds if self.seconds > 0 else 0.0

    @property
    def batch_wait(self) -> float:
        """Seconds waited for a batch."""
        return self.wait / self.batches if self.batches else 0.0

    @property
    def batch_seconds(self) -> float:
        """Seconds a batch, with its step."""
        return self.seconds / self.batches if self.batches else 0.0


def slow_ranks(clocks: Mapping[int, RankClocks]) -> list[int]:
    """The ranks that keep the others waiting, the slowest first; none where all wait alike, or nobody waits.

    Ranks that train together take each step together: who waits for data is waited for by all, whose steps
    are longer for it, in the collective at their end. So the slow rank is the one that waits most, not the
    one whose steps are longest.
    """
    found = []
    for rank, own in clocks.items():
        others = [other.batch_wait for other in clocks.values() if other is not own and other.batches]
        usual = statistics.median(others) if others else own.batch_wait
        matters = own.batch_wait - usual > _FEW / 2 * own.batch_seconds
        if own.batches and own.wait_share > _FEW and own.batch_wait > _APART * usual and matters:
            found.append(rank)
    return sorted(found, key=lambda rank: -clocks[rank].batch_wait)


def why_words(clocks: Mapping[int, RankClocks]) -> str:
    """Which ranks are slow, and what is different there."""
    used = {rank: own for rank, own in clocks.items() if own.batches}
    if not used:
        return "No rank has had a batch yet."
    slow = slow_ranks(used)
    if slow:
        return " ".join(_slow(used, slow))
    most = max(used.values(), key=lambda own: own.wait_share)
    if most.wait_share <= _FEW:
        return (
            f"No rank waits for data: {_percent(most.wait_share)} of the time at most, on rank {most.rank} "
            f"({most.host})."
        )
    if len(used) == 1:
        return f"{in_words(list(used)).capitalize()} waits for data {_percent(most.wait_share)} of its time."
    least = min(own.wait_share for own in used.values())
    return (
        f"All ranks wait for data alike, {_percent(least)} to {_percent(most.wait_share)} of the time: it is "
        "not one rank. Ask the doctor on any of them."
    )


def _slow(clocks: Mapping[int, RankClocks], slow: Sequence[int]) -> list[str]:
    others = [own for rank, own in clocks.items() if rank not in slow]
    named = [clocks[rank] for rank in slow]
    hosts = sorted({own.host for own in named})
    ranks, wait = in_words(slow), statistics.median(own.batch_wait for own in named)
    part = _percent(statistics.median(own.wait_share for own in named))
    usual = statistics.median(own.batch_wait for own in others)
    usual_part = _percent(statistics.median(own.wait_share for own in others))
    verb = "is" if len(slow) == 1 else "are"
    sentences = [
        f"{ranks.capitalize()} ({', '.join(hosts)}) {verb} slow: {_ms(wait)} of waiting for a batch there, "
        f"{part} of the time; {_ms(usual)}, {usual_part}, on the others."
    ]
    if len(hosts) == 1 and {own.host for own in others}.isdisjoint(hosts) and len(slow) > 1:
        sentences.append(f"They are all the ranks of {hosts[0]}.")
    reasons = _reasons(named, others)
    if reasons:
        sentences.append(f"Why: {'; '.join(reasons)}.")
    else:
        sentences.append(
            "Its clocks say no reason: a sample takes its threads no longer than elsewhere, and there are as "
            "many of them. Look at its Python functions (collate_fn), and at what else runs there."
        )
    return sentences


def _reasons(slow: Sequence[RankClocks], others: Sequence[RankClocks]) -> list[str]:
    """What is worse on the slow ranks than on the others, in the medians; the greatest ratio first."""

    def medians(value: Callable[[RankClocks], float]) -> tuple[float, float]:
        return statistics.median(map(value, slow)), statistics.median(map(value, others))

    found: list[tuple[float, str]] = []
    here, there = medians(lambda own: own.threads)
    if there > here * _DIFFERS:
        found.append(
            (there / max(here, 1), f"it has {here:g} thread{'s' * (here != 1)}, the others {there:g}")
        )
    larger, usual = medians(lambda own: own.encoded_bytes / max(own.decoded, 1))
    bigger = larger > usual * _DIFFERS
    if bigger:
        text = f"its samples have {larger / 1e3:.0f} KB, the others' {usual / 1e3:.0f}"
        found.append((larger / max(usual, 1e-9), text))
    whole = sum(medians(stage)[0] for stage in _STAGES.values())
    for name, value in _STAGES.items():
        here, there = medians(value)
        # What takes no time anywhere is no reason, however it compares.
        if here > there * _DIFFERS and here - there > 0.05 * whole:
            text = f"{name} a sample takes {_ms(here)} of a thread there, {_ms(there)} on the others"
            if not bigger and name != "reading":
                text += ", of samples as large: its CPUs are slower, or shared"
            found.append((here / max(there, 1e-9), text))
    here, there = medians(lambda own: own.hits / max(own.hits + own.misses, 1))
    if there - here > 0.1:
        text = f"the node cache has {_percent(here)} of its records, {_percent(there)} of theirs"
        found.append((1 + there - here, text))
    here, there = medians(lambda own: own.late / max(own.decoded, 1))
    if here - there > 0.05:
        text = f"{_percent(here)} of its records come late from storage, {_percent(there)} of theirs"
        found.append((1 + here - there, text))
    return [text for _, text in sorted(found, key=lambda reason: -reason[0])]


_STAGES: dict[str, Callable[[RankClocks], float]] = {
    "reading": lambda own: own.read / max(own.decoded, 1),
    "decoding": lambda own: own.decode / max(own.decoded, 1),
    "transforming": lambda own: own.transform / max(own.decoded, 1),
}


def _percent(value: float) -> str:
    return f"{100 * value:.{1 if 0 < value < 0.1 else 0}f}%"


def _ms(value: float) -> str:
    return f"{1e3 * value:.{0 if value >= 0.1 else 1 if value >= 0.001 else 3}f} ms"
