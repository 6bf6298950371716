"""The sets of an elastic soak, what their pictures are, and the web server that serves them, badly."""

from __future__ import annotations

import csv
import io
import signal
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

MORE = 100_000  # labels of a source begin at multiples of this
SIDE = 8  # pictures have the size of batches, so that their pixels are those of the files
ROWS = {"a": 331, "b": 97, "c": 12, "d": 53}
HERE = Path(__file__).resolve().parent


@dataclass
class Source:
    """A packed set that grows."""

    name: str
    number: int
    folder: Path
    rows: int = 0

    def append(self, count: int, truth: dict[tuple[int, int], int]) -> None:
        """Pack ``count`` more rows; ``truth`` gets the checksum of each one's pixels."""
        files = self.folder.with_name(f"{self.name}-files")
        files.mkdir(exist_ok=True)
        table = files / f"{self.rows}.csv"
        with table.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["path", "label"])
            for row in range(self.rows, self.rows + count):
                drawn = np.random.default_rng([self.number, row])
                pixels = drawn.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
                buffer = io.BytesIO()
                Image.fromarray(pixels).save(buffer, "PNG")
                (files / f"{row}.png").write_bytes(buffer.getvalue())
                lines.writerow([f"{row}.png", self.number * MORE + row])
                truth[self.number, row] = zlib.crc32(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        more = ["--append"] if self.rows else ["--shard-size", "8kB"]
        command = [sys.executable, "-m", "fastload", "pack", str(table), str(self.folder), *more]
        subprocess.run(command, check=True, capture_output=True)
        self.rows += count


def make_sources(folder: Path) -> tuple[dict[str, Source], dict[tuple[int, int], int]]:
    """The sets by name, and the checksum of each picture by source and row."""
    folder.mkdir(parents=True)
    sources, truth = {}, {}
    for number, (name, rows) in enumerate(ROWS.items()):
        sources[name] = Source(name, number, folder / name)
        sources[name].append(rows, truth)
    return sources, truth


def serve(folder: Path, seed: int) -> tuple[subprocess.Popen[str], str]:
    """A process that serves a folder by HTTP, with faults, and its URL."""
    command = [sys.executable, str(HERE / "elastic_sets.py"), str(folder), str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def main() -> None:
    """Serve until killed."""
    from fault_server import Fault, FaultServer, Rule

    faults: list[tuple[Any, int]] = [
        (Fault(status=503, headers={"Retry-After": "0"}), 17),
        (Fault(reset_after=10), 23),
        (Fault(close_after=40), 29),
        (Fault(half=True), 31),
        (Fault(delay=0.5), 37),
        (Fault(damage=True), 101),
    ]
    with FaultServer(folder=Path(sys.argv[1])) as server:
        server.rules += [Rule(fault, every=every) for fault, every in faults]
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
