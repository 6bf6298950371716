"""Measure every figure of README and site again, one benchmark after the other, into one small file.

    python benchmarks/all.py IMAGE_FOLDER --rivals-in FOLDER
    python benchmarks/all.py IMAGE_FOLDER --quick          # does all of it run? The figures mean nothing

It first prints how long it takes. What was measured today, at the same commit with the same options, is not
measured again, so that a stopped run resumes. What cannot run is named with the reason. The benchmarks' own
JSON files are in build/bench/all/; the results go to benchmarks/results/NAME.json, from which charts/draw.py
makes the charts and docs/measured/latest.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from charts.results import newest
from figures.collect import figure_of, plain, reasons
from figures.plan import FIGURES, Setting, Step, absent, steps
from harness.children import BENCHMARKS
from harness.provenance import provenance
from sets.images import pictures_in

FORMAT = 1  # of the results file


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--rivals-in", type=Path, metavar="FOLDER", help="folder of install_rival.sh")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(FIGURES),
                        metavar="FIGURE,FIGURE", help=f"some of {','.join(FIGURES)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="run every candidate once, for a moment")
    parser.add_argument("--again", action="store_true", help="also repeat what was measured today")
    parser.add_argument("--name", help="name of the results file (default: the date, or quick)")
    parser.add_argument("--results", type=Path, default=BENCHMARKS / "results", help="results folder")
    parser.add_argument("--work", type=Path, default=BENCHMARKS.parent / "build" / "bench" / "all")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.only) - set(FIGURES)
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    return arguments


def described(words: Sequence[object], setting: Setting) -> str:
    """The command as another user would type it."""

    def told(word: object) -> str:
        for place, name in ((setting.images, Path("IMAGES")), (setting.rivals_in, Path("RIVALS"))):
            if isinstance(word, Path) and place and word.is_relative_to(place):
                return str(name / word.relative_to(place))
        return str(word)

    return " ".join([f"python benchmarks/{Path(str(words[0])).name}", *map(told, words[1:])])


def is_done(output: Path, words: Sequence[str], now: dict[str, Any]) -> bool:
    """Whether this very call was made today, at this commit, and its result is there."""
    mark = output.with_suffix(".done")
    if not mark.exists() or not output.exists():
        return False
    before: dict[str, Any] = json.loads(mark.read_text())
    return before == {"words": list(words), "commit": now["commit"], "day": now["date"][:10]}


def run_step(step: Step, words: Sequence[object], setting: Setting, now: dict[str, Any], again: bool) -> Path:
    """Make the call, unless it was made; where its JSON is."""
    output = setting.output / f"{step.name.replace(' ', '-')}.json"
    line = [str(BENCHMARKS / str(words[0])), *map(str, words[1:]), "--output", str(output)]
    if not again and is_done(output, line, now):
        print(f"{step.name}: measured today", flush=True)
        return output
    output.unlink(missing_ok=True)
    print(f"{step.name}: {described(words, setting)}", flush=True)
    begin = time.monotonic()
    env = {**os.environ, "FASTLOAD_BENCH_SMOKE_REPEATS": "1"} if setting.quick else None
    log = output.with_suffix(".log")
    with open(log, "w") as file:
        done = subprocess.run([sys.executable, *line], stdout=file, stderr=subprocess.STDOUT, env=env)
    print(f"{step.name}: {time.monotonic() - begin:.0f} s, exit status {done.returncode}", flush=True)
    if not output.exists():
        raise RuntimeError(plain(log.read_text()))
    mark = {"words": line, "commit": now["commit"], "day": now["date"][:10]}
    output.with_suffix(".done").write_text(json.dumps(mark))
    return output


def facts_of(setting: Setting, now: dict[str, Any], missing: dict[str, str]) -> dict[str, Any]:
    """What the figures are measured on, with and of."""
    pictures = pictures_in(setting.images)
    mean = sum(path.stat().st_size for path in pictures) / len(pictures)
    rivals = " --rivals-in RIVALS" if setting.rivals_in else ""
    return {
        "format": FORMAT,
        **now,
        "machine": {**now["machine"], "kernel": str(now["machine"].get("kernel")).partition("-")[0]},
        "quick": setting.quick,
        "command": f"python benchmarks/all.py IMAGES{rivals}{' --quick' if setting.quick else ''}",
        "images": {"files": len(pictures), "mean_kb": round(mean / 1e3, 1)},
        "missing": missing,
    }


def keep(result: dict[str, Any], step: Step, words: Sequence[object], body: dict[str, Any],
         setting: Setting) -> None:  # fmt: skip
    """Put a step's figures into the results."""
    figure, _, part = step.name.partition(" ")
    made = {"command": described(words, setting), "date": body["date"], **figure_of(step.name, body)}
    made["load_1min"] = body["machine"]["load_1min"]
    if part:
        result["figures"].setdefault(figure, {})[part] = made
    else:
        result["figures"][figure] = made
    result["missing"].update({f"{step.name} | {name}": why for name, why in reasons(body).items()})


def write(result: dict[str, Any], target: Path) -> None:
    """A line for each row, so that changes can be seen."""
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, separators=(",", ":"), sort_keys=True)
    target.write_text(text.replace('},"', '},\n"').replace("},{", "},\n{") + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    setting = Setting(arguments.folder, arguments.rivals_in, arguments.quick, arguments.work)
    arguments.work.mkdir(parents=True, exist_ok=True)
    now = provenance()
    target = arguments.results / f"{arguments.name or ('quick' if setting.quick else now['date'][:10])}.json"
    wanted = [step for step in steps(setting) if step.name.partition(" ")[0] in arguments.only]
    minutes = sum(step.seconds for step in wanted) / 60
    print(f"{len(wanted)} steps, about {minutes:.0f} minutes. Close everything else.", flush=True)
    result = {**facts_of(setting, now, absent(setting)), "figures": {}}
    # What the classic recipe has shown on such a machine need not be measured again.
    before = {name: found.figure for name, found in newest(arguments.results, now["machine"]).items()}
    for step in wanted:
        words = step.words({**before, **result["figures"]})
        try:
            output = run_step(step, words, setting, now, arguments.again)
            keep(result, step, words, json.loads(output.read_text()), setting)
        except RuntimeError as error:
            result["missing"][step.name] = str(error)
        write(result, target)
    for name, why in result["missing"].items():
        print(f"not measured: {name}: {why}")
    print(f"{target}. Now: python benchmarks/charts/draw.py")
    return 0 if len(result["figures"]) else 1


if __name__ == "__main__":
    sys.exit(main())
