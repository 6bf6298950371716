"""The command line's parser and verbs, each a module with ``add(verbs)`` and ``run(arguments)``."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

from fastload._version import __version__
from fastload.cli import interrupts, streams
from fastload.cli.parser import Parser
from fastload.errors import FastloadError

# ---- Advice on the operating system's errors --------------------------------------------------------

_ADVICE = {
    errno.EACCES: "This user lacks permission: check it with 'ls -ld', or choose another place.",
    errno.EPERM: "This user lacks permission: check it with 'ls -ld', or choose another place.",
    errno.EROFS: "The file system is mounted read-only; choose another place.",
    errno.ENOENT: "Check the spelling of the path, and that its folder exists.",
    errno.ENOTDIR: "A part of the path is a file where a folder is needed.",
    errno.EEXIST: "A file is where a folder is needed; choose another path.",
    errno.EISDIR: "It is a folder, but a file is needed.",
    errno.ENOSPC: "Free some space or choose another place, and run the same command again.",
    errno.EDQUOT: "The user's quota is used up: free some space or choose another place, and run it again.",
    errno.ENAMETOOLONG: "Use a shorter path.",
    errno.ELOOP: "The symbolic links form a loop.",
    errno.EIO: "The disk or the network behind it is failing; the system's log ('dmesg') may say more.",
    errno.ESTALE: "The file was replaced on the server: run the command again.",
    errno.EMFILE: "Raise the limit on open files: 'ulimit -n 65536'.",
    errno.ENFILE: "The machine has too many files open; close some programs.",
}


def in_words(error: BaseException) -> str:
    """Return an error's message for the command line, with advice if a system error is behind it."""
    cause = next((each for each in _chain(error) if each.errno), None)
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, FastloadError) and error.errno:
        places = " or ".join(os.fsdecode(name) for name in (error.filename, error.filename2) if name)
        text = f"{places or 'the system says'}: {os.strerror(error.errno)}."
    elif cause is not None:
        text = text.replace(f"[Errno {cause.errno}] ", "")
    advice = _ADVICE.get(cause.errno or 0) if cause is not None else None
    if advice is None or "the same command again" in text:  # a full disk: the error says how much is lacking
        return text
    return f"{text} {advice}"


def _chain(error: BaseException | None) -> Iterator[OSError]:
    """Yield the operating system's errors among the error and its causes."""
    while error is not None:
        if isinstance(error, OSError):
            yield error
        error = error.__cause__


# ---- Parsing and running commands -------------------------------------------------------------------

VERBS = (
    "pack",
    "info",
    "verify",
    "unpack",
    "recode",
    "drop",
    "index",
    "plan",
    "warm",
    "cache",
    "doctor",
    "bench",
    "completion",
)
_RESUMED = ("pack", "index", "recode", "drop", "warm")


def build_parser(names: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """Return a parser of these verbs, whose modules it imports."""
    parser = Parser(
        prog="fastload",
        description="Image data loading for PyTorch training.",
        epilog="'fastload VERB --help' lists a verb's options. Exit codes: 0 done, 1 an error, 2 wrong "
        "usage, 130 interrupted. In Python: fastload.DataLoader(FOLDER, ...).",
    )
    parser.add_argument("--version", action="store_true", help="print version, Python, torch, path")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    for verb in names:
        importlib.import_module(f"fastload.cli.{verb}").add(verbs)
    return parser


def run_command(argv: Sequence[str] | None) -> int:
    """Run the command of ``argv`` (None: this process's) and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        # Importing the other verbs' modules would take longer than many commands.
        parser = build_parser(words[:1] if words[:1] and words[0] in VERBS else _needed(words))
        arguments = parser.parse_args(words)
    except SystemExit as stop:  # argparse exits by itself: 0 after --help, 2 for wrong usage
        return stop.code if isinstance(stop.code, int) else 2
    if arguments.verb is None and not arguments.version:
        parser.print_help(sys.stderr)
        return 2
    with streams.guarded() as out:
        if argv is not None:
            return _written(_run(arguments), arguments, out)
        interrupts.raise_in_command()
        try:
            return _written(_run(arguments), arguments, out)
        finally:
            interrupts.leave()


def _needed(words: Sequence[str]) -> Sequence[str]:
    return () if words[:1] == ["--version"] else VERBS


def _written(code: int, arguments: argparse.Namespace, out: streams.Stream) -> int:
    """Flush the output and return the exit code, which is no longer 0 if some could not be written."""
    try:
        out.flush()
    except BrokenPipeError:
        return _nobody_reads()
    if out.failed is None:
        return code
    why = out.failed.strerror or out.failed
    verb = arguments.verb or "--version"
    sys.stderr.write(f"fastload {verb}: its output cannot be written: {why}. The rest of its work is done.\n")
    return code or 1


def _nobody_reads() -> int:
    """Drop the output, which nobody reads any more (| head), and return 1: no message can reach anybody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _run(arguments: argparse.Namespace) -> int:
    if arguments.version:
        sys.stdout.write(_version() + "\n")
        return 0
    remark = "; run the same command again to resume" if arguments.verb in _RESUMED else ""
    try:
        return int(importlib.import_module(f"fastload.cli.{arguments.verb}").run(arguments))
    except KeyboardInterrupt:
        return interrupts.report(remark)
    except SystemExit as stop:  # wrong usage that the parser could not see
        sys.stderr.write(f"{stop.code}\n")
        return 2
    except BrokenPipeError:
        return _nobody_reads()
    except Exception as error:
        if interrupts.arrived():
            return interrupts.report(remark)
        if not isinstance(error, FastloadError | OSError):
            raise
        sys.stderr.write(f"fastload {arguments.verb}: {in_words(error)}\n")
        return 1


def _version() -> str:
    """Return one line for a bug report, without importing torch."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    return (
        f"fastload {__version__} (Python {platform.python_version()}, torch {torch}, "
        f"{platform.system()} {platform.machine()}, {os.path.dirname(os.path.dirname(__file__))})"
    )
