"""Train the codes of coefficient records' masks (form "small"): ``python tools/train_mask_codes.py FOLDER``.

It counts how often each number of mask bytes, and each byte, comes in each context of FORMAT.md in the JPEGs
of a folder. It prints the best code lengths as in FORMAT.md, and the size of a block with them and with the
present codes. The present codes belong to version 1 of the records and stay: others would need a new version.

Lengths are limited, so that a table of 2^7 or 2^10 entries reads a code. Package-merge finds the best ones
(Larmore and Hirschberg, A fast algorithm for optimal length-limited Huffman codes, 1990). Each count is
multiplied by 50 and increased by one, so that what never came also has a code.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastload._native import _C

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "reference"))

from coefficient_reader import Header, mask_bytes, mask_code_lengths, read_header, read_masks  # noqa: E402

COUNT_CONTEXTS, BYTE_CONTEXTS = 18, 15
COUNT_BITS, BYTE_BITS = 7, 10  # the longest codes
FIRST = 4  # stands for the block before the first of a row of blocks
WEIGHT = 50

Lengths = Sequence[int]


@dataclass
class Counts:
    """How often each value came in each context."""

    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros((COUNT_CONTEXTS, 9), np.int64))
    bytes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((BYTE_CONTEXTS, 256), np.int64))

    @property
    def blocks(self) -> int:
        return int(self.numbers.sum())

    def add_segment(self, masks: NDArray[np.uint8], rows: list[tuple[int, int, int]]) -> None:
        """``masks``: [blocks, 64]. ``rows`` of blocks: component, row, blocks."""
        number = mask_bytes(masks)
        before = np.concatenate([[FIRST], number[:-1]])
        chroma = np.zeros(len(number), np.int64)
        start = 0
        for component, _, blocks in rows:
            before[start] = FIRST
            chroma[start : start + blocks] = component > 0
            start += blocks
        np.add.at(self.numbers, (9 * chroma + before, number), 1)
        bits = np.concatenate([masks[:, 1:], np.zeros((len(masks), 1), np.uint8)], 1)
        values = np.packbits(bits, axis=1, bitorder="little")
        place = np.arange(8)
        context = 3 * np.minimum(place, 4) + np.minimum(number[:, None] - 1 - place, 2)
        coded = place < number[:, None]
        np.add.at(self.bytes, (context[coded], values[coded]), 1)

    def add_record(self, head: Header) -> None:
        ends = np.cumsum([0, *head.lengths]).tolist()
        mcus = head.mcus_of_segments()
        for i in range(len(head.lengths)):
            rows = head.rows_of(mcus[i % len(mcus)])
            _, _, masks = read_masks(head, head.segments[ends[i] : ends[i + 1]], rows)
            self.add_segment(masks, rows)


def can_come(context: int) -> NDArray[np.bool_]:
    """Which bytes: the last one of a mask is not zero."""
    return np.arange(256) > (0 if context % 3 == 0 else -1)


def code_lengths(weights: Sequence[int], limit: int) -> list[int]:
    """Of the best prefix code of at most ``limit`` bits for values of these weights; 0 where that is 0."""
    leaves: list[tuple[int, tuple[int, ...]]] = sorted(
        (weight, (value,)) for value, weight in enumerate(weights) if weight > 0
    )
    if not 1 < len(leaves) <= 2**limit:
        raise ValueError(f"There must be 2 to {2**limit} values. Found: {len(leaves)}.")
    best = leaves
    for _ in range(limit - 1):
        pairs = zip(best[::2], best[1::2], strict=False)
        best = sorted(leaves + [(one[0] + other[0], one[1] + other[1]) for one, other in pairs])
    members = Counter(value for _, values in best[: 2 * len(leaves) - 2] for value in values)
    return [members[value] for value in range(len(weights))]


def train(counts: Counts) -> tuple[list[list[int]], list[list[int]]]:
    """Code lengths of numbers and of bytes for each context."""
    numbers = [code_lengths((WEIGHT * row + 1).tolist(), COUNT_BITS) for row in counts.numbers]
    masks = [
        code_lengths(((WEIGHT * row + 1) * can_come(context)).tolist(), BYTE_BITS)
        for context, row in enumerate(counts.bytes)
    ]
    return numbers, masks


def bits(counts: NDArray[np.int64], lengths: Iterable[Lengths]) -> int:
    return int((counts * np.array([*lengths])).sum())


def jpegs(folder: Path, most: int) -> list[Path]:
    """At most so many, chosen at random, always the same of the same names."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    return sorted(random.Random(0).sample(found, most)) if most < len(found) else found


def count(paths: Iterable[Path]) -> Counts:
    """Files that cannot be coefficient records are left out, with a line for each."""
    counts = Counts()
    for path in paths:
        try:
            record = bytes(_C.to_coefficients(np.fromfile(path, np.uint8), "fast"))
        except (OSError, RuntimeError, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        counts.add_record(read_header(record))
    return counts


def report(counts: Counts) -> list[str]:
    numbers, masks = train(counts)
    lines = ["| context | lengths for n = 0 to 8 |", "|---|---|"]
    lines += [f"| {context} | `{hexadecimal(row)}` |" for context, row in enumerate(numbers)]
    lines += ["", "| context | lengths for bytes 0 to 255 |", "|---|---|"]
    lines += [f"| {context} | `{hexadecimal(row)}` |" for context, row in enumerate(masks)]
    lines += ["", f"Bits a block, of {counts.blocks:,} blocks:"]
    for name, (of_numbers, of_masks) in {"present": mask_code_lengths(), "new": (numbers, masks)}.items():
        one, other = bits(counts.numbers, of_numbers), bits(counts.bytes, of_masks)
        each = [value / counts.blocks for value in (one, other, one + other)]
        lines.append(f"  {name + ' codes':13}  n {each[0]:.3f} + bytes {each[1]:.3f} = {each[2]:.3f}")
    return lines


def hexadecimal(lengths: Lengths) -> str:
    return "".join(f"{length:x}" for length in lengths)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of JPEGs, at any depth")
    parser.add_argument("--files", type=int, default=500, help="number of JPEGs (default: %(default)s)")
    options = parser.parse_args(arguments)
    counts = count(jpegs(options.folder, options.files))
    if counts.blocks == 0:
        parser.error(f"There is no JPEG in {options.folder} that can be a coefficient record.")
    print("\n".join(report(counts)))


if __name__ == "__main__":
    main()
