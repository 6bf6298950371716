"""bench_few_cores in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import bench_few_cores
import pytest
from small_photos import REPEATS, environment, write_photos

BENCHMARK = Path(bench_few_cores.__file__)


def test_feeds_on_one_core(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 40)
    output = tmp_path / "few.json"
    command = [
        sys.executable, str(BENCHMARK), str(tmp_path / "photos"), "--device", "cpu", "--cores", "1",
        "--feeds", "fastload,fastload_coefficients,torch_pil", "--batch", "4", "--size", "32",
        "--images", "40", "--seconds", "0.05", "--rounds", str(REPEATS), "--output", str(output),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(output.read_text())["runs"]
    names = {"synthetic 1", "fastload 1", "fastload_coefficients 1", "torch_pil 1"}
    assert set(run["values"]) == names
    for values in run["values"].values():
        assert len(values["rate"]) == REPEATS
        assert values["rate"][0] > 0
    assert "| fastload_coefficients | 1 |" in done.stdout
    assert output.with_suffix(".md").read_text().strip() in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cores", "100000"], "--cores: there are "),
        (["--cores", "1", "--feeds", "nothing"], "there is no feed nothing"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench_few_cores.parse([".", "--device", "cpu", *arguments])
    assert text in capsys.readouterr().err
