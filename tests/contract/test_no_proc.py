"""Without /proc, as in some chroots and sandboxes: loaders and commands work, or say what they need of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_mounts import with_mounts

from fastload.machine.memory import available_memory, memory_rooms

NO_PROC = "mount -t tmpfs tmpfs /proc"
LOADS = """
    import sys
    from fastload import Cache, DataLoader, transforms as T

    def same(image): return image

    folder, place, kind = sys.argv[1:]
    options = {
        "default": {},
        "cache off": {"cache": "off"},
        "memory": {"cache": "10MB"},
        "decoded": {"cache": Cache("10MB", decoded=40)},
        "callables": {"transform": T.Compose([T.RandomResizedCrop(16), T.ToDtype("uint8"), same])},
        "autotune": {"autotune": True},
        "disk tier": {"cache": ["10MB", place + "/tier:30MB"]},
    }[kind]
    crop = T.RandomResizedCrop(16)
    with DataLoader(folder, 4, shuffle=True, num_workers=2, **{"transform": crop, **options}) as loader:
        print(sum(len(labels) for _ in range(2) for _, labels in loader), "samples")
"""


@pytest.mark.parametrize("kind", ["default", "cache off", "memory", "decoded", "callables", "autotune"])
def test_loaders_work(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", "/dev/shm/fastload-test-no-proc")
    mounts = f"{NO_PROC}; mount -t tmpfs tmpfs /dev/shm; mkdir -m 700 /dev/shm/fastload-test-no-proc"
    done = with_mounts(mounts, LOADS, folder, tmp_path, kind)
    assert (done.returncode, done.stdout.strip()) == (0, "104 samples"), done.stderr


def test_a_disk_tier_says_what_it_needs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", "/dev/shm")
    done = with_mounts(f"{NO_PROC}; mount -t tmpfs tmpfs /dev/shm", LOADS, folder, tmp_path, "disk tier")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "cannot be used as a disk tier, because /proc is not there. Mount it" in last


@pytest.mark.parametrize("line", ["info {set}", "verify {set}", "plan {set}", "unpack {set} {out}/back"])
def test_commands_work(folder: Path, tmp_path: Path, line: str) -> None:
    words = line.format(set=folder, out=tmp_path).split()
    done = with_mounts(
        NO_PROC, "import sys; from fastload.cli import main; sys.exit(main(sys.argv[1:]))", *words
    )
    assert done.returncode == 0, done.stderr


def test_the_machines_free_memory_is_taken(tmp_path: Path) -> None:
    [room] = memory_rooms(str(tmp_path))
    assert 0 < room.free == pytest.approx(available_memory(str(tmp_path)), rel=0.5)
    assert "there is no /proc/meminfo" in room.name
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 5 kB\n")  # of an old kernel
    assert memory_rooms(str(tmp_path))[0].free > 5 << 10
