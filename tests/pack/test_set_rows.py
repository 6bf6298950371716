"""Packed sets, and files of other programs that can be indexed, as sources of a pack."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_set import damage
from field_sets import RICH, rich_samples
from pack_trees import class_tree, make_tree, snapshot
from recode_sets import field_set

import fastload
from fastload.errors import PackError
from fastload.packing import PackOptions, pack
from fastload.packing.packer import dry_run, pack_shares, plan_shares, publish_shares
from fastload.packing.shares import ShardRanges
from fastload.packing.verify import verify
from fastload.shard.codecs import COEFFICIENTS, JPEG, PNG, RAW
from fastload.shard.dataset import PackedFiles

OTHER = {"arrow": "hdf5", "hdf5": "lmdb", "lmdb": "arrow"}
ONE: dict[str, Any] = {"num_proc": 1}


@pytest.fixture
def rich(tmp_path: Path, format_name: str) -> Path:
    """A set with fields of every kind, in several shards."""
    fastload.pack(rich_samples(12), tmp_path / "set", RICH, format=format_name, shard_size=12000)
    return tmp_path / "set"


def values(folder: Path, without: frozenset[str] = frozenset()) -> list[tuple[str, dict[str, bytes]]]:
    """Keys, and the bytes of all fields, pictures as files."""
    dataset = PackedFiles(folder)
    names = [name for name in dataset.schema.names if name not in without]
    return [(dataset.key(i), {name: dataset.value_bytes(name, i) for name in names}) for i in range(len(dataset))]


def entries(folder: Path) -> list[Any]:
    """What the index says of the pictures, apart from where they lie."""
    names = ["length", "crc32c", "label", "width", "height", "codec", "channels", "flags"]
    return PackedFiles(folder).records[names].tolist()
