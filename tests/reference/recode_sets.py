"""Sets to recode, and what is compared of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_images import encode, photo
from pack_trees import make_tree, snapshot

import fastload
from fastload import Boxes, Bytes, Image, Label, Mask, Text
from fastload.packing import PackOptions, pack
from fastload.shard.dataset import PackedFiles


@pytest.fixture
def jpegs() -> dict[str, bytes]:
    """See :func:`pictures`."""
    return pictures()


def pictures() -> dict[str, bytes]:
    """JPEGs, one that can be no record, and a PNG."""
    made = {f"c/{i:02d}.jpg": encode(photo(60 + i, 50, i), "JPEG", subsampling=i % 3) for i in range(12)}
    made["d/0.jpg"] = encode(photo(60, 50), "JPEG", "CMYK")
    made["d/1.png"] = encode(photo(60, 50), "PNG")
    return made


@pytest.fixture
def plain(jpegs: dict[str, bytes], tmp_path: Path, format_name: str) -> Path:
    """These as a set of several shards."""
    source = make_tree(tmp_path / "source", jpegs)
    pack(source, tmp_path / "set", PackOptions(format=format_name, shard_size=8000, num_proc=1))
    return tmp_path / "set"


def field_set(folder: Path, format_name: str, jpegs: dict[str, bytes], **options: Any) -> Path:
    """A set of two images, one of them beside a mask, and other values, in several shards."""
    found = [data for name, data in jpegs.items() if name.startswith("c/")]
    mask = np.arange(3000, dtype=np.uint8).reshape(50, 60) % 7
    samples = [
        {
            "label": i % 3, "image": found[i], "second": found[-1 - i], "mask": mask, "bytes": found[i],
            "boxes": np.full((i, 4), [1, 2, 30, 40], np.float32), "text": f"number {i}",
        }
        for i in range(len(found))
    ]  # fmt: skip
    schema = {
        "label": Label(("a", "b", "c")), "image": Image(), "second": Image(), "mask": Mask(),
        "bytes": Bytes(), "boxes": Boxes("xyxy"), "text": Text(),
    }  # fmt: skip
    fastload.pack(samples, folder, schema, format=format_name, **{"shard_size": 12000, **options})
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """A set's files; of the manifest what is not said of earlier forms. LMDB's have a guessed size in them;
    where records lie in them, and their checksums, is in the index."""
    found = {name: data for name, data in snapshot(folder).items() if not name.endswith(".mdb")}
    manifest = json.loads(found["dataset.json"])
    manifest.pop("same_as", None)
    return {**found, "dataset.json": json.dumps(manifest).encode()}


def stored(folder: Path, field: str | None = None) -> list[bytes]:
    dataset = PackedFiles(folder)
    return [dataset.stored(i, field) for i in range(len(dataset))]
