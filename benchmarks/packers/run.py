"""Packs a folder once and says how long that took; ``bench_pack.py`` runs it in a process of its own.

    python benchmarks/child.py packers.run PACKER SOURCE TARGET [--processes N]

Imports are done before the clock starts. A packer is a module of ``packers/`` (or one below) with
``pack(source, target, processes)``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path


def copy(source: Path, target: Path, processes: int) -> None:
    """``cp -r``: what reading and writing all files costs without doing anything else."""
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)


def copy_synced(source: Path, target: Path, processes: int) -> None:
    """``cp -r``, and then ``sync`` of that file system, because fastload syncs what it has written."""
    copy(source, target, processes)
    subprocess.run(["sync", "-f", str(target)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packer")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    name = arguments.packer
    pack = {"cp": copy, "cp_sync": copy_synced}.get(name)
    if pack is None:
        module, _, variant = name.partition(":")
        found = importlib.import_module(f"packers.pack_{module}")
        pack = found.packer(variant) if variant else found.pack
    sizes = [entry.stat().st_size for entry in arguments.source.rglob("*") if entry.is_file()]
    shutil.rmtree(arguments.target, ignore_errors=True)
    begin, before = time.perf_counter(), sum(os.times()[:4])
    pack(arguments.source, arguments.target, arguments.processes)
    seconds = time.perf_counter() - begin
    used = sum(os.times()[:4]) - before
    written = sum(f.stat().st_size for f in arguments.target.rglob("*") if f.is_file())
    shutil.rmtree(arguments.target)
    body = {
        "seconds": seconds,
        "images_per_s": len(sizes) / seconds,
        "mb_per_s": sum(sizes) / seconds / 1e6,
        "cpu_s": used,
        "size_ratio": written / sum(sizes),
    }
    print(json.dumps(body))


if __name__ == "__main__":
    main()
