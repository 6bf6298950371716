"""Files with something changed, as chance has it: the same for the same numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

__all__ = ["mutant", "text_mutant"]

NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 4095, 4096, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32)
NUMBERS += (2**48, 2**59, 2**62, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 2, 2**64 - 1)
TOKENS = (
    "-1",
    "0",
    "1",
    "1.5",
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "9" * 30,
    "9" * 4400,
    str(2**31),
    str(2**63),
)
TOKENS += (
    str(2**64),
    "null",
    "true",
    "[]",
    "{}",
    '""',
    '"x"',
    '"\\ud800"',
    '"\\u0000"',
    '"../../x"',
    '"/dev/zero"',
)
TOKENS += ("[[[[]]]]", '{"a": 1}', "[" * 3000, '"' + "x" * 5000 + '"')
TOKEN = re.compile(rb'-?\d+(?:\.\d+)?|"(?:[^"\\]|\\.)*"|true|false|null|[\[\]{},:]')


def _place(data: bytearray, rng: random.Random) -> int:
    """A byte: near the begin or the end as often as anywhere."""
    near = min(len(data), 512)
    return rng.choice(
        (
            rng.randrange(near),
            len(data) - 1 - rng.randrange(near),
            rng.randrange(len(data)),
            rng.randrange(len(data)),
        )
    )


def _flip(data: bytearray, rng: random.Random) -> str:
    count = rng.choice((1, 1, 1, 2, 8))
    for _ in range(count):
        data[_place(data, rng)] ^= 1 << rng.randrange(8)
    return f"{count} bits flipped"


def _set(data: bytearray, rng: random.Random) -> str:
    at, length = _place(data, rng), rng.choice((1, 1, 2, 4, 16, 64))
    value = rng.choice((b"\0", b"\xff", b"\x80", b"\x7f", rng.randbytes(1))) * length
    data[at : at + length] = value[: len(data) - at]
    return f"bytes {at} to {at + length} set to {value[:1].hex()}"


def _number(data: bytearray, rng: random.Random) -> str:
    width = rng.choice((1, 2, 4, 4, 8, 8))
    at = (
        _place(data, rng)
        // rng.choice((1, 2, 4, width))
        * rng.choice((1, 1, width))
        % max(1, len(data) - width)
    )
    value = rng.choice((*NUMBERS, len(data), len(data) - 1, len(data) + 1)) % 256**width
    data[at : at + width] = value.to_bytes(width, rng.choice(("little", "little", "big")))
    return f"{value} in {width} bytes at {at}"


def _cut(data: bytearray, rng: random.Random) -> str:
    length = rng.choice((_place(data, rng), len(data) - 1, rng.randrange(len(data))))
    del data[length:]
    return f"cut to {length} bytes"


def _remove(data: bytearray, rng: random.Random) -> str:
    at, length = _place(data, rng), rng.choice((1, 4, 8, 64, 512, 4096))
    del data[at : at + length]
    return f"{length} bytes removed at {at}"


def _insert(data: bytearray, rng: random.Random) -> str:
    at, length = _place(data, rng), rng.choice((1, 4, 8, 64, 512, 4096))
    other = rng.randrange(len(data))
    data[at:at] = rng.choice((bytes(length), rng.randbytes(length), data[other : other + length]))
    return f"{length} bytes inserted at {at}"


def _swap(data: bytearray, rng: random.Random) -> str:
    length = rng.choice((4, 8, 32, 64, 512, 4096))
    a, b = sorted((_place(data, rng), _place(data, rng)))
    length = min(length, b - a, len(data) - b)
    data[a : a + length], data[b : b + length] = data[b : b + length], data[a : a + length]
    return f"{length} bytes at {a} and {b} exchanged"


WAYS: tuple[Callable[[bytearray, random.Random], str], ...] = (
    _flip, _flip, _set, _set, _number, _number, _number, _cut, _remove, _insert, _swap,
)  # fmt: skip


def mutant(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    """What was changed, in words, and the changed bytes, which differ."""
    while True:
        data = bytearray(whole)
        words = "; ".join(
            rng.choice(WAYS)(data, rng) if data else "nothing left" for _ in range(rng.choice((1, 1, 1, 2)))
        )
        if data != whole:
            return words, bytes(data)


def text_mutant(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    """The same of a JSON text: half of the time one of its tokens is another one, or there twice, or not."""
    if rng.random() < 0.4:
        return mutant(whole, rng)
    found = list(TOKEN.finditer(whole))
    token = rng.choice(found)
    new = rng.choice((rng.choice(TOKENS).encode(), rng.choice(found)[0], b"", token[0] * 2))
    if new == token[0]:
        return mutant(whole, rng)
    return f"{token[0][:40]!r} at {token.start()} is {new[:40]!r}", whole[: token.start()] + new + whole[
        token.end() :
    ]
