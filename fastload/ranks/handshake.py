"""The ranks' comparison of their loaders before the first batch: a difference is an error on every rank."""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastload.errors import WorldError
from fastload.machine.messages import stacklevel
from fastload.machine.threads import start_beside
from fastload.ranks.mesh import is_mesh
from fastload.ranks.world import World

# ---- The handshake ----------------------------------------------------------------------------------

WAIT_SECONDS = 60.0  # for the other ranks; less if the process group's own timeout is less
_LOOK_SECONDS = 0.1  # how often a waiting rank checks whether another one has no seed
_LONGEST_KEY = 160  # characters; longer ones are hashed

_ALONE = "Where one rank alone makes it, pass ranks=fastload.Ranks(0, 1): it gets all samples then."

Membership = tuple[Any, list[int], int]  # a store, global ranks, and this process's index among them

# Handshakes of this process by the place where the loader was made, for each store: after a change of the
# world there may be a new one, and a rank that was started then has met nobody before.
_met: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()


class Handshake:
    """One loader's comparison with those of the other ranks.

    Loaders are matched by the file and function that make them and, within these, by the order of their first
    batches. Ranks without a process group, or with a rank and world size that are not the group's, compare
    nothing.

    Args:
        world: this loader's rank and world size.
        group: the process group that these belong to; None: the default one.
        policy: what to do if some ranks have not reached their first batch after 60 seconds (or the process
            group's timeout, if shorter): "warn", and compare later; "raise"; or "off": no handshake.
        description: returns what to compare in an epoch.
        site: where the loader is made; see :func:`site_of_loader`.
    """

    def __init__(
        self,
        world: World,
        group: Any,
        policy: str,
        description: Callable[[int], dict[str, Any]],
        site: str,
    ) -> None:
        self._world = world
        self._group = group
        self._policy = policy
        self._description = description
        self._site = site
        self._exchange: Exchange | None = None
        self._seeds: Exchange | None = None  # about which ranks were given a seed
        self._settled = policy == "off" or (world.size == 1 and not world.has_peers)
        self._refused = ""  # why this loader gives no batches

    def meet(self, epoch: int, position: int) -> None:
        """Wait for the other ranks before the first batch; do nothing once the loaders are known to be equal.

        Args:
            epoch, position: where this rank begins.

        Raises:
            WorldError: the loaders differ, or ranks are missing and the policy is "raise".
        """
        if self._settled:
            return
        if self._refused:
            raise WorldError(self._refused)
        if self._exchange is None:
            self._exchange = self._begin(epoch, position)
            if self._exchange is None:
                self._settled = True
                return
            self._wait(self._exchange)
        if self._exchange.done.is_set():
            self._settle(self._exchange)

    @property
    def is_alone(self) -> bool:
        """Whether this process is the only one that the loader is for."""
        return self._world.size == 1 and not self._world.has_peers and self._group is None

    def agree(self, given: int | None, drawn: Callable[[], int]) -> int | None:
        """Return the first rank's seed, on all ranks; None if there is nobody to ask, or the policy is "off".

        All ranks of the default group agree, even if only some of them share the data: ranks of other
        dimensions of a mesh get the same batches.

        Args:
            given: the seed given to this loader or by a state, if any; then all ranks have the same.
            drawn: draws one; called on all ranks, so that their generators advance alike.

        Raises:
            WorldError: only some ranks were given a seed, ranks are missing after 60 s, or the process
                group's store fails.
        """
        proposal = drawn() if given is None else given
        if self.is_alone:
            return proposal
        if self._policy == "off":
            return given
        described = {"seed=": "not given" if given is None else "given"}
        everybody = membership(self._world, self._group, whole=True)
        exchange = self._seeds = self._exchanging("seed", described, proposal, everybody)
        if exchange is None or given is not None:
            return given  # the handshake that follows compares them
        exchange.done.wait(_limit(exchange))
        if exchange.verdict or exchange.failure is not None:
            self._settle(exchange)
        if exchange.verdict is not None:
            return int(exchange.agreed)
        exchange.given_up.set()
        who = exchange.missing_in_words if exchange.missing else "the process group's store"
        raise WorldError(
            f"The ranks could not agree on a seed for the loader made in {self._site}: {who} did not answer "
            f"within {_limit(exchange):g} s. Where only some ranks make this loader, pass seed=, the same on "
            f"all of them, and ranks=, their group. {_ALONE}"
        )

    def _begin(self, epoch: int, position: int) -> Exchange | None:
        described = {**self._description(epoch), "epoch": epoch, "position": position}
        return self._exchanging("", described, None, membership(self._world, self._group))

    def _exchanging(
        self, subject: str, description: dict[str, Any], proposal: Any, found: Membership | None
    ) -> Exchange | None:
        """Begin an exchange; None if there is nobody to exchange with."""
        if found is None:
            return None
        store, members, own = found
        site = f"fastload/{','.join(map(str, members))}/{self._site}{subject and '/' + subject}"
        if len(site) > _LONGEST_KEY:
            site = f"fastload/{hashlib.sha256(site.encode()).hexdigest()}"
        met = _met.setdefault(store, Counter())
        key = f"{site}/{met[site]}"
        met[site] += 1

        exchange = Exchange(store, members, own, key, description, proposal)
        weakref.finalize(self, exchange.given_up.set)
        start_beside(exchange.run, "fastload-handshake", exchange.given_up.set)
        return exchange

    def _wait(self, exchange: Exchange) -> None:
        limit = _limit(exchange)
        until = time.monotonic() + limit
        while time.monotonic() < until:
            if exchange.done.wait(_LOOK_SECONDS):
                return
            if self._seeds is not None and self._seeds.verdict:
                self._settle(self._seeds)
        if exchange.missing:
            text = f"{exchange.missing_in_words} did not come to the first batch of the loader"
        else:
            text = "the process group's store did not answer at the first batch of the loader"
        text = f"After {limit:g} s {text} made in {self._site}. "
        if self._policy == "raise":
            exchange.given_up.set()
            self._refused = f"{text}Look for what stopped them in their own output."
            raise WorldError(self._refused)
        warnings.warn(
            f"{text}Going on without them, with this rank's share of the samples, one of {self._world.size}. "
            f"Where only some ranks make this loader, pass ranks=, their group. {_ALONE}",
            stacklevel=stacklevel(),
        )

    def _settle(self, exchange: Exchange) -> None:
        if exchange.failure is not None:
            self._refused = (
                f"The ranks' loaders made in {self._site} could not be compared: the process group's store "
                f"failed ({exchange.failure}). A rank, or its host, is probably gone."
            )
        elif exchange.verdict:
            self._refused = (
                f"The ranks' loaders made in {self._site} differ: {exchange.verdict}. Give all ranks the "
                "same data, options and fastload, and let them resume from the same state."
            )
        self._settled = not self._refused
        if self._refused:
            raise WorldError(self._refused) from exchange.failure


def _limit(exchange: Exchange) -> float:
    """Return the seconds to wait for the other ranks."""
    return min(WAIT_SECONDS, float(exchange.store.timeout.total_seconds()))


def membership(world: World, group: Any, whole: bool = False) -> Membership | None:
    """Return the store, the global ranks that compare, and this process's place among them, or None.

    Args:
        world: the loader's.
        group: the group that the loader was given, or None.
        whole: take all ranks of the default group, even if only some of them share the data.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    given = None if group is None or is_mesh(group) else group
    members = list(distributed.get_process_group_ranks(given or distributed.group.WORLD))
    own = distributed.get_rank()
    if not world.has_peers and (len(members) != world.size or members[world.rank] != own):
        return None  # a world of the user's own
    if distributed.get_backend(given) == "fake":
        return None
    if whole:
        members = list(distributed.get_process_group_ranks(distributed.group.WORLD))
    find_store = getattr(distributed.distributed_c10d, "_get_default_store", None)
    store = find_store() if find_store is not None else None
    return (store, members, members.index(own)) if hasattr(store, "check") else None


def site_of_loader() -> str:
    """Return the file and function that make the loader, which are the same on all ranks of one script.

    Call it from within the constructor.
    """
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fastload."):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}, {code.co_name}"


# ---- The exchange -----------------------------------------------------------------------------------
# It compares a description of each rank through the key-value store that formed the process group.
#
# The first member *calls* with a random word; each other one answers under that word, with its own random
# word; the verdict repeats these. So what an earlier start left in the store (torchrun's agent keeps one
# store for all restarts, pytorch issue 135712) is never mistaken for an answer or a verdict.

_GATHER_SECONDS = (
    2.0  # once a difference is known: to collect the ranks that have it, and to let them read it
)
_POLL_SECONDS = (0.002, 0.5)  # the first and the longest pause between two looks into the store

Described = Mapping[str, Any]


def in_words(ranks: Sequence[int]) -> str:
    """Return ``rank 3``, or ``ranks 0-2, 5``."""
    runs: list[list[int]] = []
    for number in sorted(ranks):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(texts)}"


def difference(known: Mapping[int, Described]) -> str:
    """Say what differs between the ranks' descriptions; "" if nothing does."""
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
    """One comparison, in its own thread: a store whose host is cut off may not answer at all.

    It uses only ``check``, and ``get`` of keys that exist: waiting in the store would block its connection
    for everybody else in this process.
    """

    store: Any
    members: list[int]  # global ranks
    own: int  # this process's place among them
    key: str
    description: Described
    proposal: Any = None  # the first member's is handed to all; JSON-able
    agreed: Any = None  # the first member's proposal, once there is a verdict
    missing: list[int] = field(default_factory=list)  # global ranks that have not come yet
    verdict: str | None = None  # "": equal
    failure: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)  # set when the loader gives up
    word: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def missing_in_words(self) -> str:
        """The ranks that have not come yet."""
        return in_words(self.missing)

    def run(self) -> None:
        """Run the exchange, and set ``done`` at its end."""
        try:
            self._call() if self.own == 0 else self._answer()
        except Exception as error:
            self.failure = error
        self.done.set()

    def _pauses(self) -> Iterator[None]:
        """Pause between yields, longer each time, until the exchange is given up."""
        seconds, longest = _POLL_SECONDS
        while not self.given_up.wait(seconds):
            yield None
            seconds = min(longest, seconds * 1.5)

    def _read(self, *path: object) -> str | None:
        """Return the value of a key, if it exists."""
        key = "/".join(map(str, (self.key, *path)))
        return self.store.get(key).decode() if self.store.check([key]) else None

    def _write(self, value: str, *path: object) -> None:
        self.store.set("/".join(map(str, (self.key, *path))), value)

    def _call(self) -> None:
        """Collect the descriptions, and give the verdict, as the first member."""
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
        """Wait until the others have read the verdict: this process may host the store, and fail or end.

        This costs no time: the ranks begin together anyway.
        """
        until = time.monotonic() + _GATHER_SECONDS
        while time.monotonic() < until and readers:
            readers = [index for index in readers if self._read(self.word, "read", index) is None]
            time.sleep(_POLL_SECONDS[0])

    def _answer(self) -> None:
        """Answer whoever calls, as any other member, until a verdict is about this answer."""
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
        """Return the ranks that have not answered."""
        return [
            rank
            for index, rank in enumerate(self.members)
            if index not in (0, self.own) and self._read(call, index) is None
        ]
