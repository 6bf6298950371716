"""tools/train.py as a whole: it learns, logs, stops, resumes, and runs under torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import train
from training.stop import StopSignal

TRAIN = Path(train.__file__)
VAL_IMAGES = 12 * 2
SMALL = ["--model", "resnet8", "--size", "48", "--batch-size", "8", "--device", "cpu", "--threads", "0"]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Signal handlers as they were, and one torch thread: the same sums in the same order."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


def run(data: Path, *arguments: str, loader: str = "torch") -> int:
    return train.main([str(data), "--loader", loader, *SMALL, *arguments])


@pytest.fixture(params=["fastload", "torch"])
def both(request: pytest.FixtureRequest, sample: Path, packed_sample: Path) -> tuple[str, Path]:
    """A loader and its data."""
    return request.param, packed_sample if request.param == "fastload" else sample


def lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    body: dict[str, dict[str, torch.Tensor]] = torch.load(folder / "checkpoint.pt", weights_only=True)
    return body["model"]


def stop_after(monkeypatch: pytest.MonkeyPatch, updates: int) -> None:
    monkeypatch.setattr(StopSignal, "is_agreed", lambda self, done: done == updates)


def test_it_trains_evaluates_and_logs(
    both: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loader, data = both
    assert run(data, "--epochs", "2", "--log-file", str(tmp_path / "log.jsonl"), loader=loader) == 0
    first, second = lines(tmp_path / "log.jsonl")
    assert (first["epoch"], second["epoch"]) == (1, 2)
    for line in (first, second):
        assert line["train_images"] == 48
        assert line["val_images"] == VAL_IMAGES
        assert 0 <= line["data_wait"] <= 1
        assert line["images_per_second"] == pytest.approx(48 / line["seconds"])
        assert 0 <= line["val_top1"] <= line["val_top5"] <= 1
    assert second["train_loss"] < first["train_loss"]
    assert "epoch 2/2  train loss" in capsys.readouterr().out


@pytest.mark.parametrize("stop", [2, 6, 9])
def test_stopped_and_resumed_it_does_the_same_updates(
    both: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """Stopped in the first epoch, at its end and in the second; six batches are an epoch."""
    loader, data = both
    arguments = ["--epochs", "2", "--checkpoint", str(tmp_path), "--log-file", str(tmp_path / "log")]
    with monkeypatch.context() as patch:
        stop_after(patch, stop)
        assert run(data, *arguments, loader=loader) == train.INTERRUPTED
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["position"]["updates"] == stop
    assert run(data, *arguments, "--resume", loader=loader) == 0
    position = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["position"]
    assert position == {"epoch": 2, "step": 0, "updates": 12}
    assert [line["epoch"] for line in lines(tmp_path / "log")] == [1, 2]


def test_stopped_and_resumed_gives_the_same_weights(
    packed_sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fastload's batches do not depend on the interruption, and one thread adds in one order: bit for bit."""

    def go(folder: str, *arguments: str) -> None:
        run(
            packed_sample,
            "--epochs",
            "2",
            "--checkpoint",
            str(tmp_path / folder),
            *arguments,
            loader="fastload",
        )

    go("through")
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        go("stopped")
    go("stopped", "--resume")
    through, stopped = weights(tmp_path / "through"), weights(tmp_path / "stopped")
    assert all(torch.equal(through[name], stopped[name]) for name in through)


def test_another_global_batch_is_refused(
    sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--epochs", "1", "--checkpoint", str(tmp_path), "--resume"]
    assert run(sample, *arguments) == 0
    assert run(sample, *arguments, "--global-batch", "12") == 1
    assert "Add --global-batch 8." in capsys.readouterr().err


def test_resuming_with_nothing_saved_starts(sample: Path, tmp_path: Path) -> None:
    assert run(sample, "--epochs", "1", "--checkpoint", str(tmp_path / "new"), "--resume") == 0
    assert weights(tmp_path / "new")


def test_it_saves_every_n_updates(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        train, "write_checkpoint", lambda folder, body: seen.append(body["position"]["updates"])
    )
    assert run(sample, "--epochs", "1", "--checkpoint", str(tmp_path), "--save-every", "2") == 0
    assert seen == [2, 4, 6, 6]


@pytest.mark.parametrize(
    ("folder", "text"), [("nothing", "has no folder 'train'"), ("empty", "no class folders with images")]
)
def test_bad_data_is_one_line(
    tmp_path: Path, folder: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty" / "train").mkdir(parents=True)
    assert run(tmp_path / folder, "--epochs", "1") == 1
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_a_batch_larger_than_the_data_is_refused(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(sample, "--epochs", "1", "--batch-size", "100") == 1
    assert "fewer images than a batch" in capsys.readouterr().err


def start(data: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(TRAIN), str(data), "--loader", "torch", *SMALL, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(1000):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    pytest.fail(f"{path} did not appear")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves(sample: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = start(sample, "--epochs", "1000", "--checkpoint", str(tmp_path), "--save-every", "1")
    wait_for(tmp_path / "checkpoint.pt", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=110)
    assert process.returncode == train.INTERRUPTED, err
    assert "with --resume goes on" in out
    assert "Traceback" not in err


@pytest.mark.parametrize("batch", ["8", "5"])
def test_two_ranks_see_every_sample_once(both: tuple[str, Path], tmp_path: Path, batch: str) -> None:
    """gloo on the CPU: whole batches to train; 24 images to validate, where some batch is short."""
    loader, data = both
    log = tmp_path / "log"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(TRAIN), str(data), "--loader", loader, *SMALL, "--epochs", "1", "--accumulate", "2"]
    command += ["--batch-size", batch, "--log-file", str(log)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment)
    assert done.returncode == 0, done.stderr
    (line,) = lines(log)
    trained = 48 // (2 * int(batch)) * 2 * int(batch)
    assert (line["world_size"], line["train_images"], line["val_images"]) == (2, trained, VAL_IMAGES)
