"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pictures import jpegs
from plain_pack import plain_pack
from process import threads

from fastload.shard.dataset import PackedDataset


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests skip without CUDA, but fail where FASTLOAD_REQUIRE_CUDA=1 promises one."""
    import torch

    if torch.cuda.is_available() or os.environ.get("FASTLOAD_REQUIRE_CUDA") == "1":
        return
    for item in items:
        if item.get_closest_marker("cuda") is not None:
            item.add_marker(pytest.mark.skip(reason="needs CUDA"))


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """52 JPEGs in 5 classes, packed in the plain way."""
    labels = [i % 5 for i in range(52)]
    return plain_pack(tmp_path_factory.mktemp("packed"), jpegs(52), labels, ["a", "b", "c", "d", "e"])


@pytest.fixture(scope="session")
def folder(packed: PackedDataset) -> Path:
    """The folder of ``packed``."""
    return packed.folder


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """The test leaves no thread and no file descriptor behind."""
    gc.collect()
    before = threads(), len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert (threads(), len(os.listdir("/proc/self/fd"))) == before
