"""The command line: one module a verb, each with ``add(verbs)`` and ``run(arguments)``.

Exit codes: 0 done, 1 an error (one message, no traceback), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import fastload
from fastload.errors import FastloadError

__all__ = ["main"]

VERBS = ("pack", "info", "verify", "unpack", "index", "shuffle", "warm", "cache")


def build_parser(names: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """The parser of some verbs, whose modules are imported."""
    parser = argparse.ArgumentParser(prog="fastload", description="Image data loading for PyTorch training.")
    parser.add_argument("--version", action="version", version=f"fastload {fastload.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in names:
        importlib.import_module(f"fastload.cli.{verb}").add(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = sys.argv[1:] if argv is None else argv
    try:
        # The other verbs' modules would take longer than many a command.
        arguments = build_parser(given[:1] if given and given[0] in VERBS else VERBS).parse_args(given)
    except SystemExit as stop:  # argparse exits by itself: 0 after --help, 2 for wrong usage
        return stop.code if isinstance(stop.code, int) else 2
    try:
        return int(importlib.import_module(f"fastload.cli.{arguments.verb}").run(arguments))
    except KeyboardInterrupt:
        resume = "; the same command goes on where it was" if arguments.verb in ("pack", "warm") else ""
        print(f"\ninterrupted{resume}", file=sys.stderr)  # noqa: T201
        return 130
    except BrokenPipeError:
        # Nobody reads our output any more (| head): no message can reach anybody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (FastloadError, OSError) as error:
        print(f"fastload {arguments.verb}: {error}", file=sys.stderr)  # noqa: T201
        return 1
