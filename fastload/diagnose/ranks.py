"""The clocks of ranks that train together: which rank is slow, and why."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fastload.diagnose.facts import Sentence, Verdict
from fastload.errors import WorldError
from fastload.machine.threads import start_beside
from fastload.ranks.handshake import in_words, membership
from fastload.ranks.world import World

if TYPE_CHECKING:
    from fastload.loader.view import LoaderView


# ---- The slow rank, and why it is slow --------------------------------------------------------------

_FEW = 0.05  # share of the time for which the loop may wait for a loader that keeps up
_APART = 1.5  # a slow rank waits at least this many times as long as the others' median
_DIFFERS = 1.25  # the smallest ratio that is worth mentioning as a reason


@dataclass(frozen=True)
class RankClocks:
    """The clocks of one rank's loader over some time.

    Args:
        rank, host: where it runs.
        at: when this was written, in seconds since 1970.
        seconds: of the loop; for ``wait`` of them it waited for data.
        batches, samples: delivered to the loop.
        decoded: samples that the threads decoded.
        read, decode, transform: seconds of each stage, summed over threads.
        threads: that decode at once.
        encoded_bytes: of the decoded samples.
        late: records that were not read ahead in time.
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
        """Share of the loop's time spent waiting for data."""
        return self.wait / self.seconds if self.seconds > 0 else 0.0

    @property
    def batch_wait(self) -> float:
        """Seconds of waiting per batch."""
        return self.wait / self.batches if self.batches else 0.0

    @property
    def batch_seconds(self) -> float:
        """Seconds per batch, with its step."""
        return self.seconds / self.batches if self.batches else 0.0


class Waiting(Protocol):
    """What is known of a rank's waiting; see :class:`RankClocks`."""

    @property
    def batches(self) -> int: ...

    @property
    def wait_share(self) -> float: ...

    @property
    def batch_wait(self) -> float: ...

    @property
    def batch_seconds(self) -> float: ...


def slow_ranks(clocks: Mapping[int, Waiting]) -> list[int]:
    """Return the ranks that keep the others waiting, the slowest first; none if all wait alike.

    Ranks that train together take each step together. While one waits for data, the others wait for it in the
    collective at the end of their step. So the slow rank waits the longest; its steps are not the longest.
    """
    slow = []
    for rank, own in clocks.items():
        others = [other.batch_wait for other in clocks.values() if other is not own and other.batches]
        usual = statistics.median(others) if others else own.batch_wait
        matters = own.batch_wait - usual > _FEW / 2 * own.batch_seconds
        if own.batches and own.wait_share > _FEW and own.batch_wait > _APART * usual and matters:
            slow.append(rank)
    return sorted(slow, key=lambda rank: -clocks[rank].batch_wait)


def why_words(clocks: Mapping[int, RankClocks]) -> str:
    """Say which ranks are slow, and what is different there."""
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
    wait = statistics.median(own.batch_wait for own in named)
    part = _percent(statistics.median(own.wait_share for own in named))
    usual = statistics.median(own.batch_wait for own in others)
    usual_part = _percent(statistics.median(own.wait_share for own in others))
    are_slow = "is slow: it waits" if len(slow) == 1 else "are slow: they wait"
    sentences = [
        f"{in_words(slow).capitalize()} ({', '.join(hosts)}) {are_slow} {_ms(wait)} per batch ({part} of the "
        f"time); the others wait {_ms(usual)} ({usual_part})."
    ]
    if len(hosts) == 1 and {own.host for own in others}.isdisjoint(hosts) and len(slow) > 1:
        sentences.append(f"They are all the ranks of {hosts[0]}.")
    reasons = _reasons(named, others)
    if reasons:
        sentences.append(f"Why: {'; '.join(reasons)}.")
    else:
        sentences.append(
            "Its clocks show no reason: a sample takes its threads no longer than elsewhere, and it has as "
            "many threads. Look at its Python functions (collate_fn), and at what else runs there."
        )
    return sentences


def _reasons(slow: Sequence[RankClocks], others: Sequence[RankClocks]) -> list[str]:
    """Say what is worse on the slow ranks than on the others, by medians; the greatest ratio first."""

    def medians(value: Callable[[RankClocks], float]) -> tuple[float, float]:
        return statistics.median(map(value, slow)), statistics.median(map(value, others))

    reasons: list[tuple[float, str]] = []
    here, elsewhere = medians(lambda own: own.threads)
    if elsewhere > here * _DIFFERS:
        text = f"it has {here:g} thread{'s' * (here != 1)}, the others {elsewhere:g}"
        reasons.append((elsewhere / max(here, 1), text))
    larger, usual = medians(lambda own: own.encoded_bytes / max(own.decoded, 1))
    bigger = larger > usual * _DIFFERS
    if bigger:
        text = f"its samples average {larger / 1e3:.0f} KB, those of the others {usual / 1e3:.0f} KB"
        reasons.append((larger / max(usual, 1e-9), text))
    total = sum(medians(stage)[0] for stage in _STAGES.values())
    for name, value in _STAGES.items():
        here, elsewhere = medians(value)
        # A stage that hardly takes time is no reason, whatever its ratio.
        if here > elsewhere * _DIFFERS and here - elsewhere > 0.05 * total:
            times = f"{_ms(here)} of thread time there and {_ms(elsewhere)} on the others"
            text = f"{name} a sample takes {times}"
            if not bigger and name != "reading":
                text += ", for samples of the same size: its CPUs are slower, or shared"
            reasons.append((here / max(elsewhere, 1e-9), text))
    here, elsewhere = medians(lambda own: own.hits / max(own.hits + own.misses, 1))
    if elsewhere - here > 0.1:
        shares = f"{_percent(here)} of its records come from the node cache, {_percent(elsewhere)}"
        reasons.append((1 + elsewhere - here, f"{shares} on the others"))
    here, elsewhere = medians(lambda own: own.late / max(own.decoded, 1))
    if here - elsewhere > 0.05:
        shares = f"{_percent(here)} of its records come late from storage, {_percent(elsewhere)}"
        reasons.append((1 + here - elsewhere, f"{shares} on the others"))
    return [text for _, text in sorted(reasons, key=lambda reason: -reason[0])]


_STAGES: dict[str, Callable[[RankClocks], float]] = {
    "reading": lambda own: own.read / max(own.decoded, 1),
    "decoding": lambda own: own.decode / max(own.decoded, 1),
    "transforming": lambda own: own.transform / max(own.decoded, 1),
}


def _percent(value: float) -> str:
    return f"{100 * value:.{1 if 0 < value < 0.1 else 0}f}%"


def _ms(value: float) -> str:
    return f"{1e3 * value:.{0 if value >= 0.1 else 1 if value >= 0.001 else 3}f} ms"


# ---- Exchange of clocks between ranks ---------------------------------------------------------------

_PATIENCE = 5.0  # seconds to wait for a store or a file system
_OLD = 600.0  # seconds after which a rank's clocks are out of date


@dataclass(frozen=True)
class Gathered:
    """The clocks of all ranks, as far as they are known.

    Args:
        clocks: of this rank, and of each other one that has written them.
        missing: ranks that have written nothing in the last ten minutes.
        silent: the store or the folder did not answer, so only this rank's clocks are known.
    """

    clocks: Mapping[int, RankClocks]
    missing: tuple[int, ...]
    silent: bool = False

    @property
    def slow(self) -> list[int]:
        """The ranks that keep the others waiting, the slowest first."""
        return slow_ranks(self.clocks)

    def __str__(self) -> str:
        """Say which rank is slow, and why."""
        words = [why_words(self.clocks)]
        if self.silent:
            words.append("The other ranks could not be asked: their store did not answer.")
        elif self.missing:
            words.append(f"Nothing is known of {in_words(self.missing)} so far.")
        return " ".join(words)


def gathered_stats(
    loader: Any,
    *,
    since: Mapping[str, Any] | None = None,
    name: str = "",
    folder: str | os.PathLike[str] | None = None,
) -> Gathered:
    """Write this rank's clocks, and read what the other ranks wrote last.

    No rank waits for another, and no collective is issued, so any rank may call it at any time and in any
    thread. Every rank has to call it now and then, for example every few hundred steps.

    Args:
        since: an earlier ``loader.stats()`` from which the clocks count; None: from the first batch.
        name: distinguishes loaders made at the same place of a program ("train", "val").
        folder: a folder that all ranks see, for the clocks; None: the key-value store with which the process
            group was formed.

    Raises:
        TypeError: ``loader`` is not a fastload.DataLoader.
        WorldError: there are other ranks, but neither a process group nor a folder.
    """
    view = _viewed(loader)
    world, group = _processes(view)
    own = clocks_between(since, view.stats(), world.rank)
    if folder is not None:
        place = Path(folder)
        known = _in_time(lambda given_up: _by_files(own, place, world.size, name, given_up))
    elif world.size == 1:
        known = {own.rank: own}
    else:
        member = membership(world, group)
        if member is None:
            raise WorldError(
                f"gathered_stats: rank {world.rank} of {world.size} has no process group through which to "
                "ask the others. Pass folder=, a folder that all ranks see."
            )
        store, members, _ = member
        key = f"fastload/{','.join(map(str, members))}/{view.site}/clocks/{name}"
        known = _in_time(lambda given_up: _by_store(own, store, key, world.size, given_up))
    clocks = {own.rank: own} if known is None else known
    fresh = {rank: each for rank, each in sorted(clocks.items()) if own.at - each.at < _OLD}
    missing = tuple(rank for rank in range(world.size) if rank not in fresh)
    return Gathered(fresh, missing, silent=known is None)


def _processes(loader: LoaderView) -> tuple[World, Any]:
    """Return the ranks that have clocks, and their group: all processes, even those with the same batches."""
    world, _ = loader.place_of_rank()
    if not loader.is_divided or world.has_peers:
        return loader.processes, None
    return world, loader.options.ranks.group


def clocks_between(before: Mapping[str, Any] | None, after: Mapping[str, Any], rank: int) -> RankClocks:
    """Return a rank's clocks between two ``loader.stats()``; from the first batch if ``before`` is None."""

    def grown(*path: str) -> float:
        return _at(after, path) - (_at(before, path) if before is not None else 0.0)

    first = 0.0
    if before is None and after["first_batch_seconds"] is not None:
        first = float(after["first_batch_seconds"])
    spent = _loop_seconds(after) - (_loop_seconds(before) if before is not None else first)
    return RankClocks(
        rank=rank,
        host=socket.gethostname(),
        at=time.time(),
        seconds=max(0.0, spent),
        wait=max(0.0, grown("data_wait", "seconds") - first),
        batches=max(0, int(grown("data_wait", "count")) - (before is None)),
        samples=int(grown("samples")),
        decoded=int(grown("stages", "decode", "count")),
        read=grown("stages", "shard", "seconds"),
        decode=grown("stages", "decode", "seconds"),
        transform=grown("stages", "transform", "seconds"),
        threads=int(after["threads"]),
        encoded_bytes=grown("bytes"),
        late=int(grown("read_ahead", "late")),
        hits=int(grown("cache", "hits")),
        misses=int(grown("cache", "misses")),
    )


def _loop_seconds(stats: Mapping[str, Any]) -> float:
    """Return the consumer's total time."""
    rate = stats["images_per_second"]
    return float(stats["samples"] / rate) if rate > 0 else 0.0


def _at(stats: Mapping[str, Any], path: tuple[str, ...]) -> float:
    value: Any = stats
    for name in path:
        value = value.get(name, 0) if isinstance(value, Mapping) else 0
    return float(value)


def _in_time(work: Callable[[threading.Event], dict[int, RankClocks]]) -> dict[int, RankClocks] | None:
    """Return ``work``'s result; None if it fails, or takes too long (a host may be cut off)."""
    results: list[dict[int, RankClocks]] = []
    given_up = threading.Event()

    def run() -> None:
        # torch's stores raise RuntimeErrors; clocks of another fastload version may not be readable
        with contextlib.suppress(OSError, RuntimeError, ValueError, TypeError):
            results.append(work(given_up))

    start_beside(run, "fastload-gather", given_up.set).join(_PATIENCE)
    result = results[0] if results else None  # taken before given_up, after which results are incomplete
    given_up.set()
    return result


def _by_store(
    own: RankClocks, store: Any, key: str, size: int, given_up: threading.Event
) -> dict[int, RankClocks]:
    store.set(f"{key}/{own.rank}", json.dumps(asdict(own)))
    clocks = {own.rank: own}
    for rank in range(size):
        if given_up.is_set():
            break
        # get() would wait for a missing key.
        if rank != own.rank and store.check([f"{key}/{rank}"]):
            clocks[rank] = RankClocks(**json.loads(store.get(f"{key}/{rank}")))
    return clocks


def _by_files(
    own: RankClocks, folder: Path, size: int, name: str, given_up: threading.Event
) -> dict[int, RankClocks]:
    folder.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
    with os.fdopen(handle, "w") as written:
        json.dump(asdict(own), written)
    os.replace(part, folder / f"clocks{name and '-' + name}-{own.rank}.json")
    clocks = {own.rank: own}
    for rank in range(size):
        if given_up.is_set():
            break
        path = folder / f"clocks{name and '-' + name}-{rank}.json"
        if rank != own.rank and path.is_file():
            clocks[rank] = RankClocks(**json.loads(path.read_text()))
    return clocks


# ---- The verdict with several ranks -----------------------------------------------------------------

_NAME = "doctor"


def rank_of(loader: Any) -> int:
    """Return the rank of a fastload.DataLoader."""
    return _viewed(loader).place_of_rank()[0].rank


def _viewed(loader: Any) -> LoaderView:
    from fastload.loader.view import viewed  # imports torch, of which clocks have no need

    return viewed(loader, "gathered_stats")


def gathered_of(loader: Any) -> Gathered | None:
    """Exchange clocks with the other ranks; return None if there are none, or they cannot be asked."""
    from fastload.loader.view import view_of  # imports torch, of which clocks have no need

    view = view_of(loader)
    if view is None or view.place_of_rank()[0].size < 2:
        return None
    try:
        return gathered_stats(view, name=_NAME)
    except WorldError:  # ranks without a process group
        return None


def later(first: Gathered, found: Gathered | None, rank: int) -> Gathered:
    """Return what others have written since ``first``, with ``rank``'s own clocks as they were then.

    Args:
        found: gathered later; None: the others could no longer be asked.
    """
    if found is None or rank not in first.clocks:
        return first
    return replace(found, clocks={**first.clocks, **found.clocks, rank: first.clocks[rank]})


def with_ranks(verdict: Verdict, gathered: Gathered, rank: int) -> Verdict:
    """Return the verdict of rank ``rank``; if ranks are slow, it first says which ones and why.

    On a rank that is not slow, no fix would help, so there are none; its numbers stay: they are those of a
    loop that waits for others in its step.
    """
    slow = gathered.slow
    if not slow:
        return verdict
    evidence = "Each rank's own clocks since its first batch: " + "; ".join(
        f"rank {own.rank} waits {1e3 * own.batch_wait:.1f} ms per batch" for own in gathered.clocks.values()
    )
    which = Sentence(str(gathered), f"{evidence}.")
    if rank in slow:
        here = Sentence(f"This is rank {rank}, so what follows is about a slow one.")
        return replace(verdict, limit="ranks", sentences=(which, here, *verdict.sentences))
    words = f"Ask the doctor on {in_words(slow)}: this is rank {rank}, whose step waits for them."
    numbers = f"Here the loop reached {verdict.rate:.0f} images/s"
    numbers += f", and the loader could deliver {verdict.loader_rate:.0f}." if verdict.loader_rate else "."
    return replace(verdict, limit="ranks", sentences=(which, Sentence(words, numbers)), fixes=())
