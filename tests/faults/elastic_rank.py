"""One rank of an elastic soak: takes its place in one world after another, as its coordinator says.

Commands come as lines of JSON on standard input, answers go to standard output. A batch is noted in the
rank's log before its step, an all-reduce, begins: a step that ends has been noted by all of its ranks.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import zlib
from typing import Any

import torch
import torch.distributed as dist

import fastload
from fastload import DataLoader, Ranks
from fastload import transforms as T

BATCH = 4
PATIENCE = datetime.timedelta(seconds=20)


def loader_of(job: dict[str, Any], ranks: Ranks, state: dict[str, Any] | None) -> DataLoader:
    """The loader of a job: a mix of sets by URL."""
    made = fastload.mix(job["sets"], **mix_options(job), storage_options=job["storage"])
    loader = DataLoader(
        made,
        BATCH,
        shuffle=True,
        seed=11,
        num_workers=1,
        transform=T.Resize((8, 8)),
        padding="mark",
        cache="off",
        ranks=ranks,
    )
    if state is not None:
        loader.load_state_dict(state)
    return loader


def mix_options(job: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``mix``, of which schedules come as lists of pairs."""
    options = dict(job["options"])
    if isinstance(options.get("weights"), dict):
        at = {int(count): weights for count, weights in options["weights"]["at"]}
        options["weights"] = fastload.Schedule(at=at, ramp=options["weights"]["ramp"])
    return options


class Rank:
    """A loader that outlives its worlds, unless the job is another one."""

    def __init__(self, port: int, log: str) -> None:
        self._store = dist.TCPStore("127.0.0.1", port, timeout=PATIENCE)
        self._log = open(log, "a", encoding="utf-8")  # noqa: SIM115 - until the process ends
        self._job: dict[str, Any] | None = None
        self._loader: DataLoader | None = None
        self._iterator: Any = None
        self._changes = 0.0

    def take_place(self, given: dict[str, Any]) -> None:
        """Join the world ``given``, by a reshard where the loader is the job's."""
        rank, size = given["rank"], given["size"]
        if self._loader is None or self._job != given["job"]:
            if self._loader is not None:
                self._loader.close()
            self._job, self._loader = None, None
            self._loader = loader_of(given["job"], Ranks(rank, size, handshake="raise"), given["state"])
            self._job, self._iterator = given["job"], iter(self._loader)
            return
        mine = self._loader.state_dict()
        state = None if mine == given["state"] else given["state"]
        self._loader.reshard(rank, size, state=state)

    def run(self, given: dict[str, Any]) -> dict[str, Any]:
        """Some steps in a world; how far they came."""
        done, failure, state = 0, "", given["state"]
        stats: dict[str, Any] = {}
        try:
            store = dist.PrefixStore(f"world{given['world']}", self._store)
            place = {"rank": given["rank"], "world_size": given["size"]}
            dist.init_process_group("gloo", store=store, timeout=PATIENCE, **place)
            self.take_place(given)
            for _ in range(given["steps"]):
                self._step(given)
                assert self._loader is not None
                state, stats, done = self._loader.state_dict(), self._loader.stats(), done + 1
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        if dist.is_initialized():
            dist.destroy_process_group()
        told = {name: stats.get(name) for name in ("world", "mixture", "samples")}
        return {"done": done, "failure": failure[:2000], "state": state, "stats": told}

    def _step(self, given: dict[str, Any]) -> None:
        assert self._loader is not None
        state = self._loader.state_dict()
        batch = next(self._iterator, None)
        if batch is None:
            self._iterator = iter(self._loader)
            state, batch = self._loader.state_dict(), next(self._iterator)
        images, labels = batch
        seen = [
            [label, zlib.crc32(image.contiguous().numpy().tobytes())]
            for image, label in zip(images, labels.tolist(), strict=True)
            if label >= 0
        ]
        if os.environ.get("FASTLOAD_ELASTIC_DEFECT") == "lost":  # so that tests see the instrument find it
            seen = seen[1:]
        place = [given["world"], given["rank"], state["epoch"], state["position"]]
        self._log.write(json.dumps([*place, seen]) + "\n")
        self._log.flush()
        count = torch.tensor(len(seen))
        dist.all_reduce(count)


def main() -> None:
    """Answer commands until there are none."""
    torch.set_num_threads(1)
    rank = Rank(int(sys.argv[1]), sys.argv[2])
    sys.stdout.write("{}\n")  # ready
    sys.stdout.flush()
    for line in sys.stdin:
        answer = rank.run(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
