"""fastload.pack of samples, stopped by Ctrl-C or a full disk: nothing half-made is left, and it goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from field_samples import SCHEMA, Samples
from interrupted_samples import COUNT
from noise_samples import Noise
from pack_trees import environment, snapshot
from process import HANG

import fastload
from fastload.errors import PackError
from fastload.packing import running as run
from fastload.shard.dataset import PackedFiles

SCHEMA_OF_NOISE = {"image": "image", "noise": "bytes", "n": "int64"}
DRIVER = Path(__file__).with_name("interrupted_samples.py")


def pack(samples: Any, output: Path, format_name: str = "arrow", **options: Any) -> Any:
    options = {"schema": SCHEMA_OF_NOISE, "shard_size": 500_000, "entries": None, **options}
    return fastload.pack(samples, output, format=format_name, **options)


def names_of_a_begun_pack(output: Path) -> list[str]:
    """What is left of it: the work folder, and in it only what is whole."""
    assert os.listdir(output) == [".fastload-pack"]
    names = os.listdir(output / ".fastload-pack")
    assert not [name for name in names if name.startswith(".tmp-")]
    assert not (output / "dataset.json").exists()
    return sorted(names)


def working_in(group: int) -> list[str]:
    """The processes of a process group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has ended meanwhile
            continue
        if int(pgrp) == group and state != "Z":
            found.append(path.parent.name)
    return found


def test_too_little_space_is_known_before_anything_is_written(tiny: Path) -> None:
    samples = Noise()
    with pytest.raises(PackError, match=r"not enough space in .*: about 12,\d+,\d+ bytes needed"):
        pack(samples, tiny / "set")
    assert names_of_a_begun_pack(tiny / "set") == ["samples.json"]
    assert len(set(samples.asked)) == 16  # those that stand for all
    pack((samples[i] for i in range(3)), tiny / "few")  # an iterable cannot be asked


def test_too_little_space_for_a_table(tiny: Path, tmp_path: Path) -> None:
    picture = Samples(1)[0]["image"]
    (tmp_path / "a.jpg").write_bytes(picture + bytes(200_000))  # readers ignore what follows the end
    (tmp_path / "table.csv").write_text("path,n\n" + "".join(f"a.jpg,{i}\n" for i in range(30)))
    with pytest.raises(PackError, match=r"about 7,1\d\d,\d{3} bytes needed"):
        fastload.pack(tmp_path / "table.csv", tiny / "set")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_disk_that_fills_up_meanwhile(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str, processes: int
) -> None:
    monkeypatch.setattr(run, "require_space", lambda folder, needed: None)
    with pytest.raises(PackError) as caught:
        pack(Noise(), tiny / "set", format_name, num_proc=processes)
    assert re.search(r"No space left on device.*About [\d,]+ bytes needed, [\d,]+ free", str(caught.value))
    assert len(names_of_a_begun_pack(tiny / "set")) >= 3  # finished shards are kept
    subprocess.run(["mount", "-o", "remount,size=40m", tiny], check=True)
    samples = Noise()
    pack(samples, tiny / "set", format_name)
    assert len(set(samples.asked)) < 80  # and not made again
    pack(Noise(), tmp_path / "whole" / "set", format_name)
    assert snapshot(tiny / "set") == snapshot(tmp_path / "whole" / "set")


def test_a_disk_that_fills_up_while_columns_are_written(tiny: Path, tmp_path: Path, format_name: str) -> None:
    samples = [Noise()[i] for i in range(12)]  # 1.2 MB, which is there three times for a moment
    with pytest.raises(PackError, match=r"No space left on device\. About [\d,]+ bytes needed, [\d,]+ free"):
        pack(samples, tiny / "set", format_name)
    assert not (tiny / "set" / "dataset.json").exists()
    assert not list((tiny / "set").rglob(".tmp-*"))
    subprocess.run(["mount", "-o", "remount,size=40m", tiny], check=True)
    pack(samples, tiny / "set", format_name)
    pack(samples, tmp_path / "whole" / "set", format_name)
    assert snapshot(tiny / "set") == snapshot(tmp_path / "whole" / "set")


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For packs that nobody has interrupted, by format."""
    return tmp_path_factory.mktemp("wholes")


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c(tmp_path: Path, wholes: Path, format_name: str, processes: int) -> None:
    output = tmp_path / "a" / "set"
    output.mkdir(parents=True)
    started = subprocess.Popen(
        [sys.executable, DRIVER, output, format_name, str(processes)], text=True, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() == "begun\n"
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does: all processes of it
    _, said = started.communicate(timeout=HANG)
    assert started.returncode == -signal.SIGINT, said
    # One error, which may have come while the sample's own code handled another.
    chained = said.count("During handling of the above exception")
    assert said.count("Traceback") == 1 + chained, said
    assert said.rstrip().endswith("KeyboardInterrupt")
    while working_in(started.pid):  # nobody is left of it, or this never ends
        time.sleep(0.01)
    assert len(names_of_a_begun_pack(output)) > 1
    again: Any = {"schema": SCHEMA, "shard_size": 200_000, "format_name": format_name}
    pack(Samples(COUNT), output, **again)
    assert len(PackedFiles(output)) == COUNT
    if not (wholes / format_name).exists():  # the same for one process and for two
        pack(Samples(COUNT), wholes / format_name / "set", **again)
    assert snapshot(tmp_path / "a") == snapshot(wholes / format_name)
