"""The operating system's errors in words: what was wrong with which path, and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from fastload.errors import FastloadError

__all__ = ["in_words"]

_ADVICE = {
    errno.EACCES: "This user may not do that there: look at the rights with 'ls -ld', or give another place.",
    errno.EPERM: "This user may not do that there: look at the rights with 'ls -ld', or give another place.",
    errno.EROFS: "The file system is mounted read-only; give another place.",
    errno.ENOENT: "Look whether the path is spelled right and its folder exists.",
    errno.ENOTDIR: "A part of the path is a file where a folder is needed.",
    errno.EEXIST: "A file is in the place of a folder; give another path.",
    errno.EISDIR: "It is a folder, where a file is needed.",
    errno.ENOSPC: "Make room there, or give another place, and run the same command again.",
    errno.EDQUOT: "The user's quota is used up: make room, or give another place, and run it again.",
    errno.ENAMETOOLONG: "Give a shorter path.",
    errno.ELOOP: "Symbolic links lead in a circle.",
    errno.EIO: "The disk or the network behind it fails; the system's log ('dmesg') may say more.",
    errno.ESTALE: "The file was replaced on the server: run the command again.",
    errno.EMFILE: "Raise the limit of open files: 'ulimit -n 65536'.",
    errno.ENFILE: "The machine has too many files open; close programs.",
}


def in_words(error: BaseException) -> str:
    """An error's message for the command line, with advice where an error of the system is behind it."""
    cause = next((found for found in _chain(error) if found.errno), None)
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, FastloadError) and error.errno:
        places = " or ".join(os.fsdecode(name) for name in (error.filename, error.filename2) if name)
        text = f"{places or 'the system says'}: {os.strerror(error.errno)}."
    elif cause is not None:
        text = text.replace(f"[Errno {cause.errno}] ", "")
    advice = _ADVICE.get(cause.errno or 0) if cause is not None else None
    return f"{text} {advice}" if advice else text


def _chain(error: BaseException | None) -> Iterator[OSError]:
    """The error and its causes, as far as the operating system made them."""
    while error is not None:
        if isinstance(error, OSError):
            yield error
        error = error.__cause__
