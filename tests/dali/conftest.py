"""Fixtures: photographs of some size, packed, and loaders with either back end."""

from __future__ import annotations

import pytest
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import PackedDataset


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """40 JPEGs of 90 to 170 pixels, label = sample id."""
    blobs = [
        encoded(picture(i, 90 + 17 * i % 80, 90 + 29 * i % 70), quality=70 + i % 25, subsampling=i % 3)
        for i in range(40)
    ]
    return plain_pack(tmp_path_factory.mktemp("photos"), blobs, range(40))
