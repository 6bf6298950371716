"""A full disk, a quota or a file-size limit: numbers in the message, finished shards kept."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import subprocess
from pathlib import Path

import pytest
from pack_trees import SlowDisk, class_tree, command, environment, run_cli, snapshot
from process import HANG

from fastload import PackedDataset
from fastload.errors import PackError
from fastload.packing import PackOptions, pack, packer
from fastload.packing import spread as pool


def big_tree(folder: Path) -> Path:
    """About 4.5 MB of images."""
    source = class_tree(folder, classes=4, images=12)
    for path in sorted(source.rglob("*.jpeg")):
        path.write_bytes(path.read_bytes() + bytes(180_000))  # JPEG readers ignore what follows the end
    return source


def test_too_little_space_is_known_before_anything_is_written(tiny: Path, tmp_path: Path) -> None:
    source = big_tree(tmp_path / "source")
    with pytest.raises(PackError, match=r"not enough space in .*: about [\d,]+ bytes needed, [\d,]+ free"):
        pack(source, tiny / "out", PackOptions(num_proc=1))
    assert not list((tiny / "out").glob("*.arrow"))


def test_smaller_pictures_need_less_space(tiny: Path, tmp_path: Path) -> None:
    source = big_tree(tmp_path / "source")
    pack(source, tiny / "out", PackOptions(num_proc=1, max_side=16))
    assert (tiny / "out" / "dataset.json").exists()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_disk_that_fills_up_meanwhile(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str, processes: int
) -> None:
    source = big_tree(tmp_path / "source")
    options = PackOptions(format=format_name, shard_size=500_000, num_proc=processes)
    monkeypatch.setattr(packer, "require_space", lambda folder, needed: None)
    with pytest.raises(PackError) as caught:
        pack(source, tiny / "out", options)
    assert re.search(r"No space left on device.*About [\d,]+ bytes needed, [\d,]+ free", str(caught.value))
    finished = [path for path in (tiny / "out").iterdir() if not path.name.startswith(".")]
    assert finished
    assert not [path for path in (tiny / "out").iterdir() if path.name.startswith(".tmp-")]
    subprocess.run(["mount", "-o", "remount,size=40m", tiny], check=True)
    pack(source, tiny / "out", options)
    pack(source, tmp_path / "whole" / "out", options)
    assert snapshot(tiny / "out") == snapshot(tmp_path / "whole" / "out")


def test_a_limit_on_file_sizes(tmp_path: Path, format_name: str) -> None:
    source = big_tree(tmp_path / "source")
    arguments = (
        "pack",
        source,
        tmp_path / "out",
        "--format",
        format_name,
        "--shard-size",
        "2MB",
        "--num-proc",
        1,
    )
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(), check=False, timeout=HANG,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert re.search(r"File too large.*bytes needed", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".tmp-")]
    assert run_cli(*arguments).returncode == 0
    assert len(PackedDataset(tmp_path / "out")) == 48


def test_a_process_publishes_what_it_has_written_before_its_last_word(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=pool._serve, args=(SlowDisk(tmp_path / "shard"), there, os.getpid()))
    process.start()
    there.close()  # so that its end is seen here
    here.send(0)
    assert here.recv() == ("ready", None)
    here.send(1)
    assert here.recv() == ("error", (PackError, "no room"))
    assert (tmp_path / "shard").exists()  # the parent may end the process from here on
    process.join(100)
    assert process.exitcode == 0
