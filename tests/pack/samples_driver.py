"""Packs samples and kills itself at a system call: ``samples_driver.py OUTPUT FORMAT KILL_AT``."""

from __future__ import annotations

import os
import sys

from field_samples import SCHEMA, Samples
from killer import Killer

import fastload

CALLS = ("replace", "fsync", "unlink", "rmdir", "mkdir")

if __name__ == "__main__":
    killer = Killer(int(sys.argv[3]))
    for name in CALLS:
        setattr(os, name, killer.around(getattr(os, name)))
    fastload.pack(Samples(30), sys.argv[1], SCHEMA, format=sys.argv[2], shard_size=20_000, entries=None)
