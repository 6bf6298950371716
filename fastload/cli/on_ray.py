"""Ray in commands: what it has to say goes to stderr, so that stdout holds the result alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

from fastload.packing.cluster.on_ray import RayCluster

__all__ = ["RAY_HELP", "ray_cluster", "words_to_stderr"]

RAY_HELP = "run on this Ray cluster (auto, HOST:PORT, ray://HOST:PORT), or 'local' for this machine's CPUs"


def words_to_stderr() -> redirect_stdout[TextIO]:
    """A context in which what Ray prints goes to stderr."""
    return redirect_stdout(sys.stderr)


@contextmanager
def ray_cluster(address: str) -> Iterator[RayCluster]:
    """A cluster for the work of a command."""
    with words_to_stderr(), RayCluster(address) as cluster:
        yield cluster
