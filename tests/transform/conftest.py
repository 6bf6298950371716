"""Fixtures of the transform tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fastload._native import _C


def available_levels() -> list[str]:
    """The instruction sets of this machine, lowest first."""
    before, found = _C.simd_level(), []
    for level in ("scalar", "neon", "sse4", "avx2", "avx512"):
        _C.set_simd_level(level)
        if _C.simd_level() == level:
            found.append(level)
    _C.set_simd_level(before)
    return found


@pytest.fixture(params=available_levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test with each instruction set."""
    before = _C.simd_level()
    _C.set_simd_level(request.param)
    yield request.param
    _C.set_simd_level(before)


@pytest.fixture
def levels() -> Iterator[list[str]]:
    """All instruction sets, for tests that compare them; the level is restored afterwards."""
    before = _C.simd_level()
    yield available_levels()
    _C.set_simd_level(before)
