"""The file system in memory by which worker processes hand over batches: what is said where it has no room.

torch's workers put tensors there, and multiprocessing its semaphores. Both fail without a file's name, and a
tensor that a worker's queue cannot put there leaves its batch out, for which the consumer would wait for
ever. So a worker puts tensors there itself, where an error of it can be told.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from fastload.machine.sizes import human_bytes

__all__ = ["Sharing", "lack_of", "no_room", "said_in_words", "share"]

PLACE = "/dev/shm"
_LACKS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOSYS}
_TORCHS_WORDS = re.compile(
    r"(shared memory|unable to (open|write|resize|mmap|stat)).*</?torch_.*\((\d+)\)", re.S
)


def no_room(number: int) -> OSError:
    """The error about what cannot be put there, by the system's number for the reason."""
    size = ""
    if number in (errno.ENOSPC, errno.EDQUOT):
        with suppress(OSError):
            status = os.statvfs(PLACE)
            total, free = (status.f_frsize * blocks for blocks in (status.f_blocks, status.f_bavail))
            size = f", which has {human_bytes(total)}, {human_bytes(free)} of it free"
        cure = (
            "Give it more (docker run --shm-size=8g; Kubernetes: an emptyDir with medium: Memory, mounted "
            f"there; else mount -o remount,size=8G {PLACE}), or take fewer workers or smaller batches"
        )
    else:
        cure = f"Mount a tmpfs there that this user may write to (mount -t tmpfs -o size=8G tmpfs {PLACE})"
    text = (
        f"worker processes hand over batches in the file system {PLACE}{size}: {os.strerror(number)}. "
        f"{cure}. With num_workers=0 nothing is put there"
    )
    return OSError(number, text, PLACE)


@contextmanager
def said_in_words() -> Iterator[None]:
    """For what makes semaphores and starts workers.

    Raises:
        OSError: as :func:`no_room`, in place of one that names no file.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _LACKS:
            raise no_room(error.errno) from error
        raise


def lack_of(error: BaseException) -> OSError | None:
    """An error of torch's about that file system, in words; None: it is about something else."""
    found = _TORCHS_WORDS.search(str(error)) if isinstance(error, RuntimeError) else None
    return None if found is None else no_room(int(found[3]))


def share(batch: Any) -> None:
    """Put the tensors of a batch where other processes see them, as torch would when it sends them.

    Raises:
        RuntimeError: torch's, see :func:`lack_of`.
    """
    if isinstance(batch, torch.Tensor):
        if batch.device.type == "cpu" and batch.layout is torch.strided and not batch.is_nested:
            batch.share_memory_()  # type: ignore[no-untyped-call]
    elif isinstance(batch, Mapping):
        for value in batch.values():
            share(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            share(value)
    elif is_dataclass(batch) and not isinstance(batch, type):
        for field in fields(batch):
            share(getattr(batch, field.name, None))


class Sharing:
    """A collate function for torch's workers, whose result is where other processes see it."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> Any:
        batch = self._collate(samples)
        share(batch)
        return batch
