"""The command line: ``main()``. ``commands.py`` has the parser; each verb is a module of its name.

Exit codes: 0 done, 1 an error (one message, no traceback), 2 wrong usage, 130 interrupted.

Nothing is imported here before ``main`` runs: a Ctrl-C while NumPy and the rest are imported is an
interrupted command, not a traceback.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    Args:
        argv: the words after ``fastload``; None: those of this process, which is the command's own then, and
            ends at once where a Ctrl-C finds nothing to put away.
    """
    try:
        from fastload.cli import interrupts

        if argv is None:
            interrupts.leave()
            from fastload.cli.streams import fill

            fill()
        from fastload.cli.commands import run_command

        return run_command(argv)
    except KeyboardInterrupt:
        from fastload.cli import interrupts

        return interrupts.report()
