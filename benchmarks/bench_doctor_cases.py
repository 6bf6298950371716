"""Is the doctor right about training scripts? Thirty-one of them, each with one known fault.

    python benchmarks/bench_doctor_cases.py [--only NAME ...] [--seconds 40] [--run 6] [--turns 2]
    python benchmarks/bench_doctor_cases.py --list

The cases are in doctor/cases.py, their scripts in doctor/cases/. The script as it is and with the fault
mended take turns, and their samples are counted; `fastload doctor` examines the script. A row is right when
the cause is one of those that are true and, where the fault has a line, that line is named. A prediction is
right when the rate that was found is within 10% of the predicted one, or of its range. --busy N: with so
many processes that compute beside it. What needs root (a slow disk) is skipped without it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from doctor.case_data import TROUBLES, prepared
from doctor.cases import CASES, FIXES, Case, marked_lines
from doctor.rows import write_rows
from harness.measure import table
from harness.throttle import NoThrottle, busy_neighbour

ROOT = Path(__file__).resolve().parents[1]
RATE = ROOT / "benchmarks" / "doctor" / "case_rate.py"
CLOSE = 0.1  # of a rate: as good as right
START = 60.0  # seconds that a process may need beside what it is told
END = 10.0  # seconds that it may take to end when told to
ERROR_CHARACTERS = 2000  # of a failed run's output that are kept


class Failed(Exception):
    """A run gave nothing; the text is the end of what it said."""


def parse(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases to run, by name or script")
    parser.add_argument("--list", action="store_true", help="print the cases and run nothing")
    parser.add_argument("--seconds", type=float, default=40.0, help="the doctor's time limit (%(default)s)")
    parser.add_argument(
        "--run", type=float, default=6.0, help="seconds of each run of a script (%(default)s)"
    )
    parser.add_argument("--turns", type=int, default=2, help="runs as it is and mended, each (%(default)s)")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes that compute beside it")
    parser.add_argument("--workdir", type=Path, help="folder that keeps the cases' data")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "doctor_cases.json")
    options = parser.parse_args(given)
    known = {name for case in CASES for name in (case.name, case.script)}
    unknown = set(options.only or ()) - known
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}; --list names all")
    return options


# ---- Runs ----


def launcher(case: Case) -> list[str]:
    """What a Python program of the case is started with."""
    if not case.launch:
        return [sys.executable]
    program, processes = case.launch.split()
    assert program == "torchrun", case.launch
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", processes]


def environment() -> dict[str, str]:
    """With the fastload that is imported here, which ``-m`` must find from any folder."""
    spec = find_spec("fastload")
    assert spec is not None
    assert spec.origin is not None
    paths = [str(Path(spec.origin).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def output_of(line: Sequence[str], limit: float, cwd: Path | None = None) -> str:
    """What a command prints; raises Failed where it does not end well or in time."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            cwd=cwd,
            env=environment(),
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {limit:.0f} s") from None
        finally:
            _end(process)
        out.seek(0)
        errors.seek(0)
        if code:
            said = errors.read().strip() or out.read().strip()
            raise Failed(f"exit status {code}: {said[-ERROR_CHARACTERS:]}")
        return out.read()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process's session: workers and ranks would disturb the next run."""
    if process.poll() is None:
        process.terminate()  # torchrun's ranks are in sessions of their own: it ends them when told to
        with suppress(subprocess.TimeoutExpired):
            process.wait(END)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def examined(case: Case, data: Path, seconds: float) -> dict[str, Any]:
    """What the doctor says of the script, as JSON."""
    script = [str(case.path), "--data", str(data), *case.arguments]
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said.json"
        options = ["--seconds", str(seconds), "--json", str(said)]
        line = [*launcher(case), "-m", "fastload", "doctor", *options, *script]
        words = output_of(line, 3 * seconds + START, case.path.parent)
        if not said.exists():
            raise Failed(f"the doctor wrote no JSON: {words.strip()[-ERROR_CHARACTERS:]}")
        found: dict[str, Any] = json.loads(said.read_text())
        return found


def rate_of(case: Case, data: Path, seconds: float, mended: bool) -> float:
    """Samples a second of the script, of all ranks together."""
    script = [str(case.path), "--data", str(data), *case.arguments, *(["--mended"] if mended else [])]
    text = output_of(
        [*launcher(case), str(RATE), "--seconds", str(seconds), *script], seconds + START, case.path.parent
    )
    ranks = [json.loads(line) for line in text.splitlines() if line.startswith('{"rank":')]
    if not ranks or not all(rank["rate"] for rank in ranks):
        raise Failed(f"it gave too few batches in {seconds:.0f} s: {text.strip()[-ERROR_CHARACTERS:]}")
    return sum(float(rank["rate"]) for rank in ranks)


def rates_in_turns(case: Case, data: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Rates as it is and mended, in turns."""
    found: dict[str, list[float]] = {"rates": [], "mended_rates": []}
    for number in range(options.turns):
        pair = (("rates", False), ("mended_rates", True))
        for name, mended in pair if number % 2 == 0 else pair[::-1]:
            if mended and not case.fix:
                continue
            with ExitStack() as stack:
                if case.trouble:
                    stack.enter_context(TROUBLES[case.trouble](data))
                found[name].append(rate_of(case, data, options.run, mended))
    return found


# ---- What is right ----


def is_named(case: Case, said: dict[str, Any]) -> bool:
    """Whether the place is a line with the fault."""
    place: dict[str, Any] = said.get("place") or {}
    return bool(place) and (Path(place["file"]).resolve(), place["line"]) in marked_lines(case)


def fix_of(case: Case, said: dict[str, Any]) -> dict[str, Any] | None:
    """The doctor's fix that is the case's, by its name; the one with the most gain, if there are several."""
    if not case.fix:
        return None
    fixes: list[dict[str, Any]] = said.get("fixes", [])
    found = [fix for fix in fixes if fix.get("name") in FIXES[case.fix]]
    return max(found, key=lambda fix: float(fix.get("gain") or 0.0), default=None)


def is_close(fix: dict[str, Any] | None, gain: float | None) -> bool | None:
    """Whether a fix's gain was predicted; None where there is nothing to compare."""
    if fix is None or gain is None or fix.get("gain") is None:
        return None
    bounds = [fix[name] for name in ("gain", "low", "high") if fix.get(name) is not None]
    return bool((1 - CLOSE) * (1 + min(bounds)) <= 1 + gain <= (1 + CLOSE) * (1 + max(bounds)))


def row_of(case: Case, options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Everything about one case; ``skipped`` or ``failed`` says why something is missing."""
    row: dict[str, Any] = {"name": case.name, "script": case.script, "truth": list(case.causes)}
    begin = time.monotonic()
    try:
        data = prepared(case.data, work)
        with busy_neighbour(options.busy):
            row.update(rates_in_turns(case, data, options))
            gain = None
            if row["mended_rates"]:
                gain = statistics.median(row["mended_rates"]) / statistics.median(row["rates"]) - 1
            row["gain"] = gain
            with ExitStack() as stack:
                if case.trouble:
                    stack.enter_context(TROUBLES[case.trouble](data))
                said = examined(case, data, options.seconds)
        fix = fix_of(case, said)
        row.update(said=said, cause=said.get("cause"), named=is_named(case, said), fix=fix)
        row["right"] = said.get("cause") in case.causes and (row["named"] or not case.place)
        row["close"] = is_close(fix, gain)
    except NoThrottle as error:
        row["skipped"] = str(error)
    except (Failed, OSError, ValueError, KeyError, TypeError, ImportError) as error:
        row["failed"] = f"{type(error).__name__}: {error}"
    row["took"] = time.monotonic() - begin
    return row


# ---- Tables ----


def cells(case: Case, row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    truth = " or ".join(case.causes)
    gain = f"{row['gain']:+.0%}" if row.get("gain") is not None else "-"
    if "cause" not in row:
        why = (row.get("skipped") or row["failed"]).splitlines()[-1]
        return [
            case.name,
            truth,
            f"{'skipped' if 'skipped' in row else 'failed'}: {why}",
            "",
            "",
            "",
            gain,
            "",
        ]
    named = ("yes" if row["named"] else "no") if case.place else "-"
    fix, predicted = row["fix"], "-"
    if fix and fix.get("gain") is not None:
        predicted = f"{fix['gain']:+.0%}"
        if fix.get("low") is not None:
            predicted += f" ({fix['low']:+.0%} to {fix['high']:+.0%})"
    close = {True: "yes", False: "no", None: "-"}[row["close"]]
    return [
        case.name,
        truth,
        str(row["cause"]),
        named,
        "yes" if row["right"] else "no",
        predicted,
        gain,
        close,
    ]


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """What the rows come to; one that failed is wrong, one that was skipped does not count."""
    asked = [row for row in rows if "skipped" not in row]
    compared = [row["close"] for row in asked if row.get("close") is not None]
    right = sum(bool(row.get("right")) for row in asked)
    return f"right in {right} of {len(asked)}; predictions within 10% in {sum(compared)} of {len(compared)}"


def listed() -> str:
    """The cases as a table."""
    rows = [
        [
            case.name,
            case.script,
            " or ".join(case.causes),
            "yes" if case.place else "-",
            case.fix or "-",
            case.notes,
        ]
        for case in CASES
    ]
    return table(["case", "script", "cause", "line", "fix", "notes"], rows)


def main(given: list[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse(given)
    if options.list:
        print(listed())
        return 0
    only = set(options.only or ())
    cases = [case for case in CASES if not only or case.name in only or case.script in only]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = (options.workdir or Path(folder)).resolve()
        for case in cases:
            rows.append(row_of(case, options, work))
            print(" | ".join(cells(case, rows[-1])), file=sys.stderr, flush=True)
    header = ["case", "truth", "said", "line named", "right", "gain predicted", "gain found", "close"]
    print(table(header, [cells(case, row) for case, row in zip(cases, rows, strict=True)]))
    print(f"\n{summary(rows)}")
    return write_rows(rows, options.output)


if __name__ == "__main__":
    raise SystemExit(main())
