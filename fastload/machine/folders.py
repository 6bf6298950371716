"""Folders that users name."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["absolute_folder"]


def absolute_folder(text: str | os.PathLike[str]) -> Path:
    """The whole path of a folder, with ``~`` and ``~user`` filled in.

    Raises:
        ValueError: there is no such user, or none that has a home folder.
    """
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(
            f"The folder {os.fspath(text)!r} cannot be found: {error} Write its path without '~'."
        ) from error
