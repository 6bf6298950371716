"""The command line's ``main()``; ``commands.py`` has the parser, and each verb is a module of its name.

Exit codes: 0 done, 1 an error (one message, no traceback), 2 wrong usage, 130 interrupted.

Nothing is imported before ``main`` runs, so that a Ctrl-C while NumPy and the rest are imported is an
interrupted command, not a traceback.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the words after ``fastload``. None: those of this process, which then belongs to the command:
            Ctrl-C ends it at once while there is nothing to clean up.
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
