"""Mutated files give pixels of the announced size or an error of ours: no crash, hang or other exception."""

from __future__ import annotations

import numpy as np
import pytest
from decode_images import FACTORS, encode, photo, resampled_jpeg
from decode_png_writer import PALETTE, RGB_ALPHA, random_png

from fastload._native import _C
from fastload.errors import DecodeError

MAX_PIXELS = 200_000


def seeds() -> dict[str, bytes]:
    """Small files of every kind with a decoder of its own."""
    found = {f"jpeg {name}": resampled_jpeg(name, 3, 2, (3, 2)) for name in FACTORS}
    found |= {f"progressive {name}": resampled_jpeg(name, 3, 2, (0, 0), progressive=True) for name in FACTORS}
    for mode in ("L", "CMYK"):
        found[f"jpeg {mode}"] = encode(photo(40, 30), "JPEG", mode=mode)
    found["jpeg restart"] = encode(photo(40, 30), "JPEG", restart_marker_blocks=2)
    found["png palette"] = random_png(PALETTE, 4, 40, 30)
    found["png interlaced"] = random_png(RGB_ALPHA, 16, 20, 15, interlaced=True)
    found["png"] = encode(photo(40, 30), "PNG")
    found["webp"] = encode(photo(40, 30), "WEBP")
    found["webp lossless"] = encode(photo(40, 30), "WEBP", lossless=True)
    found["webp alpha"] = encode(
        np.concatenate([photo(40, 30), photo(40, 30)[..., :1]], 2), "WEBP", mode="RGBA"
    )
    return found


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Flips bits, overwrites, cuts out, doubles or truncates; more often in the header than elsewhere."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        if len(out) < 4:
            break
        reach = len(out) if rng.random() < 0.6 else min(len(out), 700)
        at = int(rng.integers(reach))
        length = int(rng.integers(1, 20))
        match rng.integers(6):
            case 0 | 1:
                out[at] ^= 1 << int(rng.integers(8))
            case 2:
                out[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, 0xC0, 0xC2, 0xC4, 0xD9, 0xDA]))
            case 3:
                del out[at : at + length]
            case 4:
                out[at:at] = out[at : at + length]
            case 5 if rng.random() < 0.3:
                del out[at + 1 :]
    return bytes(out)


@pytest.mark.parametrize("kind", seeds())
def test_mutants(kind):
    data = seeds()[kind]
    rng = np.random.default_rng([20, *kind.encode()])
    decoder = _C.Decoder(max_pixels=MAX_PIXELS)
    outcomes = {"pixels": 0, "refused": 0}
    for _ in range(400):
        mutant = mutate(data, rng)
        try:
            width, height = _C.probe(mutant)[1:3]
            roi = None
            if rng.random() < 0.5 and 0 < width * height <= MAX_PIXELS:
                x, y = int(rng.integers(width)), int(rng.integers(height))
                roi = (x, y, int(rng.integers(1, width - x + 1)), int(rng.integers(1, height - y + 1)))
            pixels = decoder.decode_rgb(mutant, roi)
        except DecodeError:
            outcomes["refused"] += 1
        else:
            assert pixels.shape == ((height, width, 3) if roi is None else (roi[3], roi[2], 3))
            outcomes["pixels"] += 1
    assert outcomes["refused"] > 0
    assert decoder.decode_rgb(data).size > 0


@pytest.mark.parametrize(
    "head", [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x64\0\0\0WEBP", b"GIF89a", b"II*\0"]
)
def test_a_magic_before_noise(head):
    rng = np.random.default_rng(3)
    decoder = _C.Decoder(max_pixels=MAX_PIXELS)
    for _ in range(200):
        noise = head + rng.bytes(int(rng.integers(0, 300)))
        with pytest.raises(DecodeError):
            decoder.decode_rgb(noise)
