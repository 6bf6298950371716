"""The command ``fastload`` as the benchmarks call it: ``python benchmarks/harness/command_line.py pack ...``.

Not ``python -m fastload`` nor ``python -c``: those look into the current folder first. In a checkout that was
built in place they would measure it in place of the installed package. A script looks into its own folder.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["command", "pack_folder"]


def command(*words: object) -> list[str]:
    """The command line that runs ``fastload WORDS`` with this interpreter."""
    return [sys.executable, str(Path(__file__).resolve()), *map(str, words)]


def pack_folder(source: Path, target: Path, *options: str) -> None:
    """Pack ``source`` into ``target`` by the command line; its exit status must be 0."""
    subprocess.run(command("pack", source, target, *options), check=True, stdout=sys.stderr)


if __name__ == "__main__":
    from fastload.cli import main

    sys.exit(main())
