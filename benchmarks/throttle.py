"""Slow storage out of any disk: reads of this process are held to so many bytes a second by the kernel.

By the block controller of cgroups: v1's ``blkio.throttle.read_bps_device`` or v2's ``io.max``, whichever is
writable (as root it is, on most machines). Reads from the page cache cost nothing, as with any storage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

__all__ = ["NoThrottle", "device_of", "throttled"]

V1 = "blkio.throttle.read_bps_device"
V2 = "io.max"


class NoThrottle(Exception):
    """Reads cannot be held back here; the text says why."""


def device_of(path: Path, root: str = "/") -> str:
    """``major:minor`` of the whole disk that holds ``path``, as the block controller wants it.

    Raises:
        NoThrottle: the file system is on no disk (overlay of one, tmpfs, network, btrfs).
    """
    device = path.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    folder = Path(root, "sys/dev/block", name)
    if not folder.exists():
        raise NoThrottle(f"{path} is on device {name}, which is no disk: choose a --workdir on one.")
    if (folder / "partition").exists():
        return (folder.resolve().parent / "dev").read_text().strip()
    return name


def _home(top: Path, controller: str, root: str) -> Path:
    """The cgroup that this process is in, below ``top``: of a v1 controller, or in v2's hierarchy ("")."""
    for line in Path(root, "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            found = top / path.lstrip("/")
            return found if (found / "cgroup.procs").exists() else top  # a container's path may be the host's
    return top


@contextmanager
def _group(top: Path, name: str, value: str) -> Iterator[Path]:
    """A new cgroup with one control set; raises NoThrottle where that is not possible."""
    group = top / f"fastload-throttle-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise NoThrottle(f"{group}: {error.strerror}") from None
    try:
        if not (group / name).exists():
            raise NoThrottle(f"{top} does not hand {name} down")
        try:
            (group / name).write_text(value)
        except OSError as error:
            raise NoThrottle(f"{group / name}: {error.strerror}") from None
        yield group
    finally:
        group.rmdir()


@contextmanager
def throttled(path: Path, rate: int, root: str = "/") -> Iterator[str]:
    """All threads of this process read the disk of ``path`` with at most ``rate`` bytes a second.

    Yields:
        The name of the control that does it.

    Raises:
        NoThrottle: no such control is writable.
    """
    device, mount = device_of(path, root), Path(root, "sys/fs/cgroup")
    v2, reasons = f"{device} rbps={rate}", []
    for top, controller, name, value in [
        (mount, "", V2, v2),
        (mount / "unified", "", V2, v2),
        (mount / "blkio", "blkio", V1, f"{device} {rate}"),
    ]:
        if not (top / "cgroup.procs").exists():
            continue
        with ExitStack() as stack:
            try:
                group = stack.enter_context(_group(top, name, value))
            except NoThrottle as error:
                reasons.append(str(error))
                continue
            home = _home(top, controller, root)
            stack.callback((home / "cgroup.procs").write_text, str(os.getpid()))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            yield f"cgroup {'v1' if controller else 'v2'} {name}"
            return
    raise NoThrottle(f"no writable block controller below {mount}: {'; '.join(reasons) or 'none mounted'}.")
