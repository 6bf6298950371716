"""Lengths of samples with texts and pictures, as vision-language sets have them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Lengths(NamedTuple):
    """Of each sample: all tokens, those of pictures among them, and the number of pictures."""

    tokens: np.ndarray
    of_pictures: np.ndarray
    pictures: np.ndarray


def usual(count: int, seed: int = 0) -> Lengths:
    """Text log-normal (median 250, sigma 0.9, within 50 to 2,000), 0 to 8 pictures (12% none, 58% one).

    A picture's tokens are log-uniform from 64 to 4,096; several of a sample have fewer each, together at most
    6,000. Mean: 1,390 tokens, 74% of pictures.
    """
    return _drawn(count, seed, 250, (64, 4096), 0.3)


def long(count: int, seed: int = 0) -> Lengths:
    """The same with text of a median of 900, and 512 to 10,000 tokens for each sample's pictures.

    10% have more than 8,192 tokens; the mean of the others is 3,207.
    """
    return _drawn(count, seed, 900, (512, 10_000), 0.0)


def _drawn(count: int, seed: int, text: int, picture: tuple[int, int], more: float) -> Lengths:
    rng = np.random.default_rng(seed)
    words = np.clip(rng.lognormal(np.log(text), 0.9, count), 50, 2000)
    pictures = rng.choice(9, count, p=[0.12, 0.58, *[0.3 / 7] * 7])
    each = np.exp(rng.uniform(np.log(picture[0]), np.log(picture[1]), count))
    together = np.minimum(each * np.maximum(pictures, 1) ** more, max(6000, picture[1]))
    of_pictures = np.where(pictures > 0, together, 0.0).astype(np.int64)
    return Lengths(words.astype(np.int64) + of_pictures, of_pictures, pictures)
