"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from object_server import ObjectServer
from pictures import jpegs
from plain_pack import plain_pack
from process import SLOWER, left_over, settled, tasks
from slow_list import LIMIT, SlowList, unknown_cases

from fastload import PackedDataset

SLOW = SlowList.read()
MUCH = 10 * LIMIT  # seconds: a test that lasts as long, and is not listed as slow, is named at the end
_UNKNOWN = pytest.StashKey[list[str]]()


def pytest_configure() -> None:
    """Ctrl-C is heard, by the tests' processes too: a shell starts what runs in the background deaf to it.

    The node cache has no place but in tests of its own: where temporary files are on a network file system,
    each loader would leave one in memory.
    """
    os.environ["FASTLOAD_CACHE_DIR"] = "/proc/no-cache-in-tests"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if find_spec("hypothesis"):  # the frameworks' environments have none
        from hypothesis import HealthCheck, settings

        # How fast a machine makes examples is no fault of the code.
        settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)  # before "-m" chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that tests/slow.txt lists are slow.

    Limits that tests have of their own are for a real machine: an emulated one is slower.
    Tests of what is not here skip, but fail where FASTLOAD_REQUIRE_CUDA=1 or _DALI=1 promises it.
    """
    import torch

    for item in items:
        if SLOW.is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)
        limit = item.get_closest_marker("timeout")
        if SLOWER != 1 and limit is not None:
            item.add_marker(pytest.mark.timeout(limit.args[0] * SLOWER), append=False)
    if not any("::" in argument for argument in config.args):  # otherwise a test's other cases are not here
        config.stash[_UNKNOWN] = unknown_cases(SLOW, [item.nodeid for item in items])

    here = {"cuda": torch.cuda.is_available(), "dali": find_spec("nvidia") and find_spec("nvidia.dali")}
    for marker, found in here.items():
        if found or os.environ.get(f"FASTLOAD_REQUIRE_{marker.upper()}") == "1":
            continue
        for item in items:
            if item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=f"needs {marker.upper()}"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says which lines tests/slow.txt lacks, and which name no test. Machines differ: nothing fails."""
    lasted: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                lasted[report.nodeid] = lasted.get(report.nodeid, 0.0) + report.duration
    missing = {name: each for name, each in lasted.items() if each >= MUCH and SLOW.is_unknown(name)}
    said = [f"{each:7.1f} s  {name}" for name, each in sorted(missing.items(), key=lambda item: -item[1])]
    said += [f"no such case: {name}" for name in config.stash.get(_UNKNOWN, [])]
    if said:
        terminalreporter.section("tests/slow.txt does not know (tools/mark_slow.py writes it)")
        terminalreporter.write_line("\n".join(said))


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """52 JPEGs in 5 classes, packed in the plain way."""
    labels = [i % 5 for i in range(52)]
    return plain_pack(tmp_path_factory.mktemp("packed"), jpegs(52), labels, ["a", "b", "c", "d", "e"])


@pytest.fixture(scope="session")
def folder(packed: PackedDataset) -> Path:
    """The folder of ``packed``."""
    return packed.folder


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """SeaweedFS, an S3 server with ``endpoint``, ``environment``, ``client()`` and ``make_bucket()``."""
    server = ObjectServer(tmp_path_factory.mktemp("object-server"))
    yield server
    server.stop()


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """The test leaves no thread and no file descriptor behind."""
    gc.collect()
    before, files = tasks(), len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert left_over(before) == set()
    assert settled(lambda: len(os.listdir("/proc/self/fd")), files) == files


@pytest.fixture
def leased(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each batch that was begun."""
    from fastload.prefetch.slots import SlotPool

    found: list[int] = []
    lease = SlotPool.lease

    def spy(self: SlotPool, layout: Any, must: bool = False) -> Any:
        found.append(layout.nbytes)
        return lease(self, layout, must)

    monkeypatch.setattr(SlotPool, "lease", spy)
    return found
