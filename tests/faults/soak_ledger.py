"""Did every sample of an epoch come exactly once, over all ranks, all starts, and all numbers of ranks?

A job is a chain of starts, each of so many ranks, each going on from a state that the one before left. A
rank notes a line for each batch it has been given: its samples, and the loader's state behind it. What all
ranks of a start have reached counts; what some have received beyond that is done again by the next start, and
must be the same again, because the order of an epoch is a pure function of the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BLANK = -100  # an entry that fills a batch
MOST_RANKS = 4
Place = tuple[int, int]  # epoch, position
Line = dict[str, Any]  # "ids": samples, "state": the loader's state behind the batch


@dataclass
class Ledger:
    """What a job's ranks have received.

    Args:
        count: samples of the set.
        size: of a global batch.
        drop_last, repeat: how the loader ends an epoch.
    """

    count: int
    size: int
    drop_last: bool = False
    repeat: bool = False
    at: Place = (0, 0)
    state: dict[str, Any] | None = None
    samples: int = 0
    epochs: int = 0
    bad: list[str] = field(default_factory=list)
    _order: dict[int, dict[int, int]] = field(default_factory=dict)
    _seen: dict[int, Counter[int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The position at which an epoch has ended."""
        return self.count // self.size * self.size if self.drop_last else self.count

    def place(self, state: dict[str, Any]) -> Place:
        """Where a state is; an epoch's end is the next one's beginning."""
        epoch, position = state["epoch"], state["position"]
        return (epoch + 1, 0) if position >= self.end else (epoch, position)

    def take(self, ranks: Sequence[Sequence[Line]]) -> None:
        """A start has ended (or was ended): what its ranks noted, in the ranks' order."""
        reached = [self.place(lines[-1]["state"]) if lines else self.at for lines in ranks]
        until, states = min(reached), {}
        if until < self.at:
            self.bad.append(f"a start went back from {self.at} to {until}")
        for rank, lines in enumerate(ranks):
            before = self.at
            for line in lines:
                before = self._take_line(rank, len(ranks), line, before, until)
                known = states.setdefault(before, line["state"])
                if known != line["state"]:
                    self.bad.append(f"states at {before} differ: {known}, of rank {rank} {line['state']}")
        self.state, first = states.get(until, self.state), self.at[0]
        self.at = max(until, self.at)
        for epoch in range(first, self.at[0]):
            self._close(epoch)

    def _take_line(self, rank: int, world: int, line: Line, before: Place, until: Place) -> Place:
        """Note one batch; the place behind it."""
        epoch, position = line["state"]["epoch"], line["state"]["position"]
        begin = (position - 1) // self.size * self.size
        if (epoch, begin) != before:
            self.bad.append(f"rank {rank} of {world} went from {before} to a batch at {(epoch, begin)}")
        share = self.size // world
        if begin + self.size <= self.count:
            if len(line["ids"]) != share:
                self.bad.append(f"rank {rank} of {world} got {len(line['ids'])} samples, not {share}")
            order = self._order.setdefault(epoch, {})
            for row, sample in enumerate(line["ids"]):
                known = order.setdefault(begin + rank * share + row, sample)
                if known != sample:
                    where = f"place {begin + rank * share + row} of epoch {epoch}"
                    self.bad.append(f"{where} is sample {sample} now and was {known}")
        after = self.place(line["state"])
        if after <= until:
            self._seen.setdefault(epoch, Counter()).update(one for one in line["ids"] if one != BLANK)
        return after

    def _close(self, epoch: int) -> None:
        """All of an epoch has been received: each sample once."""
        seen, self.epochs = self._seen.pop(epoch, Counter()), self.epochs + 1
        self._order.pop(epoch, None)
        self.samples += seen.total()
        missing = sorted(set(range(self.count)) - set(seen))
        twice = sorted(sample for sample, times in seen.items() if times > 1)
        allowed = MOST_RANKS - 1 if self.repeat else 0  # what fills the last batch to equal shares
        if len(missing) != self.count - self.end or seen.total() - len(seen) > allowed:
            self.bad.append(f"epoch {epoch} is without samples {missing[:20]}, and has {twice[:20]} twice")
