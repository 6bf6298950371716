"""Shards that MosaicML Streaming's MDSWriter made, indexed in place: the samples that MDSReader reads."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
import streaming
from pictures import jpegs
from PIL import Image
from streaming.base.format.mds.reader import MDSReader

from fastload import PackedDataset
from fastload.errors import FormatError
from fastload.packing.foreign import index_files
from fastload.packing.verify import verify

COUNT = 30
# streaming leaves the closing of its files to the garbage collector
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
COLUMNS = {
    "picture": "bytes", "jpg": "jpeg", "y": "int", "caption": "str", "facts": "json", "score": "float32",
    "pose": "ndarray:float32:2,3", "small": "uint8", "any": "ndarray",
}  # fmt: skip


def rows() -> list[dict[str, Any]]:
    blobs = jpegs(2 * COUNT)
    return [
        {
            "picture": blobs[COUNT + i],
            "jpg": Image.open(io.BytesIO(blobs[i])),
            "y": i % 5,
            "caption": f"é {i}",
            "facts": {"a": [i, None]},
            "score": np.float32(i / 3),
            "pose": np.full((2, 3), i, np.float32),
            "small": np.uint8(i),
            "any": np.arange(i + 1),
        }
        for i in range(COUNT)
    ]


def write(folder: Path, **options: Any) -> Path:
    with streaming.MDSWriter(out=str(folder), columns=COLUMNS, size_limit=1 << 16, **options) as writer:
        for row in rows():
            writer.write(row)
    return folder


def test_the_samples_are_streamings(tmp_path: Path) -> None:
    source = write(tmp_path / "mds")
    manifest = index_files([source], tmp_path / "out")
    assert len(manifest.shards) > 1
    dataset = PackedDataset(tmp_path / "out")
    number = 0
    for shard in shards(source):
        for place in range(shard.samples):
            theirs = shard.decode_sample(shard.get_sample_data(place))
            found = dataset.sample(number)
            assert found["label"] == theirs["y"]
            assert (found["caption"], found["facts"]) == (theirs["caption"], theirs["facts"])
            assert found["pose"].tolist() == theirs["pose"].tolist()
            assert found["picture"] == theirs["picture"]
            assert (found["score"], found["small"]) == (theirs["score"], theirs["small"])
            theirs["jpg"].fp.seek(0)
            assert dataset.read(number) == theirs["jpg"].fp.read()
            number += 1
    assert number == len(dataset) == COUNT
    assert verify(tmp_path / "out", decode=True) == ([], COUNT)


def shards(folder: Path) -> list[MDSReader]:
    index = json.loads((folder / "index.json").read_text())
    return [MDSReader.from_json(str(folder), None, shard) for shard in index["shards"]]


def test_compressed_shards_name_what_unpacks_them(tmp_path: Path) -> None:
    source = write(tmp_path / "mds", compression="zstd")
    with pytest.raises(FormatError, match=r"streaming\.StreamingDataset\(remote="):
        index_files([source], tmp_path / "out")
    for _ in streaming.StreamingDataset(remote=str(source), local=str(tmp_path / "plain"), batch_size=1):
        pass
    index_files([tmp_path / "plain"], tmp_path / "out")
    found = PackedDataset(tmp_path / "out")
    assert [found.sample(i)["caption"] for i in range(COUNT)] == [row["caption"] for row in rows()]
