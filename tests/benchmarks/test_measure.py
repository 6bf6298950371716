"""Statistics, refusals and reports of benchmarks/harness/measure.py and harness/machine.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import machine, measure


def python(name: str, code: str) -> measure.Candidate:
    return measure.Candidate(name, [sys.executable, "-c", code])


BENCHMARKS = str(Path(measure.__file__).parents[1])
PRINTS = "import json; print('noise'); print(json.dumps({'rate': 3.5}))"


def test_median_and_extremes() -> None:
    summary = measure.summarize([5.0, 1.0, 4.0, 2.0, 30.0])
    assert summary == measure.Summary(4.0, 1.0, 30.0, 5)
    assert summary.text() == "4 [1-30]"
    assert summary.text(1) == "4.0 [1.0-30.0]"


def test_median_of_an_even_count_is_the_mean_of_the_middle_two() -> None:
    assert measure.summarize([1.0, 2.0, 3.0, 5.0, 8.0, 13.0]).median == 4.0


def test_ratio_is_of_the_medians() -> None:
    mine, theirs = measure.summarize([6.0] * 5), measure.summarize([1.0, 2.0, 4.0, 8.0, 9.0])
    assert measure.ratio(mine, theirs) == 1.5


@pytest.mark.parametrize("count", [0, 1, 4])
def test_no_median_below_five_runs(count: int) -> None:
    with pytest.raises(measure.TooFewRuns, match="at least 5"):
        measure.summarize([1.0] * count)


def test_too_few_repeats_are_refused_before_anything_runs(tmp_path: Path) -> None:
    touches = python("touches", f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(measure.TooFewRuns):
        measure.alternate([touches], 4)
    assert not (tmp_path / "ran").exists()


def test_candidates_take_turns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    candidates = [python(name, f"open({str(log)!r}, 'a').write({name!r}); {PRINTS}") for name in "ab"]
    lines: list[str] = []
    runs = measure.alternate(candidates, 5, report=lines.append)
    assert log.read_text() == "abbaabbaab"
    assert measure.values_of(runs, "a", "rate") == [3.5] * 5
    assert measure.failures(runs) == {}
    assert len(lines) == 10


def test_a_failure_is_reported_and_the_others_go_on() -> None:
    lines: list[str] = []
    broken = python("broken", "import sys; sys.exit('no such library')")
    runs = measure.alternate([broken, python("good", PRINTS)], 5, report=lines.append)
    assert list(measure.failures(runs)) == ["broken"]
    assert "exit status 1" in measure.failures(runs)["broken"]
    assert "no such library" in measure.failures(runs)["broken"]
    assert any("no such library" in line for line in lines)
    assert measure.summarize(measure.values_of(runs, "good", "rate")).count == 5
    with pytest.raises(measure.TooFewRuns):
        measure.summarize(measure.values_of(runs, "broken", "rate"))


@pytest.mark.parametrize("code", ["pass", "print('rate 5')", "print(5)"])
def test_output_that_is_not_a_json_object_is_a_failure(code: str) -> None:
    run = measure.run_once(python("silent", code))
    assert "not a JSON object" in run.error
    assert run.values == {}


def test_a_hanging_candidate_is_killed_with_its_children() -> None:
    # The shell has begun long before, as Python on a crowded machine may not have.
    hangs = measure.Candidate("hangs", ["sh", "-c", "sleep 600 & echo $!; wait"])
    run = measure.run_once(hangs, timeout=2.0)
    assert "killed" in run.error
    child = int(run.error.split()[-1])
    deadline = time.monotonic() + 60
    while machine.process_memory(child).processes and time.monotonic() < deadline:
        time.sleep(0.05)
    assert machine.process_memory(child).processes == 0


@pytest.fixture
def until_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Python that waits until a sample has been taken that began when the code was there already."""
    look, there, seen = machine.session_memory, tmp_path / "there", tmp_path / "seen"

    def looked(session: int) -> machine.Memory:
        begun = there.exists()
        found = look(session)
        if begun:
            seen.touch()
        return found

    monkeypatch.setattr(machine, "session_memory", looked)
    wait = f"[time.sleep(0.01) for _ in range(10_000) if not os.path.exists({str(seen)!r})]"
    return f"import os, time; open({str(there)!r}, 'w').close(); {wait}"


def test_memory_of_the_whole_tree_is_counted(until_seen: str) -> None:
    child = f"data = bytearray(b'x') * 100_000_000; {until_seen}"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); {PRINTS}"
    run = measure.run_once(python("parent", code))
    assert not run.error
    assert run.memory.processes == 2
    assert 100 < run.memory.anonymous < 200


def test_shared_pages_count_once(until_seen: str) -> None:
    code = (
        "import os, time, mmap; m = mmap.mmap(-1, 50_000_000); "
        "[m.write(b'x' * 1_000_000) for _ in range(50)]; "
        # The child's own memory makes the peak one of both processes.
        "pid = os.fork(); own = b'' if pid else b'x' * 8_000_000\n"
        f"if not pid: {until_seen}; os._exit(0)\n"
        f"os.wait(); {PRINTS}"
    )
    run = measure.run_once(python("forks", code))
    assert not run.error
    assert run.memory.processes == 2
    assert 50 < run.memory.anonymous < 90


@pytest.mark.parametrize("most", [0.5, 1e6])
def test_what_a_run_says_of_its_memory_counts_as_a_sample(
    most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what was seen of it, which may be nothing: a run ends between two looks."""
    seen = machine.Memory(anonymous=100.0, file=20.0, processes=1)
    monkeypatch.setattr(machine, "session_memory", lambda _: seen)
    said = {"anonymous": most, "file": 0.25, "processes": 7}
    run = measure.run_once(python("says", f"import json; print(json.dumps({{'memory_at_end': {said}}}))"))
    assert run.memory == (machine.Memory(**said) if most > 1000 else seen)


def test_cpu_time_of_the_whole_tree_is_counted() -> None:
    busy = "import time; b = time.process_time()\nwhile time.process_time() - b < 0.3: pass"
    code = (
        "import json, os, subprocess, sys; from harness import machine; "
        f"subprocess.run([sys.executable, '-c', {busy!r}]); "
        "print(json.dumps({'cpu': machine.session_cpu(os.getsid(0))}))"
    )
    command = measure.Candidate("tree", [sys.executable, "-c", code], {"PYTHONPATH": BENCHMARKS})
    assert 0.25 <= measure.run_once(command).values["cpu"] < 10


def test_cpu_use_of_others_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        run = measure.run_once(python("idle", f"import time; time.sleep(1.5); {PRINTS}"))
        other.kill()
    assert run.outside_cores > 0.2


def test_start_time_is_handed_over() -> None:
    seconds = "time.monotonic() - float(os.environ['BENCH_STARTED'])"
    code = f"import json, os, time; print(json.dumps({{'s': {seconds}}}))"
    run = measure.run_once(python("clock", code))
    assert 0 < run.values["s"] < run.wall


def test_page_cache_is_warmed_with_each_inode_once(tmp_path: Path) -> None:
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "deep" / "a").write_bytes(bytes(3_000_000))
    os.link(tmp_path / "folder" / "deep" / "a", tmp_path / "folder" / "b")
    (tmp_path / "c").write_bytes(bytes(5))
    assert machine.warm_page_cache([tmp_path / "folder", tmp_path / "c"]) == 3_000_005
    with pytest.raises(FileNotFoundError):
        machine.warm_page_cache([tmp_path / "missing"])


def test_table_is_markdown() -> None:
    assert measure.table(["a", "b"], [[1, "x"]]) == "| a | b |\n| --- | --- |\n| 1 | x |"


def test_results_hold_machine_date_arguments_and_failures(tmp_path: Path) -> None:
    runs = measure.alternate([python("good", PRINTS), python("bad", "1/0")], 5, report=lambda line: None)
    path = tmp_path / "deep" / "result.json"
    measure.write_results(path, "bench_test", {"folder": Path("images")}, runs)
    body = json.loads(path.read_text())
    assert body["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert body["machine"]["cpu"]
    assert body["machine"]["kernel"] == os.uname().release
    assert body["date"].endswith("+00:00")
    assert body["arguments"] == {"folder": "images"}
    assert "ZeroDivisionError" in body["failures"]["bad"]
    assert len(body["runs"]) == 6
