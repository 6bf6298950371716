"""A worse machine out of any: slow storage, fewer CPUs, a neighbour. This process is held back by the kernel.

Storage by the block controller of cgroups: v1's ``blkio.throttle.read_bps_device`` or v2's ``io.max``,
whichever is writable (as root it is, on most machines). Reads from the page cache cost nothing, as with any
storage. CPUs by the CPU controller's quota.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

__all__ = ["NoThrottle", "busy_neighbour", "device_of", "quota_of_cpus", "throttled"]

V1 = "blkio.throttle.read_bps_device"
V1_READS = "blkio.throttle.read_iops_device"
V2 = "io.max"
V2_CPU = "cpu.max"
V1_CPU = "cpu.cfs_quota_us"
PERIOD = 100_000  # microseconds, as the kernel has it at first


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
def throttled(path: Path, rate: int, root: str = "/", reads: bool = False) -> Iterator[str]:
    """All threads of this process read the disk of ``path`` with at most ``rate`` bytes a second.

    Args:
        path: of a file or folder on the disk.
        rate: bytes a second; with ``reads`` requests a second.
        root: of the file system.
        reads: whether requests are counted, not bytes.

    Yields:
        The name of the control that does it.

    Raises:
        NoThrottle: no such control is writable.
    """
    device, mount = device_of(path, root), Path(root, "sys/fs/cgroup")
    v1, v2 = (V1_READS, "riops") if reads else (V1, "rbps")
    with _held_back(
        [
            (mount, "", V2, f"{device} {v2}={rate}"),
            (mount / "unified", "", V2, f"{device} {v2}={rate}"),
            (mount / "blkio", "blkio", v1, f"{device} {rate}"),
        ],
        root,
    ) as name:
        yield name


@contextmanager
def quota_of_cpus(cpus: float, root: str = "/") -> Iterator[str]:
    """This process and its children get no more than so many CPUs' time.

    Raises:
        NoThrottle: no such control is writable.
    """
    mount, quota = Path(root, "sys/fs/cgroup"), round(cpus * PERIOD)
    with _held_back(
        [
            (mount, "", V2_CPU, f"{quota} {PERIOD}"),
            (mount / "unified", "", V2_CPU, f"{quota} {PERIOD}"),
            (mount / "cpu", "cpu", V1_CPU, str(quota)),
            (mount / "cpu,cpuacct", "cpu", V1_CPU, str(quota)),
        ],
        root,
    ) as name:
        yield name


@contextmanager
def busy_neighbour(processes: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    line = ["sh", "-c", "while :; do :; done"]
    running = [subprocess.Popen(line, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@contextmanager
def _held_back(controls: list[tuple[Path, str, str, str]], root: str) -> Iterator[str]:
    """This process in a cgroup of its own, with the first control (top, controller, name, value) there is."""
    reasons: list[str] = []
    for top, controller, name, value in controls:
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
    mount = Path(root, "sys/fs/cgroup")
    kind = "CPU" if "cpu" in controls[0][2] else "block"
    raise NoThrottle(f"no writable {kind} controller below {mount}: {'; '.join(reasons) or 'none mounted'}.")
