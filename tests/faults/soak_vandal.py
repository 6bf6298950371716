"""Damage to sets and caches that only their victims use: said in words, or of no effect; then it is mended.

What is written over in place below a running process is not tried: a record's checksum is compared when the
process first reads it (docs/guide/reading.md). Files are cut or taken away below running victims, and written
over between two starts.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak_jobs import Start, new_ledger
from soak_ledger import BLANK, Line
from soak_sets import COUNT, FIELDS, Truth

from fastload import PackedDataset

INDEX, MANIFEST, ENTRIES = "index.fli", "dataset.json", "entries.fli"
WORDS = 40  # characters that an error in words has at least


class Vandal:
    """One victim after the other, of three starts: damaged while it runs, damaged before it, and mended.

    Args:
        sets: the sets that are copied.
        memory: where the victims have caches of their own, in memory.
        excused: whether an error is what any start had to expect, by its text and its beginning.
    """

    def __init__(
        self,
        sets: dict[str, Path],
        memory: Path,
        truth: Truth,
        folder: Path,
        seed: str,
        *,
        pace: float,
        excused: Callable[[str, float], bool],
    ) -> None:
        self.excused = excused
        self.sets, self.memory, self.truth, self.folder, self.pace = sets, memory, truth, folder, pace
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.bad: list[str] = []
        self.number = 0
        self.stopped = False
        self.start: Start | None = None
        self._next_victim()

    def _next_victim(self) -> None:
        self.number += 1
        self.counts["victims"] += 1
        self.name = self.chance.choice(list(self.sets))
        self.copy = self.folder / f"set{self.number}"
        shutil.copytree(self.sets[self.name], self.copy)
        self.cache = self.memory / f"victim{self.number}"
        self.cache.mkdir()
        kind = FIELDS if self.name == FIELDS else self.chance.choice(["crop", "fixed"])
        options: dict[str, Any] = {"num_workers": 1, "cache": self.chance.choice(["off", "off", "4MB"])}
        if options["cache"] != "off" and self.name in ("arrow", "lmdb", "hdf5"):
            form = self.chance.choice(["jpeg", "coefficients"])
            options["cache"] = {"size": options["cache"], "format": form}
        if self.chance.random() < 0.3:
            options["on_error"] = "skip"
        self.job = {"set": self.name, "data": str(self.copy), "kind": kind, "shuffle": True, "size": 12}
        self.job |= {"seed": self.chance.randrange(1 << 40), "epochs": 2, "group": False, "options": options}
        self.job["environment"] = {"FASTLOAD_CACHE_DIR": str(self.cache)}
        self.phases: list[Callable[[], None]] = [self._mended, self._before, self._running]
        self._next_phase()

    def _next_phase(self) -> None:
        self.certain = self.mended = False
        self.damage_at, self.damage = 0.0, ""
        self.phases.pop()()
        self.number_of_start = 3 - len(self.phases)
        self.place = self.folder / f"start{self.number}-{self.number_of_start}"
        self.start = Start(self.job, 1, None, self.place, self.truth, pace=self.pace)

    def _running(self) -> None:
        self.damage_at = time.monotonic() + self.chance.uniform(0.1, 1.5)

    def _before(self) -> None:
        works = [self._cut, self._take_away, self._overwrite_record, self._overwrite_index]
        works += [self._cut_manifest, self._overwrite_entries]
        if self.job["options"]["cache"] != "off":
            works = [*works, *[self._overwrite_cache] * len(works)]
        self._do(self.chance.choice(works))

    def _mended(self) -> None:
        for path in sorted(self.sets[self.name].rglob("*")):
            if path.is_file():
                target = self.copy / path.relative_to(self.sets[self.name])
                shutil.copy(path, f"{target}.new")
                os.replace(f"{target}.new", target)
        self.mended = True
        self.counts["mended"] += 1

    def poll(self, stopping: bool = False) -> None:
        assert self.start is not None
        now = time.monotonic()
        _, bad = self.start.poll()
        self._say(bad)
        if self.damage_at and now > self.damage_at and self.start.living:
            self.damage_at = 0.0
            works = [self._cut, self._take_away]
            if self.job["options"]["cache"] != "off":
                works += [self._cut_cache, self._cut_cache, self._take_cache_away]
            self._do(self.chance.choice(works))
        if self.start.living:
            return
        self._finish()
        if self.phases and not (stopping and self.mended):
            self._next_phase()
            return
        shutil.rmtree(self.copy)
        shutil.rmtree(self.cache)
        if stopping:
            self.stopped = True
        else:
            self._next_victim()

    def _finish(self) -> None:
        assert self.start is not None
        rank = self.start.ranks[0]
        error = rank.what("error")
        began = self.start.began
        self._say(
            self.start.wrong(
                lambda text: self.excused(text, began) or (not self.mended and self._in_words(text))
            )
        )
        self.counts["errors in words"] += error is not None
        self.counts["batches"] += len(rank.lines)
        skipped = sum(line["ids"].count(BLANK) for line in rank.lines)
        self.counts["skipped samples"] += skipped
        if self.certain and error is None and not skipped:
            self._say(["nothing was said of it"])
        if error is None and rank.status == 0:
            self.counts["unharmed"] += not (self.mended or skipped)
            self._count(rank.lines, skipped > 0)
        shutil.rmtree(self.place)

    def _count(self, lines: list[Line], skipped: bool) -> None:
        """Both epochs came whole; but for what may have been skipped, whose places are marked."""
        if not skipped:
            ledger = new_ledger(self.job)
            ledger.take([lines])
            self._say([*ledger.bad, *([] if ledger.epochs == 2 else [f"{ledger.epochs} epochs, not 2"])])
            return
        may = not self.mended and self.job["options"].get("on_error") == "skip"
        for epoch in range(2):
            seen = [one for line in lines if line["state"]["epoch"] == epoch for one in line["ids"]]
            real = [one for one in seen if one != BLANK]
            if not may or len(seen) != COUNT or len(real) != len(set(real)):
                self._say([f"epoch {epoch} of {len(seen)} samples skips {len(seen) - len(real)}"])

    def _in_words(self, error: str) -> bool:
        kind, _, words = error.partition(": ")
        return kind.startswith("fastload.errors.") and len(words) >= WORDS

    def _say(self, bad: list[str]) -> None:
        where = f"victim {self.number}, start {self.number_of_start}"
        self.bad += [f"{where}: {self.damage or 'mended'}, {text}, of {self.job}" for text in bad]

    def _do(self, work: Callable[[], str]) -> None:
        self.damage = work()
        self.counts[self.damage.partition(" ")[0].rstrip(",") if self.damage else "no damage possible"] += 1

    def _between(self) -> bool:
        """Whether it is before the second start, which meets the damage for certain if it reads all."""
        return len(self.phases) == 1

    # Each gives what it has done, or nothing where there was nothing to damage.

    def _shard(self) -> Path | None:
        kept = (INDEX, MANIFEST, ENTRIES)
        files = [path for path in sorted(self.copy.rglob("*")) if path.is_file() and path.name not in kept]
        shards = [path for path in files if not path.name.startswith(("field-", "lock"))]
        return self.chance.choice(shards) if shards else None

    def _cut(self) -> str:
        path = self._shard()
        if path is None:
            return ""
        size = self.chance.randrange(path.stat().st_size // 2 + 1)
        os.truncate(path, size)
        self.certain = self._between() and self.job["options"]["cache"] == "off"
        return f"cut {path.name} at {size}"

    def _take_away(self) -> str:
        path = self._shard()
        if path is None:
            return ""
        path.unlink()
        self.certain = self._between() and self.job["options"]["cache"] == "off"
        return f"removed {path.name}"

    def _overwrite(self, path: Path, begin: int, length: int) -> None:
        with path.open("r+b") as file:
            file.seek(begin)
            before = file.read(length)
            file.seek(begin)
            file.write(bytes(one ^ self.chance.randrange(1, 256) for one in before))

    def _overwrite_record(self) -> str:
        dataset, number = PackedDataset(self.sets[self.name]), self.chance.randrange(COUNT)
        shard = Path(dataset.reader.shard_path(number))
        if not shard.is_file():
            shard = next(shard.glob("data.mdb"))
        record = dataset.record(number)
        path = self.copy / shard.relative_to(self.sets[self.name])
        if not path.exists() or path.stat().st_size < int(record["offset"]) + int(record["length"]):
            return ""
        self._overwrite(path, int(record["offset"]) + int(record["length"]) // 2, 8)
        self.certain = self.job["options"]["cache"] == "off"
        return f"record-overwritten, {number}"

    def _overwrite_index(self) -> str:
        path = self.copy / INDEX
        begin = self.chance.randrange(path.stat().st_size)
        self._overwrite(path, begin, 4)
        return f"index-overwritten at {begin}"

    def _cut_manifest(self) -> str:
        path = self.copy / MANIFEST
        os.truncate(path, self.chance.randrange(path.stat().st_size))
        self.certain = True
        return "manifest-cut"

    def _overwrite_entries(self) -> str:
        path = self.copy / ENTRIES
        if not path.exists():
            return ""
        self._overwrite(path, self.chance.randrange(path.stat().st_size), 4)
        return "entries-overwritten"

    def _cache_file(self) -> Path | None:
        files = [path for path in sorted(self.cache.rglob("*.flc*")) if path.stat().st_size]
        return self.chance.choice(files) if files else None

    def _overwrite_cache(self) -> str:
        path = self._cache_file()
        if path is None:
            return ""
        for _ in range(20):
            self._overwrite(path, self.chance.randrange(path.stat().st_size), 4)
        return "cache-overwritten"

    def _cut_cache(self) -> str:
        path = self._cache_file()
        if path is None:
            return ""
        os.truncate(path, self.chance.randrange(path.stat().st_size))
        return "cache-cut"

    def _take_cache_away(self) -> str:
        path = self._cache_file()
        if path is None:
            return ""
        path.unlink()
        return "cache-removed"
