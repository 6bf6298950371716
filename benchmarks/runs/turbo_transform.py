"""libjpeg-turbo's lossless transcoding in this process, memory to memory: what ``jpegtran -copy all`` does.

tjTransform without a transform calls jpeg_read_coefficients, jcopy_markers_execute and
jpeg_write_coefficients, as jpegtran does, and gives the same bytes. A yardstick for the benchmarks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from loaders.candidates.turbojpeg import LIBRARY

__all__ = ["Transcoder"]

NO_REALLOCATION = 1024  # TJFLAG_NOREALLOC: the output buffer is large enough


class _Transform(ctypes.Structure):
    """``tjtransform``; all zero: no cropping, no turning, all markers copied."""

    _fields_ = (
        ("region", ctypes.c_int * 4),
        ("operation", ctypes.c_int),
        ("options", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("filter", ctypes.c_void_p),
    )


class Transcoder:
    """A transformer with an output buffer for the largest of ``jpegs``.

    Raises:
        OSError: there is no libturbojpeg.so.0.
        ValueError: libjpeg-turbo refuses a file.
    """

    def __init__(self, jpegs: Iterable[bytes]) -> None:
        self.library: Any = ctypes.CDLL(LIBRARY)
        self.library.tjInitTransform.restype = ctypes.c_void_p
        self.library.tjBufSize.restype = ctypes.c_ulong
        self.library.tjGetErrorStr2.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p(self.library.tjInitTransform())
        self.buffer = ctypes.create_string_buffer(max(self._needed(jpeg) for jpeg in jpegs))
        self.size = ctypes.c_ulong()

    def _needed(self, jpeg: bytes) -> int:
        found = [ctypes.c_int() for _ in range(4)]  # width, height, subsampling, colours
        size = ctypes.c_ulong(len(jpeg))
        self._check(self.library.tjDecompressHeader3(self.handle, jpeg, size, *map(ctypes.byref, found)))
        return int(self.library.tjBufSize(*found[:3]))

    def run(self, jpeg: bytes) -> int:
        """Transcode one file into the buffer; its bytes."""
        target = ctypes.c_void_p(ctypes.addressof(self.buffer))
        self._check(
            self.library.tjTransform(
                self.handle, jpeg, ctypes.c_ulong(len(jpeg)), 1, ctypes.byref(target),
                ctypes.byref(self.size), ctypes.byref(_Transform()), NO_REALLOCATION,
            )
        )  # fmt: skip
        return self.size.value

    def __call__(self, jpeg: bytes) -> bytes:
        """The transcoded file."""
        size = self.run(jpeg)
        return ctypes.string_at(self.buffer, size)

    def _check(self, status: int) -> None:
        if status:
            raise ValueError(f"libjpeg-turbo: {self.library.tjGetErrorStr2(self.handle).decode()}")
