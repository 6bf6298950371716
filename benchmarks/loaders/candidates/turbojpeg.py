"""libjpeg-turbo's bare full decode to RGB, from memory to memory: a yardstick, not a loader.

No crop, no resize, no batch, no reading: whatever the job, it decodes the files one after another by
the C API of the system's libturbojpeg.so.0 (Debian: libturbojpeg0), accurate transform, fancy upsampling.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from loaders.jobs import Job, listing

VARIANTS = ()
LIBRARY = "libturbojpeg.so.0"
RGB = 0  # TJPF_RGB


def versions() -> dict[str, str]:
    return {"library": Path(f"/proc/self/map_files/{_mapping()}").resolve().name}


def _mapping() -> str:
    """The address range of the loaded library, as /proc names it."""
    ctypes.CDLL(LIBRARY)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "turbojpeg" in line:
            return line.split()[0]
    raise SystemExit(f"{LIBRARY} is not mapped.")


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    """Nothing: the files are read as they lie."""


def read_distinct(folder: Path) -> list[bytes]:
    """The bytes of every file once: hard links to one file repeat nothing but its name."""
    paths = {os.stat(path).st_ino: path for path, _ in listing(folder)}
    return [Path(path).read_bytes() for path in paths.values()]


class Decoder:
    """A decompressor and its output buffer, for one thread."""

    def __init__(self) -> None:
        self.library: Any = ctypes.CDLL(LIBRARY)
        self.library.tjInitDecompress.restype = ctypes.c_void_p
        self.library.tjGetErrorStr2.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p(self.library.tjInitDecompress())
        self.pixels = ctypes.create_string_buffer(0)

    def __call__(self, data: bytes) -> None:
        width, height = ctypes.c_int(), ctypes.c_int()
        sampling, colours = ctypes.c_int(), ctypes.c_int()
        size = ctypes.c_ulong(len(data))
        self._check(
            self.library.tjDecompressHeader3(
                self.handle, data, size, *map(ctypes.byref, (width, height, sampling, colours))
            )
        )
        needed = width.value * height.value * 3
        if needed > len(self.pixels):
            self.pixels = ctypes.create_string_buffer(needed)
        self._check(
            self.library.tjDecompress2(self.handle, data, size, self.pixels, width, 0, height, RGB, 0)
        )

    def _check(self, status: int) -> None:
        if status:
            raise ValueError(f"libjpeg-turbo: {self.library.tjGetErrorStr2(self.handle).decode()}")


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    files = read_distinct(folder)
    random.Random(0).shuffle(files)
    own = threading.local()  # a decoder belongs to one thread

    def decode(turn: int) -> int:
        """The ``turn``-th batch of the endless list of files."""
        if not hasattr(own, "decoder"):
            own.decoder = Decoder()
        for i in range(turn * job.batch, (turn + 1) * job.batch):
            own.decoder(files[i % len(files)])
        return job.batch

    with ThreadPoolExecutor(threads) as executor:
        ahead = deque(executor.submit(decode, turn) for turn in range(2 * threads))
        for turn in itertools.count(2 * threads):
            yield ahead.popleft().result()
            ahead.append(executor.submit(decode, turn))
