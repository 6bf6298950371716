"""fastload warm: alone, several at once, killed and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_folder import OpenFolder, claim_first_record
from plain_pack import plain_pack

import fastload.cache.warming
from fastload import DataLoader, PackedDataset, Ranks
from fastload._native import _C
from fastload.cache.files import attach, inspect
from fastload.cache.folder import PrivateFolder
from fastload.cli import main

SIDE = 300
COUNT = 70  # records of 270 kB: 18.9 MB, three chunks
CHUNK = 32  # records in the first of them
TIMEOUT = 120.0


@pytest.fixture
def root(memory: OpenFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not _C.file_system(str(memory.path))["in_memory"]:
        pytest.skip("no file system in memory has room")
    found = os.statvfs(memory.path)
    if found.f_bavail * found.f_frsize < 40_000_000:
        pytest.skip("the file system in memory has less than 40 MB free")
    monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(memory.path))
    return memory.path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    rng = np.random.default_rng(0)
    blobs = [rng.integers(0, 256, 3 * SIDE * SIDE, np.uint8).tobytes() for _ in range(COUNT)]
    return plain_pack(tmp_path_factory.mktemp("warm") / "set", blobs, range(COUNT), raw_size=(SIDE, SIDE))


def warm(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    """Exit code and what it says of the one set."""
    status = main(["warm", *map(str, words), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert len(found["sets"]) == 1
    return status, found["sets"][0]


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fastload", "warm", *map(str, words), "--json", "--threads", "3"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)["sets"][0]
    return found


def ready(root: Path) -> int:
    """Ready records of the only set, 0 before there is one."""
    try:
        with PrivateFolder(root) as folder:
            names = [name for name in os.listdir(folder.fd) if name.endswith(".flc")]
            return inspect(folder, names[0]).ready_records if names else 0
    except FileNotFoundError:
        return 0


def wait_for_ready(root: Path, records: int) -> None:
    limit = time.monotonic() + TIMEOUT
    while ready(root) < records:
        assert time.monotonic() < limit, f"{ready(root)} of {records} records are ready"
        time.sleep(0.01)


def claim(root: Path) -> int:
    (path,) = (root / f"fastload-{os.geteuid()}").glob("*.flc")
    try:
        return claim_first_record(path)
    except OSError as error:
        pytest.skip(f"this kernel has no locks of open file descriptions: {error}")


def test_the_next_loader_finds_it_by_itself(
    root: Path, dataset: PackedDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    size = dataset.manifest.data_bytes
    status, found = warm(capsys, dataset.folder, "--to", root)
    assert status == 0
    assert (found["place"], found["whole"], found["put_records"]) == ("cache", True, COUNT)
    assert found["read_bytes"] == found["put_bytes"] == size
    status, found = warm(capsys, dataset.folder)  # which now is the better place
    assert status == 0
    assert (found["there_bytes"], found["read_bytes"], found["requests"]) == (size, 0, 0)
    with DataLoader(dataset.folder, 10, shuffle=True, num_workers=1, seed=0) as loader:
        for images, labels in loader:
            for image, label in zip(images, labels.tolist(), strict=True):
                expected = np.frombuffer(dataset.read(label), np.uint8).reshape(SIDE, SIDE, 3)
                assert (image.permute(1, 2, 0).numpy() == expected).all()
        cache = loader.stats()["cache"]
        assert cache["hits"] >= COUNT  # and some that the next epoch begins with
        assert cache["misses"] == 0
    assert dataset.cache is None


def test_a_limit_warms_a_part(root: Path, dataset: PackedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = warm(capsys, dataset.folder, "--limit", "9MB")
    assert status == 3
    assert not found["whole"]
    assert found["records"] + found["no_room_records"] == COUNT
    assert 7e6 < found["put_bytes"] == found["bytes"] < 9e6
    assert main(["warm", str(dataset.folder), "--limit", "9MB"]) == 3
    assert f"no room for {found['no_room_records']} records" in capsys.readouterr().out


def test_the_page_cache(root: Path, dataset: PackedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    if any(_C.file_system(str(dataset.folder)).values()):
        pytest.skip("temporary files are not on a local disk")
    status, found = warm(capsys, dataset.folder)
    assert status == 0
    assert (found["place"], found["path"], found["records"]) == ("page cache", None, COUNT)
    assert "page cache" in found["reason"]
    assert found["there_records"] + found["put_records"] == COUNT
    assert ready(root) == 0
    assert main(["warm", str(dataset.folder), "--page-cache", "--limit", "5MB", "--json"]) == 3


def test_only_what_some_ranks_read(
    root: Path, dataset: PackedDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (dataset.folder, "--to", root, "--batch-size", 5, "--seed", 7, "--epoch", 2, "--ranks")
    status, found = warm(capsys, *words, "1/7")
    assert (status, found["records"], found["put_records"]) == (0, 10, 10)
    with DataLoader(dataset.folder, 5, shuffle=True, seed=7, ranks=Ranks(1, 7), num_workers=1) as loader:
        loader.set_epoch(2)
        assert sum(len(labels) for _, labels in loader) == 10
        # The next epoch's are read ahead; they are others.
        assert loader.stats()["cache"]["hits"] >= 10
    status, found = warm(capsys, *words, "0-6/7")
    assert (status, found["records"]) == (0, COUNT)


def test_a_record_that_cannot_be_read(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = plain_pack(tmp_path / "set", [bytes([i]) * 3000 for i in range(20)], raw_size=(10, 100))
    with (dataset.folder / "data.bin").open("r+b") as file:
        file.seek(7 * 3000 + 5)
        file.write(b"\xff")
    status, found = warm(capsys, dataset.folder, "--to", root)
    assert status == 4
    assert (found["put_records"], found["failed_records"]) == (19, 1)
    (failure,) = found["failures"]
    assert failure["sample"] == 7
    assert "CRC-32C" in failure["reason"]
    assert main(["warm", str(dataset.folder), "--to", str(root)]) == 4
    assert "sample 7: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--limit", "12"],
        ["--ranks", "4/4"],
        ["--ranks", "x"],
        ["--threads", "0"],
        ["--to", "/x", "--page-cache"],
    ],
)
def test_wrong_usage(dataset: PackedDataset, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", str(dataset.folder), *words]) == 2
    assert "See 'fastload warm --help'." in capsys.readouterr().err


def test_no_place_is_an_error(
    root: Path, dataset: PackedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["warm", str(dataset.folder), "--to", str(tmp_path / "none")]) == 1
    assert "fastload warm: " in capsys.readouterr().err


def test_eight_at_once_read_each_byte_once(root: Path, dataset: PackedDataset) -> None:
    warmers = [start(dataset.folder, "--to", root) for _ in range(8)]
    found = [finish(warmer) for warmer in warmers]
    os.close(claim(root))  # skips where nobody can claim anything
    assert sum(each["read_bytes"] for each in found) == dataset.manifest.data_bytes
    assert sum(each["put_records"] for each in found) == COUNT
    assert all(each["there_records"] + each["put_records"] == COUNT for each in found)


def test_killed_and_run_again_it_goes_on(
    root: Path, dataset: PackedDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another holds the first chunk, so that the one that is killed has done the others, and is waiting."""
    with PrivateFolder(root, create=True):
        pass
    assert (
        warm(capsys, dataset.folder, "--to", root, "--ranks", "0/70", "--shuffle", "none")[1]["records"] == 1
    )
    held = claim(root)
    warmer = start(dataset.folder, "--to", root)
    wait_for_ready(root, COUNT - CHUNK + 1)
    warmer.send_signal(signal.SIGKILL)
    warmer.communicate(timeout=TIMEOUT)
    assert ready(root) == COUNT - CHUNK + 1
    os.close(held)
    status, found = warm(capsys, dataset.folder, "--to", root)
    assert status == 0
    assert (found["put_records"], found["there_records"]) == (CHUNK - 1, COUNT - CHUNK + 1)


def test_what_a_dead_warmer_had_claimed_is_taken_over(
    root: Path, dataset: PackedDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        warm(capsys, dataset.folder, "--to", root, "--ranks", "0/70", "--shuffle", "none")[1]["records"] == 1
    )
    os.close(claim(root))
    code = f"import sys, time; sys.path.append({str(Path(__file__).parents[1] / 'reference')!r})\n"
    code += "from pathlib import Path; from cache_folder import claim_first_record\n"
    code += "held = claim_first_record(next(Path(sys.argv[1]).glob('*.flc')))\n"
    code += "print('held', flush=True); time.sleep(600)"
    arguments = [sys.executable, "-c", code, str(root / f"fastload-{os.geteuid()}")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        warmer = start(dataset.folder, "--to", root)
        wait_for_ready(root, COUNT - CHUNK + 1)
        assert warmer.poll() is None  # it waits for the chunk that is claimed
        holder.kill()
    assert finish(warmer)["put_records"] == COUNT - 1
    assert ready(root) == COUNT


def test_ctrl_c_ends_it_at_once(
    root: Path, dataset: PackedDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        warm(capsys, dataset.folder, "--to", root, "--ranks", "0/70", "--shuffle", "none")[1]["records"] == 1
    )
    held = claim(root)
    warmer = start(dataset.folder, "--to", root)
    wait_for_ready(root, COUNT - CHUNK + 1)
    warmer.send_signal(signal.SIGINT)
    assert warmer.communicate(timeout=TIMEOUT)[0] == ""
    assert warmer.returncode == 130
    os.close(held)


def test_a_process_that_was_stopped_is_not_waited_for_for_ever(
    root: Path, dataset: PackedDataset, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has claimed records, and a table, and does nothing more."""
    status, _ = warm(capsys, dataset.folder, "--to", root, "--ranks", "0-0/70")
    path = next(root.glob("fastload-*/*.flc"))
    monkeypatch.setattr(fastload.cache.warming, "_PATIENCE", 0.2)
    held = claim(root)
    with PrivateFolder(root) as folder:
        other = attach(folder, path.name)
    begin, size = other.copy_range(0)
    if not other.has_copy(0):
        assert other.claim(begin, begin + size)
    status, found = warm(capsys, dataset.folder, "--to", root)
    assert status == 3
    assert not found["whole"]
    claimed = found["claimed_records"]
    assert 0 < claimed <= CHUNK
    assert ready(root) == COUNT - claimed
    assert main(["warm", str(dataset.folder), "--to", str(root)]) == 3
    assert f"{claimed} records claimed by another process, which has put none" in capsys.readouterr().out
    os.close(held)
    del other
    status, found = warm(capsys, dataset.folder, "--to", root)
    assert (status, found["claimed_records"], ready(root)) == (0, 0, COUNT)
