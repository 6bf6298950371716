"""Coefficient records of a folder's JPEGs, made and turned back, on one thread: a JSON line.

    python benchmarks/coefficients_run.py to|back FOLDER [--form fast|small]

"to" makes records, "back" the JPEGs of records.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from images import pictures_in

from fastload import _C
from fastload.errors import DecodeError


def jpegs_of(folder: Path) -> list[bytes]:
    """Those that can be records."""
    found = []
    for path in pictures_in(folder):
        data = path.read_bytes()
        try:
            _C.to_coefficients(np.frombuffer(data, np.uint8), "fast")
        except DecodeError:
            continue
        found.append(data)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("to", "back"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--form", choices=("fast", "small"), default="fast")
    arguments = parser.parse_args(argv)
    jpegs = jpegs_of(arguments.folder)
    arrays = [np.frombuffer(data, np.uint8) for data in jpegs]
    records = [_C.to_coefficients(array, arguments.form) for array in arrays]
    work: dict[str, Callable[[], object]] = {
        "to": lambda: [_C.to_coefficients(array, arguments.form) for array in arrays],
        "back": lambda: [_C.coefficients_to_jpeg(np.frombuffer(record, np.uint8)) for record in records],
    }
    start = time.perf_counter()
    work[arguments.action]()
    seconds = time.perf_counter() - start
    size = sum(len(data) for data in jpegs)
    bytes_of = sum(len(record) for record in records) / size
    print(json.dumps({"rate": len(jpegs) / seconds, "bytes": bytes_of, "images": len(jpegs)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
