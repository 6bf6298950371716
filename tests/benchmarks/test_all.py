"""all.py: its steps, what it keeps of their results, and what it does again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import all as everything
import pytest
from figures import collect, plan
from harness import provenance
from small_photos import write_photos

NOW = {"date": "2026-11-24T10:00:00+00:00", "commit": "abc", "versions": {}, "machine": {}}


def setting(tmp_path: Path, quick: bool = True) -> plan.Setting:
    return plan.Setting(tmp_path / "photos", tmp_path / "rivals", quick, tmp_path / "work")


def install(tmp_path: Path, *names: str) -> None:
    """What stands for rivals' environments."""
    for name in names:
        python = tmp_path / "rivals" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()


def run_of(name: str, error: str = "", **values: Any) -> dict[str, Any]:
    """A run as the benchmarks write it."""
    memory = {"anonymous": 100.0, "file": 20.0, "processes": 3}
    return {
        "name": name, "round": 0, "values": values, "error": error, "wall": 1.0, "memory": memory,
        "outside_cores": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize("there", [False, True])
def test_training_is_a_figure_of_machines_with_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr(plan, "gpu_is_there", lambda: there)
    names = {step.name for step in plan.steps(setting(tmp_path))}
    assert ("training" in names) is there
    assert plan.absent(setting(tmp_path)).get("training") == (None if there else "torch sees no GPU")


def test_each_figure_has_a_step_and_absent_rivals_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "gpu_is_there", lambda: False)
    install(tmp_path, "dali", *plan.BESIDE.values())
    found = plan.steps(setting(tmp_path))
    assert {step.name.partition(" ")[0] for step in found} == set(plan.FIGURES) - {"training"}
    assert all(step.seconds > 0 for step in found)
    words = [str(word) for word in found[0].words({})]
    assert words[words.index("--only") + 1] == "fastload,fastload_noentries,torch_pil,dali_fused"
    missing = plan.absent(setting(tmp_path))
    assert "dali" not in missing
    assert "install_rival.sh ffcv" in missing["ffcv"]


def test_jobs_of_one_other_loader_are_measured_beside_it_or_not_at_all(tmp_path: Path) -> None:
    install(tmp_path, "lerobot")
    where = setting(tmp_path, quick=False)
    found = {step.name: step for step in plan.steps(where)}
    assert ("windows" in found, "vision" in found) == (True, False)
    assert "install_rival.sh transformers" in plan.absent(where)["transformers"]
    command = everything.described(found["windows"].words({}), where)
    assert command.startswith("python benchmarks/bench_windows.py IMAGES --lerobot RIVALS/lerobot --workers ")


def test_the_fastest_rival_is_measured_on_all_cores(tmp_path: Path) -> None:
    rows = [
        {"name": name, "median": rate}
        for name, rate in (("fastload", 9), ("fastload_noentries", 8), ("torch_pil", 7), ("a", 2), ("b", 3))
    ]
    step = next(step for step in plan.steps(setting(tmp_path)) if step.name == "cores 1")
    words = list(step.words({"classic": {"jobs": {"train_u8": rows}}}))
    assert words[words.index("--only") + 1] == "fastload,torch_pil,b"
    assert words[words.index("--cpus") + 1] == 1


def test_recipes_have_the_workers_of_the_classic_one(tmp_path: Path) -> None:
    install(tmp_path, "torch_pil")
    step = next(step for step in plan.steps(setting(tmp_path)) if step.name == "recipes")
    rows = [{"name": name, "workers": count} for name, count in (("torch_pil", 3), ("spdl", 4))]
    words = list(step.words({"classic": {"jobs": {"train_u8": rows}}}))
    assert words[words.index("--workers") :] == ["--workers", "torch_pil=3"]
    assert "--workers" not in step.words({})


def test_cores_are_counted_in_powers_of_two_and_all() -> None:
    assert plan.core_counts(1) == [1]
    assert plan.core_counts(6) == [1, 2, 4, 6]


def test_results_are_medians_without_paths() -> None:
    rates = [run_of("train_u8 | dali_fused", rate=rate, threads=3, versions={"dali": "2"}, first_batch=1.5)
             for rate in (10.0, 30.0, 20.0)]  # fmt: skip
    failed = run_of(
        "train_u8 | ffcv_orig", "Traceback\n  File x\nOSError: no file /home/me/set/a.beton here\n"
    )
    body = {
        "runs": [*rates, failed], "failures": {failed["name"]: failed["error"]},
        "kb_an_image": {"dali_fused": 110.04}, "sweep": {"dali_fused": {"2": 14.6, "3": 20.2, "4": None}},
    }  # fmt: skip
    found = collect.figure_of("classic", body)
    (row,) = found["jobs"]["train_u8"]
    assert (row["median"], row["low"], row["high"], row["runs"]) == (20.0, 10.0, 30.0, [10.0, 30.0, 20.0])
    assert (row["workers"], row["kb_an_image"], row["outside_cores"], row["memory_mb"]) == (
        3,
        110.0,
        0.25,
        120,
    )
    assert found["sweep"] == {"dali_fused": {"2": 15, "3": 20, "4": None}}
    assert collect.reasons(body) == {"train_u8 | ffcv_orig": "OSError: no file a.beton here"}


def test_memory_and_packing_are_rows() -> None:
    body = {
        "runs": [run_of("memory torch x2", held=900.0, file=3.0, cache=0.0, processes=6)],
        "failures": {},
    }
    (row,) = collect.figure_of("memory", body)["rows"]
    assert (row["name"], row["ranks"], row["median"], row["processes"]) == ("torch", 2, 900.0, 6)
    body = {"runs": [run_of("arrow x1 100MB", mb_per_s=500.0, size_ratio=1.01)], "failures": {}}
    (row,) = collect.figure_of("packing", body)["rows"]
    assert (row["name"], row["median"], row["outside_cores"]) == ("arrow x1", 500.0, 0.25)


def test_vision_is_pictures_per_second_of_cpu_time() -> None:
    seconds = {
        "Qwen2-VL": {"PIL": [0.01, 0.02, 0.0125], "float32": [0.002, 0.001, 0.004]},
        "Qwen2-VL, by the clock": {"1 threads": [1.0], "2 threads": [0.5]},
    }
    failures = {"Qwen2-VL | torchvision": "it cannot be imported"}
    body = {"seconds": seconds, "outside_cores": 0.256, "failures": failures}
    jobs = collect.figure_of("vision", body)["jobs"]
    assert list(jobs) == ["Qwen2-VL"]
    theirs, ours = jobs["Qwen2-VL"]
    assert (theirs["name"], theirs["median"], theirs["runs"]) == ("transformers, PIL", 80, [100, 50, 80])
    assert (ours["name"], ours["median"], ours["outside_cores"]) == ("fastload, float32", 500, 0.26)
    assert collect.reasons(body) == failures


def test_windows_have_their_bytes() -> None:
    names = {"LeRobot, 2 workers": 12.0, "full, float32": 264.0}
    body = {
        "runs": [run_of(name, rate=rate) for name, rate in names.items()],
        "failures": {}, "megabytes": {"LeRobot, 2 workers": 117.4, "full, float32": 464.0},
    }  # fmt: skip
    rows = collect.figure_of("windows", body)["jobs"]["windows"]
    found = [(row["name"], row["median"], row["mb"]) for row in rows]
    assert found == [("LeRobot, 2 workers", 12.0, 117), ("fastload, full, float32", 264.0, 464)]


def a_step(tmp_path: Path, code: str) -> plan.Step:
    """A step that counts its runs in the file "runs"."""
    script = tmp_path / "bench_this.py"
    script.write_text(
        "import json, sys\nfrom pathlib import Path\n"
        f"log = open({str(tmp_path / 'runs')!r}, 'a'); log.write('x'); log.close()\n"
        f"output = Path(sys.argv[sys.argv.index('--output') + 1])\n{code}\n"
    )
    return plan.Step("classic", lambda _: [script, "IMAGES"], 1.0)


def test_what_was_measured_today_is_not_measured_again(tmp_path: Path) -> None:
    step, where = a_step(tmp_path, "output.write_text('{}')"), setting(tmp_path)
    where.output.mkdir()

    def run(now: dict[str, Any], again: bool = False) -> int:
        everything.run_step(step, step.words({}), where, now, again)
        return len((tmp_path / "runs").read_text())

    assert [run(NOW), run(NOW), run(NOW, again=True)] == [1, 1, 2]
    assert run({**NOW, "commit": "def"}) == 3
    assert run({**NOW, "commit": "def", "date": "2026-11-25T00:00:00+00:00"}) == 4


def test_a_step_that_writes_nothing_says_why(tmp_path: Path) -> None:
    step, where = a_step(tmp_path, "raise SystemExit('The disk /mnt/a/b is full.')"), setting(tmp_path)
    where.output.mkdir()
    with pytest.raises(RuntimeError, match="The disk b is full."):
        everything.run_step(step, step.words({}), where, NOW, False)


def test_a_results_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(tmp_path / "photos", 4)
    body = {
        "date": NOW["date"], "machine": {"load_1min": 0.1}, "failures": {},
        "runs": [run_of("arrow x1 20MB", mb_per_s=500.0, size_ratio=1.01)],
    }  # fmt: skip
    step = a_step(tmp_path, f"output.write_text({json.dumps(json.dumps(body))})")
    packing = plan.Step("packing", step.words, 60.0)
    broken = plan.Step("memory", lambda _: [tmp_path / "is_not_there.py"], 60.0)
    monkeypatch.setattr(everything, "steps", lambda _: [packing, broken])
    places = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "work"), "--name", "try"]
    assert everything.main([str(tmp_path / "photos"), "--quick", *places]) == 0
    assert "2 steps, about 2 minutes" in capsys.readouterr().out
    text = (tmp_path / "results" / "try.json").read_text()
    assert str(tmp_path) not in text
    found = json.loads(text)
    assert found["figures"]["packing"]["rows"][0]["median"] == 500.0
    assert "is_not_there.py" in found["missing"]["memory"]
    assert "not installed" in found["missing"]["dali"]
    assert found["machine"]["cores"] > 0
    assert found["commit"]


def test_a_figure_alone_takes_what_an_earlier_run_of_this_machine_has_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(tmp_path / "photos", 1)
    monkeypatch.setattr(everything, "provenance", lambda: now)
    now = {**NOW, "machine": {"cpu": "this", "cores": 2, "load_1min": 0.0}}
    for name, cores, found in (("a", 2, "of two"), ("b", 64, "of many")):
        body = {
            **now,
            "machine": {**now["machine"], "cores": cores},
            "quick": False,
            "figures": {"classic": found},
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    given: list[Any] = []
    step = plan.Step(
        "packing", lambda found: given.append(dict(found)) or [tmp_path / "is_not_there.py"], 1.0
    )
    monkeypatch.setattr(everything, "steps", lambda _: [step])
    places = ["--results", str(tmp_path), "--work", str(tmp_path / "work"), "--name", "try"]
    everything.main([str(tmp_path / "photos"), "--quick", *places])
    assert given == [{"classic": "of two"}]


def test_the_commit_or_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert provenance.commit(tmp_path) == "unknown: this is not a git checkout"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.commit() == "unknown: git is not installed"
