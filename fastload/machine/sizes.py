"""Sizes in bytes and counts in human-readable form."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(?:([kmgtp])(i?)b?|(b?))\s*", re.IGNORECASE)
_MOST = 2**63  # bytes


def counted(count: int, noun: str) -> str:
    """Return ``1 set``, ``2 sets``, ``2 batches``; ``noun`` is the singular."""
    return f"{count} {noun if count == 1 else noun + ('es' if noun.endswith(('s', 'ch')) else 's')}"


def human_bytes(size: float) -> str:
    """Format ``1234567`` as ``1.2 MB`` (powers of 1000)."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def parse_size(text: str, bare: bool = False) -> int:
    """Parse bytes, >= 1: ``"64GB"`` and ``"64G"`` are 64 * 1000**3, ``"64GiB"`` and ``"64Gi"`` 64 * 1024**3.

    Args:
        text: a number; optionally a unit (k, M, G, T or P, in either case), ``i`` for powers of 1024, ``B``.
        bare: accept a number without a unit as bytes; else it is an error, as another unit may be meant.

    Raises:
        ValueError: not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or not (match[2] or match[4] or bare):
        raise ValueError(f'A size is a number and a unit, such as "64GB" or "512MiB". Found: {text!r}.')
    base = 1024 if match[3] else 1000
    size = int(Fraction(match[1].rstrip(".")) * base ** _UNITS[(match[2] or "").lower()])
    if not 0 < size < _MOST:
        raise ValueError(f"A size must be in [1, 2**63) bytes. Found: {text!r}, which is {size}.")
    return size
