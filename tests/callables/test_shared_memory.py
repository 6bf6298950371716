"""Worker processes where /dev/shm is full, read-only or small: an error that names it and the cure, and no
hang."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from own_mounts import with_mounts

from fastload.backends import worker_processes as shared_memory
from fastload.backends.worker_processes import (
    Sharing,
    named_shortage,
    no_room_error,
    share,
    shared_memory_error,
)

MOUNTS = {
    "full": ("mount -t tmpfs -o size=4k tmpfs /dev/shm; head -c 4096 /dev/zero > /dev/shm/x", errno.ENOSPC),
    "small": ("mount -t tmpfs -o size=100k tmpfs /dev/shm", errno.ENOSPC),
    "read-only": ("mount -t tmpfs -o ro tmpfs /dev/shm", errno.EROFS),
}
CODE = """
    import sys, torch
    from fastload import DataLoader, transforms as T

    def pad(image): return torch.zeros(50_000)
    def joined(samples): return {"all": torch.zeros(200_000), "labels": [sample[1] for sample in samples]}
    def place(samples): return samples

    class Numbers(torch.utils.data.Dataset):
        def __len__(self): return 40
        def __getitem__(self, i): return torch.zeros(50_000), i

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self): return iter([(torch.zeros(50_000), i) for i in range(40)])

    folder, kind = sys.argv[1:]
    steps = T.Compose([T.RandomResizedCrop(16), T.ToDtype("uint8"), pad])
    loader = {
        "callable": lambda: DataLoader(folder, 4, num_workers=2, transform=steps),
        "collate_fn": lambda: DataLoader(folder, 4, num_workers=2, transform=steps, collate_fn=joined),
        "no batches": lambda: DataLoader(folder, None, num_workers=2, transform=steps),
        "dataset": lambda: DataLoader(Numbers(), 4, num_workers=2),
        "dataset, collate_fn": lambda: DataLoader(Numbers(), 4, num_workers=2, collate_fn=joined),
        "dataset, no batches": lambda: DataLoader(Numbers(), None, num_workers=2),
        "stream": lambda: DataLoader(Stream(), 4, num_workers=2, collate_fn=joined),
        "inline": lambda: DataLoader(folder, 4, num_workers=0, transform=steps),
        "core": lambda: DataLoader(folder, 4, num_workers=2, transform=T.RandomResizedCrop(224)),
    }[kind]()
    print(sum(1 for _ in loader), "batches")
"""
FAILING = [
    "callable",
    "collate_fn",
    "no batches",
    "dataset",
    "dataset, collate_fn",
    "dataset, no batches",
    "stream",
]


@pytest.mark.parametrize(
    ("mounts", "kind"),
    [
        *(("small", kind) for kind in FAILING),
        *((how, kind) for how in ("full", "read-only") for kind in ("callable", "dataset")),
    ],
)
def test_the_error_names_the_file_system_and_the_cure(folder: Path, mounts: str, kind: str) -> None:
    line, number = MOUNTS[mounts]
    done = with_mounts(line, CODE, folder, kind)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"OSError: [Errno {number}] worker processes hand over batches in the file system /dev/shm"
    )
    assert "num_workers=0" in last
    assert ("--shm-size" if number == errno.ENOSPC else "mount -t tmpfs") in last
    assert "SampleError" not in done.stderr  # no sample is to blame


@pytest.mark.parametrize("kind", ["inline", "core"])
def test_what_needs_none_of_it_works(folder: Path, kind: str) -> None:
    done = with_mounts(MOUNTS["full"][0], CODE, folder, kind)
    assert (done.returncode, done.stdout.strip()) == (0, "13 batches"), done.stderr


TORCHS = [
    "unable to allocate shared memory(shm) for file </torch_6988_508459291_3>: No space left on device (28)",
    "unable to open shared memory object </torch_31_41_0> in read-write mode: Permission denied (13)",
    "unable to open file </torch_1_2_3> in read-write mode: Read-only file system (30)",
    "unable to resize file </torch_1_2_3> to the right size: No space left on device (28)",
    "unable to write to file </torch_1_2_3>: No space left on device (28)",
]


@pytest.mark.parametrize("words", TORCHS)
def test_torchs_words(words: str) -> None:
    found = shared_memory_error(RuntimeError(words))
    assert found is not None
    assert f"({found.errno})" in words
    assert found.filename == "/dev/shm"
    assert shared_memory_error(ValueError(words)) is None


@pytest.mark.parametrize(
    "words", ["", "CUDA out of memory (2)", "shared memory", "unable to open file x (2)"]
)
def test_other_words(words: str) -> None:
    assert shared_memory_error(RuntimeError(words)) is None


def test_an_error_that_names_a_file_stays() -> None:
    with pytest.raises(OSError, match="elsewhere") as caught, named_shortage():
        raise OSError(errno.ENOSPC, "No space left on device", "/elsewhere")
    assert caught.value.filename == "/elsewhere"
    with pytest.raises(OSError, match="Too many open files"), named_shortage():
        raise OSError(errno.EMFILE, "Too many open files")
    with (
        pytest.raises(OSError, match="/dev/shm, which has .* free: No space left on device"),
        named_shortage(),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_without_the_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "PLACE", "/dev/no-such-place")
    assert "/dev/no-such-place: No such file or directory. Mount a tmpfs there" in str(
        no_room_error(errno.ENOENT)
    )


def test_all_tensors_of_a_batch_are_shared() -> None:
    batch: dict[str, Any] = {
        "a": torch.zeros(3),
        "b": [torch.ones(2), (torch.ones(1), "text", None)],
        "c": {"d": torch.arange(4).reshape(2, 2).t()},
    }
    share(batch)
    assert batch["a"].is_shared()
    assert batch["b"][0].is_shared()
    assert batch["b"][1][0].is_shared()
    assert batch["c"]["d"].is_shared()
    share(torch.zeros(3).to_sparse())
    share([object(), 3, "text"])
    assert Sharing(torch.stack)([torch.zeros(2)] * 2).is_shared()
