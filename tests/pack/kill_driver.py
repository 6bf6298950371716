"""Kills a pack before and after every system call that changes what is on disk, and resumes each time.

Run as a program: ``kill_driver.py SOURCE FOLDER FORMAT``, with ``shares`` behind it for a pack in two
shares. It forks a child for each kill point (cheaper than a new interpreter), compares the resumed output
with an uninterrupted one byte for byte, and prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
from pathlib import Path

from killer import Killer
from pack_trees import snapshot

from fastload import PackedDataset
from fastload.packing import PackOptions, pack
from fastload.packing.packer import pack_shares, publish_shares
from fastload.packing.shares import ShardRanges
from fastload.shard.formats import format_of
from fastload.shard.manifest import ENTRIES_NAME, MANIFEST_NAME

SHARES = "shares" in sys.argv
CALLS = ("replace", "fsync", "unlink", "rmdir", "mkdir", "ftruncate")


def options_for(format_name: str) -> PackOptions:
    return PackOptions(format=format_name, shard_size=16384, num_proc=1, runs="/")


def run_pack(source: Path, output: Path, format_name: str) -> None:
    options = options_for(format_name)
    if not SHARES:
        pack(source, output, options)
        return
    for share in ((1, 2), (0, 2)):
        pack_shares(source, output, ShardRanges(share=share), options)
    publish_shares(source, output, options)


def killed(source: Path, output: Path, format_name: str, at: int) -> bool:
    """Pack in a child that is killed at point ``at``; False if it came to its end."""
    child = os.fork()
    if child == 0:
        killer = Killer(at)
        for name in CALLS:
            setattr(os, name, killer.around(getattr(os, name)))
        try:
            run_pack(source, output, format_name)
        finally:
            os._exit(0 if (output / MANIFEST_NAME).exists() else 3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


def main(source: Path, folder: Path, format_name: str) -> None:
    format_of(format_name)  # its library is imported before the first fork
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    pack(source, folder / "whole" / "set", options_for(format_name))
    expected = snapshot(folder / "whole" / "set")
    gc.freeze()  # else each child writes to, and so copies, all objects' pages when it collects garbage
    at, early, failures = 0, 0, []
    while True:
        output = folder / "killed" / "set"
        if not killed(source, output, format_name, at):
            break
        complete = (output / MANIFEST_NAME).exists()
        if complete:
            # Once the manifest is there, everything that it names must be; entry points come after it.
            names = [name for name in expected if name != ENTRIES_NAME]
            early += not all((output / name).exists() for name in names)
            PackedDataset(output)
        if at % 3 == 2 and killed(source, output, format_name, at // 2):
            pass  # a second kill, during the recovery
        run_pack(source, output, format_name)
        if snapshot(output) != expected:
            failures.append(at)
        shutil.rmtree(output.parent)
        at += 1
    print(json.dumps({"points": at, "early": early, "failures": failures}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
