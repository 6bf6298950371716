"""Fixtures of this folder: a dataset whose labels are its sample ids, and the tools on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pictures import encoded, picture
from plain_pack import plain_pack
from process import SLOWER

sys.path.append(str(Path(__file__).parent))

SAMPLES = 53  # a prime: no number of ranks or batches divides it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several interpreters start in each of these: on a busy machine that takes its time."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(600 * SLOWER))


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed folder of 53 small JPEGs; sample i has label i."""
    folder = tmp_path_factory.mktemp("numbered")
    blobs = [encoded(picture(i, 24, 20)) for i in range(SAMPLES)]
    plain_pack(folder, blobs, range(SAMPLES), [f"{i:02d}" for i in range(SAMPLES)])
    return folder
