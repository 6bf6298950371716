"""Types of command line arguments that several verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fastload.errors import FastloadError, PackError
from fastload.shard.manifest import Manifest

_STORAGE_OPTION = "--storage-option"


def at_least_one(text: str) -> int:
    """Parse an integer of at least 1."""
    return _integer(text, 1)


def at_least_zero(text: str) -> int:
    """Parse an integer of at least 0."""
    return _integer(text, 0)


def place(text: str) -> str | Path:
    """Parse the path of a folder or file, or the URL of one in a store."""
    return text if "://" in text else Path(text)


def field_argument(text: str) -> tuple[str, str]:
    """Split NAME=KIND into a field's name and the text of its kind.

    Raises:
        PackError: the text is not NAME=KIND.
    """
    name, equals, kind = text.partition("=")
    if not equals:
        raise PackError(f"--field takes NAME=KIND, as --field box=boxes(xywh). Found: {text!r}.")
    return name, kind


def add_storage_options(parser: Any) -> None:
    """Declare the option for stores."""
    parser.add_argument(
        _STORAGE_OPTION,
        metavar="NAME=VALUE",
        action="append",
        type=_pair,
        default=[],
        help="option for a URL: endpoint_url, region, profile, anon, ...; may be repeated. Put secrets in "
        "the environment (AWS_SECRET_ACCESS_KEY) or a profile, because command-line arguments are visible to "
        "everyone on the machine",
    )


def options_for(arguments: argparse.Namespace, given: object) -> dict[str, str] | None:
    """Return the storage options for one place: None for a folder, unless its records are in a store."""
    options: dict[str, str] = dict(arguments.storage_option)
    return options if options and ("://" in str(given) or _reads_store(given)) else None


def _reads_store(folder: object) -> bool:
    try:
        return Manifest.read(Path(str(folder))).in_store
    except FastloadError:
        return False  # opening it reports the error


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError("must be NAME=VALUE.")
    return name, value


def _integer(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least {least}. Found: {text}.")
    return number
