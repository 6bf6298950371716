"""The verdict as JSON, and the option that writes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attributions import full_attribution
from verdicts import full_verdict, loop, step_limits

import fastload
from fastload.cli import main
from fastload.diagnose.as_json import no_verdict_json, verdict_json
from fastload.diagnose.facts import Fix, Sentence, Verdict
from fastload.diagnose.script import Watched


def read(text: str) -> Any:
    """Strict JSON: no NaN and no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


def profiled_verdict() -> Verdict:
    attribution = full_attribution()
    return replace(full_verdict(), quiet_rate=301.0, attribution=attribution, place=attribution.places[0])


def test_all_of_a_verdict_comes_back() -> None:
    verdict = profiled_verdict()
    body = verdict_json(verdict)
    assert read(json.dumps(body, allow_nan=False)) == body
    assert list(body)[:3] == ["version", "cause", "headline"]
    assert body["version"] == 1
    assert body["cause"] == "decode"
    assert body["headline"] == "Decoding is the bottleneck: 2 threads busy 98% of the time."
    assert body["place"] == {
        "file": "/home/me/data.py",
        "line": 31,
        "text": "Image.open(path).convert('RGB')",
        "function": "Photos.__getitem__",
        "kind": "decode",
        "share": 0.55,
    }
    rates = [body[name] for name in ("rate", "loader_rate", "step_rate", "quiet_rate")]
    assert rates == [233.0, 241.0, 412.0, 301.0]
    assert [each["text"] for each in body["sentences"]] == [each.text for each in verdict.sentences]
    assert [each["name"] for each in body["stages"]] == [each.name for each in verdict.stages]
    assert body["loop"]["batches"] == 400
    assert body["loop"]["wait_share"] == pytest.approx(verdict.loop.wait_share)  # type: ignore[union-attr]
    assert body["loop"]["notes"]["shm_free"] == 67_108_864
    assert body["attribution"]["makers"]["decode"] == 0.55
    assert [(line["of"], line["line"]) for line in body["attribution"]["lines"]][-2:] == [
        ("loop", 12),
        ("loop", 14),
    ]


def test_what_is_no_number_is_null() -> None:
    verdict = replace(full_verdict(), rate=float("nan"), loader_rate=float("inf"), step_rate=np.float32(2.0))
    notes = {
        "a": [1, float("inf")],
        "b": np.int64(3),
        "c": object(),
        "d": {"e": {1, 2}},
        "f": {1: 2},
        "g": None,
    }
    verdict = replace(verdict, loop=replace(loop(), notes=notes))
    body = read(json.dumps(verdict_json(verdict), allow_nan=False))
    assert (body["rate"], body["loader_rate"], body["step_rate"]) == (None, None, 2.0)
    assert {stage["name"]: stage["rate"] for stage in body["stages"]}["collate"] is None
    assert body["loop"]["notes"] == {"a": [1, None], "b": 3, "g": None}


def test_what_is_not_there_is_null() -> None:
    body = verdict_json(step_limits())
    assert [name for name, value in body.items() if value is None] == ["place", "loop", "attribution"]
    assert body["headline"] == "Nothing: the step is the bottleneck."
    assert body["fixes"] == []
    assert verdict_json(replace(step_limits(), sentences=()))["headline"] is None
    assert no_verdict_json("It ended.") == {"version": 1, "cause": None, "words": "It ended.", "loop": None}


def test_the_range_of_a_fix_is_its_gain_if_none_is_given() -> None:
    fixes = (
        Fix("a", "Do it.", 300.0, 0.5, "Seen."),
        Fix("b", "Do it.", 300.0, 0.5, "Seen.", low=0.0, high=0.8),
    )
    found = verdict_json(replace(step_limits(), fixes=fixes))["fixes"]
    assert [(fix["low"], fix["high"]) for fix in found] == [(0.5, 0.5), (0.0, 0.8)]
    assert set(found[0]) == {
        "name", "words", "rate", "gain", "low", "high", "quiet_rate", "evidence", "price",
    }  # fmt: skip


# ---- The option -------------------------------------------------------------------------------------


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Loaders that would have been examined."""
    asked: list[Any] = []

    def examine(loader: Any, **more: Any) -> Verdict:
        asked.append(loader)
        print("said by the user's code")  # noqa: T201
        return profiled_verdict()

    monkeypatch.setattr("fastload.diagnose.doctor.examine", examine)
    return asked


def test_the_command_writes_the_file_and_looks_for_its_folder_first(
    packed: fastload.PackedDataset, tmp_path: Path, examined: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["doctor", str(packed.folder), "--batch-size", "8", "--num-workers", "1", "--json"]
    assert main([*command, str(tmp_path / "no" / "v.json")]) == 2
    assert f"--json {tmp_path}/no/v.json: there is no folder {tmp_path}/no." in capsys.readouterr().err
    assert main([*command, str(tmp_path)]) == 2
    assert f"--json {tmp_path} is a folder." in capsys.readouterr().err
    assert examined == []
    (tmp_path / "v.json").write_text("of an earlier run")
    assert main([*command, str(tmp_path / "v.json")]) == 0
    assert "Decoding is the bottleneck" in capsys.readouterr().out
    assert read((tmp_path / "v.json").read_text()) == verdict_json(profiled_verdict())
    assert os.listdir(tmp_path) == ["v.json"]


def test_what_cannot_be_written_leaves_the_file_as_it_was(
    packed: fastload.PackedDataset, tmp_path: Path, examined: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "v.json").write_text("of an earlier run")
    monkeypatch.setattr("fastload.packing.files.publish", fail)
    words = ["doctor", str(packed.folder), "--batch-size", "8", "--json", str(tmp_path / "v.json")]
    assert main(words) == 1
    assert len(examined) == 1
    assert os.listdir(tmp_path) == ["v.json"]
    assert (tmp_path / "v.json").read_text() == "of an earlier run"


def test_a_pipe_is_written_to_and_not_replaced(
    packed: fastload.PackedDataset, tmp_path: Path, examined: list[Any]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append((tmp_path / "pipe").read_text()))
    reader.start()
    words = ["doctor", str(packed.folder), "--batch-size", "8", "--json", str(tmp_path / "pipe")]
    assert main(words) == 0
    reader.join()
    assert read(said[0])["cause"] == "decode"
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_dash_writes_nothing_else_to_stdout(
    packed: fastload.PackedDataset, examined: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(packed.folder), "--batch-size", "8", "--json", "-"]) == 0
    said = capfd.readouterr()
    assert read(said.out) == verdict_json(profiled_verdict())
    assert "said by the user's code" in said.err
    assert "Decoding is the bottleneck" in said.err


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("")
    return str(tmp_path / "train.py")


def test_a_script_and_its_processes_write_nothing_to_stdout(
    script: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def watch(*_: object) -> Watched:
        subprocess.run([sys.executable, "-c", "print('loss 0.3')"], check=True)
        return Watched(loop(), None, replace(step_limits(), sentences=(Sentence("\x1b[2J"),)), "It was left.")

    monkeypatch.setattr("fastload.diagnose.script.watch_script", watch)
    assert main(["doctor", "--json", "-", script]) == 0
    said = capfd.readouterr()
    assert read(said.out)["headline"] == "\x1b[2J"
    assert "\x1b" not in said.out
    assert "loss 0.3" in said.err
    assert main(["doctor", script]) == 0
    assert "loss 0.3" in capfd.readouterr().out


def test_a_script_without_a_verdict_says_why(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Watched(loop(), None, None, "It was ended.")
    monkeypatch.setattr("fastload.diagnose.script.watch_script", lambda *_: found)
    assert main(["doctor", "--json", str(tmp_path / "v.json"), script]) == 0
    body = read((tmp_path / "v.json").read_text())
    assert (body["version"], body["cause"], body["words"]) == (1, None, "It was ended.")
    assert body["loop"]["batches"] == 400


def test_a_rank_that_runs_along_writes_nothing(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = Watched(None, None, None, "This rank ran along; the first one says what limits.")
    monkeypatch.setattr("fastload.diagnose.script.watch_script", lambda *_: found)
    for file in (str(tmp_path / "v.json"), "-"):
        assert main(["doctor", "--json", file, script]) == 0
    assert os.listdir(tmp_path) == ["train.py"]
    assert capfd.readouterr().out == ""
