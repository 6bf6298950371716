"""A disk tier below a set in a store: what it has is not fetched again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fault_server import FaultServer

from fastload import DataLoader, PackedDataset, transforms

SMALL = transforms.Resize((32, 32))


@pytest.mark.parametrize("shuffle", [True, "block"])
def test_a_second_job_fetches_no_record(
    packed: PackedDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shuffle: bool | str,
) -> None:
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    files = [path for path in packed.folder.rglob("*") if path.is_file()]
    objects = {f"/a/{path.relative_to(packed.folder).as_posix()}": path.read_bytes() for path in files}
    cache = ["off", f"{tmp_path}/disk:1GB"]
    found = []
    for job in ("first", "second"):
        # A server each: what the first job has given up may come to its server after its end.
        with FaultServer(objects) as server:
            with DataLoader(
                f"{server.url}/a", 8, shuffle=shuffle, transform=SMALL, cache=cache, seed=1, num_workers=2
            ) as loader:
                found.append([(images.numpy(), labels.numpy()) for images, labels in loader])
                tier = loader.stats()["cache"]["disk"]
            shards = {f"/a/{shard.file}" for shard in packed.manifest.shards}
            asked = [each for each in server.requests if each.path in shards and "range" in each.headers]
        if job == "first":
            assert len(asked) > 0
            assert tier["stored"] > 0
            # Records that were not kept: too many others were being written. And those that two store
            # at the same time, when the next epoch begins, have a slot each, so that others may have none.
            lost = tier["busy"] + 4
    assert len(asked) <= lost
    assert tier["misses"] <= lost
    with DataLoader(packed, 8, shuffle=shuffle, transform=SMALL, seed=1, num_workers=2) as loader:
        wanted = [(images.numpy(), labels.numpy()) for images, labels in loader]
    for batches in found:
        assert len(batches) == len(wanted) > 0
        for (images, labels), (images_, labels_) in zip(batches, wanted, strict=True):
            assert np.array_equal(images, images_)
            assert np.array_equal(labels, labels_)
