"""Types of command line arguments that several verbs share."""

from __future__ import annotations

import argparse

__all__ = ["at_least_one", "at_least_zero"]


def at_least_one(text: str) -> int:
    """An integer from 1."""
    return _integer(text, 1)


def at_least_zero(text: str) -> int:
    """An integer from 0."""
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least {least}. Found: {text}.")
    return number
