"""All ranks' clocks, side by side: each rank writes its own down, and reads what the others have written."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.diagnose.rank_words import RankClocks, slow_ranks, why_words
from fastload.errors import WorldError
from fastload.machine.threads import start_beside
from fastload.ranks.exchange import in_words
from fastload.ranks.handshake import membership
from fastload.ranks.world import World

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader

__all__ = ["Gathered", "gathered_stats"]

_PATIENCE = 5.0  # seconds for a store, or a file system, that does not answer
_OLD = 600.0  # seconds after which a rank's clocks say nothing about now


@dataclass(frozen=True)
class Gathered:
    """What is known of the ranks.

    Args:
        clocks: of each rank that has written them down, this one's own among them.
        missing: ranks of which nothing is known, or nothing of the last ten minutes.
        silent: the store, or the folder, did not answer: only this rank's own clocks are known.
    """

    clocks: Mapping[int, RankClocks]
    missing: tuple[int, ...]
    silent: bool = False

    @property
    def slow(self) -> list[int]:
        """Ranks that keep the others waiting; the slowest first."""
        return slow_ranks(self.clocks)

    def __str__(self) -> str:
        """Which rank is slow, and why."""
        words = [why_words(self.clocks)]
        if self.silent:
            words.append("The other ranks could not be asked: their store did not answer.")
        elif self.missing:
            words.append(f"Nothing is known of {in_words(self.missing)} so far.")
        return " ".join(words)


def gathered_stats(
    loader: DataLoader[Any],
    *,
    since: Mapping[str, Any] | None = None,
    name: str = "",
    folder: str | os.PathLike[str] | None = None,
) -> Gathered:
    """Write this rank's clocks down, and read those that the other ranks have written down.

    No rank waits for another and no collective is issued: it may be called on any rank at any time, in the
    training loop's thread or elsewhere. Each rank has to call it now and then (every few hundred steps, say);
    of the others one sees what they wrote last.

    Args:
        since: an earlier ``loader.stats()``; what happened since then. None: since the loader's first batch.
        name: tells apart loaders that are made at the same place of a program ("train", "val").
        folder: that all ranks see, to write the clocks into; None: the key-value store with which the process
            group was formed.

    Raises:
        WorldError: there are other ranks, but neither a process group nor a folder.
    """
    world, group = _processes(loader)
    own = clocks_between(since, loader.stats(), world.rank)
    if folder is not None:
        place = Path(folder)
        found = _in_time(lambda given_up: _by_files(own, place, world.size, name, given_up))
    elif world.size == 1:
        found = {own.rank: own}
    else:
        member = membership(world, group)
        if member is None:
            raise WorldError(
                f"gathered_stats: rank {world.rank} of {world.size} has no process group to ask the others "
                "by. Pass folder=, one that all ranks see."
            )
        store, members, _ = member
        key = f"fastload/{','.join(map(str, members))}/{loader._arranged.site}/clocks/{name}"
        found = _in_time(lambda given_up: _by_store(own, store, key, world.size, given_up))
    clocks = {own.rank: own} if found is None else found
    fresh = {rank: each for rank, each in sorted(clocks.items()) if own.at - each.at < _OLD}
    missing = tuple(rank for rank in range(world.size) if rank not in fresh)
    return Gathered(fresh, missing, silent=found is None)


def _processes(loader: DataLoader[Any]) -> tuple[World, Any]:
    """The ranks that have clocks, and their group: all processes, whichever of them have the same batches."""
    beginning, group = loader._arranged.beginning, loader._arranged.given["process_group"]
    if not beginning.is_divided or beginning.world.has_peers:
        return beginning.processes, None
    return beginning.world, group


def clocks_between(before: Mapping[str, Any] | None, after: Mapping[str, Any], rank: int) -> RankClocks:
    """A rank's clocks between two ``loader.stats()``; without the first one, since the first batch."""

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
    """The consumer's whole time."""
    rate = stats["images_per_second"]
    return float(stats["samples"] / rate) if rate > 0 else 0.0


def _at(stats: Mapping[str, Any], path: tuple[str, ...]) -> float:
    found: Any = stats
    for name in path:
        found = found.get(name, 0) if isinstance(found, Mapping) else 0
    return float(found)


def _in_time(work: Callable[[threading.Event], dict[int, RankClocks]]) -> dict[int, RankClocks] | None:
    """What ``work`` gives; None where that takes too long, as with a host that is cut off, or fails."""
    found: list[dict[int, RankClocks]] = []
    given_up = threading.Event()

    def run() -> None:
        # torch's stores raise RuntimeErrors; others' clocks of another version are not ours to read
        with contextlib.suppress(OSError, RuntimeError, ValueError, TypeError):
            found.append(work(given_up))

    start_beside(run, "fastload-gather", given_up.set).join(_PATIENCE)
    whole = found[0] if found else None  # before: who has been given up finds a part of it
    given_up.set()
    return whole


def _by_store(
    own: RankClocks, store: Any, key: str, size: int, given_up: threading.Event
) -> dict[int, RankClocks]:
    store.set(f"{key}/{own.rank}", json.dumps(asdict(own)))
    found = {own.rank: own}
    for rank in range(size):
        # get() of a key that is not there would wait for it.
        if given_up.is_set():
            break
        if rank != own.rank and store.check([f"{key}/{rank}"]):
            found[rank] = RankClocks(**json.loads(store.get(f"{key}/{rank}")))
    return found


def _by_files(
    own: RankClocks, folder: Path, size: int, name: str, given_up: threading.Event
) -> dict[int, RankClocks]:
    folder.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
    with os.fdopen(handle, "w") as written:
        json.dump(asdict(own), written)
    os.replace(part, folder / f"clocks{name and '-' + name}-{own.rank}.json")
    found = {own.rank: own}
    for rank in range(size):
        if given_up.is_set():
            break
        path = folder / f"clocks{name and '-' + name}-{rank}.json"
        if rank != own.rank and path.is_file():
            found[rank] = RankClocks(**json.loads(path.read_text()))
    return found
