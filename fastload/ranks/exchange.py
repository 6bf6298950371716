"""Comparing a description of each rank through the key-value store with which a process group was formed.

The first member *calls* with a random word; the others answer under that word, each with a random word of its
own; the verdict repeats those. So what an earlier start left in the store (torchrun's agent keeps one store
for all restarts, pytorch issue 135712) is never taken for an answer or a verdict.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Described", "Exchange", "difference", "in_words"]

_GATHER_SECONDS = 2.0  # once a difference is known: to name all ranks that have it, and for them to read it
_POLL_SECONDS = (0.002, 0.5)  # between two looks into the store: the first, and the longest

Described = Mapping[str, Any]


def in_words(ranks: Sequence[int]) -> str:
    """``rank 3``, or ``ranks 0-2, 5``."""
    runs: list[list[int]] = []
    for number in sorted(ranks):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(texts)}"


def difference(known: Mapping[int, Described]) -> str:
    """In words, what differs between the descriptions by rank; "" where nothing does."""
    parts = []
    for name in dict.fromkeys(name for described in known.values() for name in described):
        by_value: dict[Any, list[int]] = {}
        for rank, described in known.items():
            by_value.setdefault(described.get(name), []).append(rank)
        if len(by_value) > 1:
            values = (f"{value} on {in_words(ranks)}" for value, ranks in by_value.items())
            parts.append(f"{name} is {' and '.join(values)}")
    return "; ".join(parts)


@dataclass
class Exchange:
    """One comparison. It runs in a thread of its own: a store whose host is cut off may not answer at all.

    Only ``check``, and ``get`` of keys that exist, are used: waiting in the store would keep its connection
    from everybody else in this process.
    """

    store: Any
    members: list[int]  # global ranks
    own: int  # this process's place among them
    key: str
    description: Described
    proposal: Any = None  # what the first member proposes, all get; JSON-able
    agreed: Any = None  # the first member's proposal, once there is a verdict
    missing: list[int] = field(default_factory=list)  # global ranks that have not come yet
    verdict: str | None = None  # "": equal
    failure: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)  # by the loader, or with it
    word: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def missing_in_words(self) -> str:
        """The ranks that have not come yet."""
        return in_words(self.missing)

    def run(self) -> None:
        """The whole exchange; ``done`` is set at its end."""
        try:
            self._call() if self.own == 0 else self._answer()
        except Exception as error:
            self.failure = error
        self.done.set()

    def _pauses(self) -> Iterator[None]:
        """Pauses that grow."""
        seconds, longest = _POLL_SECONDS
        while not self.given_up.wait(seconds):
            yield None
            seconds = min(longest, seconds * 1.5)

    def _read(self, *path: object) -> str | None:
        """The value of a key, if it is there."""
        key = "/".join(map(str, (self.key, *path)))
        return self.store.get(key).decode() if self.store.check([key]) else None

    def _write(self, value: str, *path: object) -> None:
        self.store.set("/".join(map(str, (self.key, *path))), value)

    def _call(self) -> None:
        """The first member: collect descriptions, and give the verdict."""
        self._write(self.word, "call")
        known = {self.members[0]: self.description}
        words: dict[int, str] = {}
        until = float("inf")
        for _ in self._pauses():
            for index, rank in enumerate(self.members[1:], 1):
                answer = self._read(self.word, index) if rank not in known else None
                if answer is not None:
                    words[rank], known[rank] = json.loads(answer)
            self.missing = [rank for rank in self.members if rank not in known]
            text = difference(known)
            if text:
                until = min(until, time.monotonic() + _GATHER_SECONDS)
            if not self.missing or time.monotonic() > until:
                self._write(json.dumps([text, list(words.values()), self.proposal]), self.word, "verdict")
                self._let_read([self.members.index(rank) for rank in words])
                self.agreed, self.verdict = self.proposal, text
                return

    def _let_read(self, readers: list[int]) -> None:
        """Wait until the others know: this process may host the store, and fail or end before they have read.

        They all begin at the same time anyway.
        """
        until = time.monotonic() + _GATHER_SECONDS
        while time.monotonic() < until and readers:
            readers = [index for index in readers if self._read(self.word, "read", index) is None]
            time.sleep(_POLL_SECONDS[0])

    def _answer(self) -> None:
        """All others: answer whoever calls, until a verdict is about this answer."""
        answered = ""
        for turn, _ in enumerate(self._pauses()):
            call = self._read("call")
            if call is None:
                self.missing = self.members[:1]
                continue
            if call != answered:
                self._write(json.dumps([self.word, self.description]), call, self.own)
                answered = call
            text, words, proposal = json.loads(self._read(call, "verdict") or '["", [], null]')
            if self.word in words:
                self._write("", call, "read", self.own)
                self.agreed, self.verdict = proposal, text
                return
            if turn % 8 == 7:
                self.missing = self._silent(call) or self.members[:1]

    def _silent(self, call: str) -> list[int]:
        """Who has not answered."""
        return [
            rank
            for index, rank in enumerate(self.members)
            if index not in (0, self.own) and self._read(call, index) is None
        ]
