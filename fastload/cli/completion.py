"""``fastload completion SHELL``: a script that completes verbs, options and paths in a shell."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fastload.extras import need, pip_line

SHELLS = ("bash", "zsh", "fish", "tcsh")
_HOW = {
    "bash": 'eval "$(fastload completion bash)"   in ~/.bashrc',
    "zsh": "fastload completion zsh > DIR/_fastload   where DIR is one of $fpath",
    "fish": "fastload completion fish > ~/.config/fish/completions/fastload.fish",
    "tcsh": "fastload completion tcsh | source /dev/stdin   in ~/.tcshrc",
}


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "completion",
        help="print a shell script that completes verbs, options and paths",
        description="Print a shell script that completes fastload's verbs, options and paths. Printing it "
        f"needs the package shtab: {pip_line('shtab')}.",
        epilog="\n".join(f"{shell}: {how}" for shell, how in _HOW.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    need("shtab", "making the script")
    import shtab

    from fastload.cli.commands import build_parser

    parser = build_parser()
    _complete_paths(parser)
    sys.stdout.write(shtab.complete(parser, arguments.shell) + "\n")
    return 0


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    """Let the shell complete arguments that are files and folders; shtab reads ``complete``."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                _complete_paths(verb)
        elif action.metavar in ("SOURCE", "PATH", "FILE"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in ("FOLDER", "OUTPUT", "DATASET", "DIR"):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
