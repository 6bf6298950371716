"""Where the kernel keeps this process's limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["cgroup_folders"]


def cgroup_folders(controller: str, root: str = "/") -> Iterator[Path]:
    """The cgroup folders of this process that may hold a limit of ``controller``, inmost first.

    Knows cgroup v2, v1 ("cpu", "memory"; mounted together with others, too) and both at once. Not all of the
    folders need exist: in a container the path may be the host's, which is not mounted, or lead out of the
    namespace ("/../x"), and what is mounted is the container's own.
    """
    mount = Path(root) / "sys/fs/cgroup"
    try:
        lines = (Path(root) / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = ["0::/", f"1:{controller}:/"]
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part]
        parts = [] if ".." in parts else parts
        for top in [mount / controllers, mount / controller] if controllers else [mount, mount / "unified"]:
            for depth in range(len(parts), -1, -1):
                yield top.joinpath(*parts[:depth])
