"""Checks of the DataLoader's numbers: each raises with the legal range."""

from __future__ import annotations

from typing import Any

__all__ = ["at_least", "integer"]


def integer(name: str, value: Any, least: int | None = None) -> None:
    """Refuse what is not an integer of at least ``least``."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} must be an integer. Found: {value!r}.")
    if least is not None:
        at_least(name, int(value), least)


def at_least(name: str, value: Any, least: int) -> None:
    """Refuse what is not a number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number. Found: {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be >= {least}. Found: {value}.")
