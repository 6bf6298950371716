"""What was packed from samples comes out of the DataLoader: every pixel, every value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_samples import SCHEMA, sample

import fastload

VALUES = ("age", "flag", "pose", "track", "bits", "boxes", "points", "second", "caption", "extra", "facts")
PICTURES = {
    "image": ("image", (20, 24, 3), np.uint8, 256),
    "gray": ("image(1)", (20, 24), np.uint8, 256),
    "depth": ("image(1, 16)", (20, 24), np.uint16, 65536),
    "bands": ("image(5)", (20, 24, 5), np.uint8, 256),
    "spectra": ("image(7, 16)", (20, 24, 7), np.uint16, 65536),
    "rgb16": ("image(3, 16)", (20, 24, 3), np.uint16, 65536),
    "mask": ("mask", (20, 24), np.uint8, 256),
    "ids": ("mask(bits=16, ignore=65535)", (20, 24), np.int64, 65536),
}


@pytest.mark.parametrize("format_name", ["arrow", "lmdb", "hdf5"])
def test_pixels_of_every_kind(tmp_path: Path, format_name: str) -> None:
    rng = np.random.default_rng(0)
    samples = [
        {
            name: rng.integers(0, most, shape).astype(dtype)
            for name, (_, shape, dtype, most) in PICTURES.items()
        }
        for _ in range(16)
    ]
    schema = {name: kind for name, (kind, _, _, _) in PICTURES.items()}
    fastload.pack(samples, tmp_path / "set", schema, format=format_name, shard_size=100_000)
    [batch] = list(fastload.DataLoader(tmp_path / "set", batch_size=16))
    for name, (_, shape, _, _) in PICTURES.items():
        wanted = np.stack([one[name] for one in samples])
        found = batch[name].numpy()
        if found.ndim == 4:  # channels first
            found = found.transpose(0, 2, 3, 1).reshape(16, *shape)
        assert np.array_equal(found, wanted), name


def test_values_of_every_kind(tmp_path: Path) -> None:
    schema = {"image": "image", **{name: SCHEMA[name].kind for name in VALUES}}
    samples = [{**sample(i), "image": np.zeros((8, 8, 3), np.uint8)} for i in range(24)]
    fastload.pack(samples, tmp_path / "set", schema)
    [batch] = list(fastload.DataLoader(tmp_path / "set", batch_size=24))
    for name in VALUES:
        field = SCHEMA[name]
        wanted = [field.decode(field.encode(one[name])) for one in samples]
        found = batch[name].to_list() if isinstance(batch[name], fastload.Ragged) else list(batch[name])
        assert len(found) == 24
        for i, (have, want) in enumerate(zip(found, wanted, strict=True)):
            assert _same(have, want), (name, i)


def _same(have: Any, want: Any) -> bool:
    if isinstance(want, (np.ndarray, np.generic, int)):
        return np.array_equal(np.asarray(have), np.asarray(want))
    return bool(have == want)
