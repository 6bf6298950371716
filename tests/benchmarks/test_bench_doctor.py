"""bench_doctor in its smallest form, and the troubles that it makes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import torch
from bench_doctor import main, off_by
from doctor.run import ALL, TrainingStep
from doctor.sets import picture_folder
from harness.throttle import NoThrottle, busy_neighbour, quota_of_cpus
from PIL import Image
from small_photos import write_photos


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder, 64)
    return folder


def test_a_scenario(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "found.json"
    options = ["--only", "slow step, one thread", "--seconds", "1.5", "--rounds", "1", "--limit", "3"]
    assert main([str(photos), *options, "--workdir", str(tmp_path), "--output", str(output)]) == 0
    row = json.loads(output.read_text())["rows"][0]
    assert row["cause"]
    assert row["before"] > 0
    assert row["reached"] == 0  # nothing is to be done
    assert "Right cause" in capsys.readouterr().out


def test_scenarios_have_names_of_their_own_and_mended_loops() -> None:
    assert len({one.name for one in ALL}) == len(ALL) >= 20
    assert all(bool(one.fix) == (one.after is not None) for one in ALL)


def test_a_network_trains_as_the_step() -> None:
    step = TrainingStep("resnet8", "cpu")
    stage = step.alone((torch.randn(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)))
    assert stage.name == "step"
    assert stage.rate > 0


def test_off_by() -> None:
    assert off_by({"predicted": 110, "reached": 100}) == pytest.approx(0.1)
    assert off_by({"predicted": 0, "reached": 100}) is None


def test_a_quota_is_one() -> None:
    try:
        with quota_of_cpus(0.25):
            begin, cpu = time.perf_counter(), time.process_time()
            while time.perf_counter() - begin < 0.6:
                pass
            used = time.process_time() - cpu
    except NoThrottle as error:
        pytest.skip(str(error))
    assert used < 0.5


def test_no_controller_is_said(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("")
    with pytest.raises(NoThrottle, match="CPU controller"), quota_of_cpus(1, str(tmp_path)):
        pass


def test_a_neighbour_ends_with_its_context() -> None:
    before = _children()
    with busy_neighbour(1):
        found = _children() - before
        assert len(found) == 1
    assert not _children() & found


def test_the_sets_are_made_once(photos: Path, tmp_path: Path) -> None:
    folder = picture_folder(photos, tmp_path, "progressive")
    assert folder == picture_folder(photos, tmp_path, "baseline")
    pictures = sorted(folder.rglob("*.jpg"))
    assert len(pictures) == 200  # each of the 64 several times
    with Image.open(pictures[0]) as picture:
        assert picture.info["progressive"]


def _children() -> set[str]:
    line = ["ps", "-o", "pid=", "--ppid", str(os.getpid())]
    running = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    return set(running.communicate()[0].split()) - {str(running.pid)}
