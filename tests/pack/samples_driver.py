"""Packs samples and kills itself at a system call: ``samples_driver.py OUTPUT FORMAT``.

For each number that it reads a forked child packs, and is killed there; it prints how the child has ended.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback

from field_samples import SCHEMA, Samples
from killer import Killer

import fastload
from fastload.shard.formats import format_of

CALLS = ("replace", "fsync", "unlink", "rmdir", "mkdir")


def packed(output: str, format_name: str, at: int) -> int:
    """The exit status of a child that packs, and is killed at the call."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            killer = Killer(at)
            for name in CALLS:
                setattr(os, name, killer.around(getattr(os, name)))
            fastload.pack(Samples(30), output, SCHEMA, format=format_name, shard_size=20_000, entries=None)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    format_of(sys.argv[2])  # its library is imported before the first fork
    gc.freeze()  # else each child writes to, and so copies, all objects' pages when it collects garbage
    for line in sys.stdin:
        print(packed(sys.argv[1], sys.argv[2], int(line)), flush=True)  # noqa: T201
