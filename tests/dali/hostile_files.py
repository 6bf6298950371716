"""DALI and damaged JPEGs: whatever is wrong with a file, the process that trains lives.

    PYTHONPATH=. python tests/dali/hostile_files.py '{"device": "cuda", "seconds": 60}'

Child processes read sets of JPEGs with something changed (``tests/faults/mutations.py``), one set after the
other. A child that ends by a signal, or by an error that is none of fastload's, or that says nothing for
STILL seconds, is counted with the set that it read, and another one goes on behind it. An epoch may end with
an error of fastload's, which is counted by its name. ``way``:

    "loader"  ``DataLoader(backend="dali", on_error="skip")``: DALI has what the native decoder let through
    "bare"    DALI's own decoder of a window, given every file: what would happen without that

``device``: "cuda", "cpu" for DALI's CPU decoder, or "abort" for children that fall, to try the counting.
``children`` at once, each with sets of ``files``.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).resolve().parents[1] / name) for name in ("faults", "reference"))

from mutations import mutant
from pictures import encoded, picture
from plain_pack import plain_pack

STILL = 60.0  # seconds of silence that are a hang
SIDE = 64
DEFAULTS: dict[str, Any] = {
    "device": "cpu", "way": "loader", "seconds": 60.0, "children": 2, "files": 64, "seed": 1, "sets": 0,
}  # fmt: skip


def hostile(seed: int, number: int, files: int) -> list[bytes]:
    """Set ``number``: JPEGs of several kinds and sizes with something changed; every eighth is as it was."""
    rng = random.Random(f"{seed} {number}")
    found = []
    for one in range(files):
        width, height = rng.randrange(16, 260), rng.randrange(16, 260)
        options: dict[str, Any] = {"quality": rng.choice((30, 75, 95)), "subsampling": rng.randrange(3)}
        if rng.random() < 0.3:
            options["restart_marker_rows"] = rng.randrange(1, 4)
        drawn = picture(rng.randrange(1000), width, height)
        whole = encoded(drawn.convert("L") if rng.random() < 0.1 else drawn, **options)
        changed = b"" if one % 8 else whole
        while not changed:  # an empty record is the index's fault, which is another matter
            changed = mutant(whole, rng)[1]
        found.append(changed)
    return found


def by_loader(blobs: list[bytes], device: str, work: Path) -> dict[str, int]:
    """One epoch of a loader; what went to which decoder, how often DALI failed, and with what it ended."""
    from two_backends import TRAIN, with_dali

    from fastload import OnError
    from fastload.errors import FastloadError

    dataset = plain_pack(work, blobs, range(len(blobs)), probe=False)
    options: dict[str, Any] = {"on_error": OnError("skip", max_pixels=10**7), "transform": TRAIN}
    if device == "cuda":
        options["device"] = "cuda"
    ended: dict[str, int] = {}
    with with_dali(dataset, **options) as loader:
        try:
            for _ in loader:
                pass
        except FastloadError as error:
            ended[type(error).__name__] = 1
        counts = loader.stats()["decoders"]
    return {**counts["samples"], "failures": counts["failures"], **ended}


def by_dali(blobs: list[bytes], device: str, work: Path) -> dict[str, int]:
    """Each file alone through a pipeline of DALI's; one that fails ends it, as DALI has it."""
    import numpy as np

    from fastload.backends.dali.graph import load_dali

    fn, types, make = load_dali()

    def built(current: list[Any]) -> Any:
        place = 0 if device == "cuda" else None
        pipeline = make(batch_size=1, num_threads=1, device_id=place, prefetch_queue_depth=1)
        with pipeline:
            source = fn.external_source(source=lambda: current, device="cpu", dtype=types.UINT8, ndim=1)
            pixels = fn.decoders.image_slice(
                source,
                np.array([0.1, 0.2], np.float32),
                np.array([0.6, 0.5], np.float32),
                device="mixed" if device == "cuda" else "cpu",
                output_type=types.RGB,
                adjust_orientation=False,
            )
            pipeline.set_outputs(fn.resize(pixels, size=(SIDE, SIDE)))
        pipeline.build()
        return pipeline

    current: list[Any] = []
    counts, pipeline = {"dali": 0, "failures": 0}, None
    for blob in blobs:
        current[:] = [np.frombuffer(blob, np.uint8)]
        pipeline = pipeline or built(current)
        counts["dali"] += 1
        try:
            pipeline.run()
        except RuntimeError:
            counts["failures"] += 1
            pipeline = None
    return counts


def child(options: dict[str, Any]) -> None:
    """Sets from ``first`` on, a line before and behind each."""
    use = by_loader if options["way"] == "loader" else by_dali
    number = options["first"]
    with tempfile.TemporaryDirectory() as work:
        while True:
            say({"begins": number})
            if options["device"] == "abort":
                os.abort()
            blobs = hostile(options["seed"], number, options["files"])
            say({"done": number, **use(blobs, options["device"], Path(work) / str(number))})
            number += options["children"]


def say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


class Reader:
    """A child, and the one that follows it when it ends."""

    def __init__(self, options: dict[str, Any], first: int) -> None:
        self._options = {**options, "first": first}
        self.fallen: list[str] = []
        self.counts: dict[str, int] = {"sets": 0}
        self._start()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the child)
        words = [sys.executable, __file__, json.dumps({**self._options, "child": True})]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._errors)
        self._pending, self._heard = b"", time.monotonic()

    @property
    def pipe(self) -> Any:
        """What it writes to."""
        return self._process.stdout

    def hear(self) -> None:
        """What it has written, or that it has ended."""
        block = os.read(self.pipe.fileno(), 1 << 16)
        self._heard = time.monotonic()
        if not block:
            self._fell(f"exit status {self._process.wait()}")
            return
        *lines, self._pending = (self._pending + block).split(b"\n")
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                continue  # a library's words
            if "begins" in value:
                self._options["first"] = value["begins"]
            else:
                self.counts["sets"] += 1
                for name, count in value.items():
                    if name != "done":
                        self.counts[name] = self.counts.get(name, 0) + count

    def look(self) -> None:
        """Whether it still says something."""
        if time.monotonic() - self._heard > STILL:
            self.end()
            self._fell(f"silent for {STILL:.0f} s")

    def _fell(self, how: str) -> None:
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()[-300:]
        self.fallen.append(f"set {self._options['first']}, seed {self._options['seed']}: {how}: {words}")
        self._options["first"] += self._options["children"]
        self._start()

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


def run(options: dict[str, Any]) -> dict[str, Any]:
    """All children, until the time is over or ``sets`` sets are done; what fell, and counts."""
    options = {**DEFAULTS, **options}
    readers = [Reader(options, first) for first in range(options["children"])]
    until = time.monotonic() + options["seconds"]
    total: dict[str, int] = {}
    while time.monotonic() < until:
        ready, _, _ = select.select([reader.pipe for reader in readers], [], [], 1.0)
        for reader in readers:
            if reader.pipe in ready:
                reader.hear()
            reader.look()
        names = {name for reader in readers for name in reader.counts}
        total = {name: sum(reader.counts.get(name, 0) for reader in readers) for name in sorted(names)}
        if options["sets"] and total["sets"] + sum(len(r.fallen) for r in readers) >= options["sets"]:
            break
    for reader in readers:
        reader.end()
    fallen = [one for reader in readers for one in reader.fallen]
    return {**{name: options[name] for name in ("device", "way", "seed")}, **total, "fallen": fallen}


def main(options: dict[str, Any]) -> int:
    if options.get("child"):
        child(options)
    result = run(options)
    say(result)
    return 1 if result["fallen"] else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
