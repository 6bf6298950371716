"""All named attacks, each in a forked child under a ceiling of memory and a limit of time.

    export ARROW_DEFAULT_MEMORY_POOL=system  # see SMALL_POOLS
    PYTHONPATH=.:tests/reference:tests/faults python tests/faults/hostile_inputs.py '{"points": 0, "seed": 1}'

``points``: how many attacks, drawn by the seed; 0: all. ``only``: a part of the names, or a kind; ``names``:
these. The ceiling of an attack is what the honest jobs of its kind of input take, measured first, and MARGIN.
A table of names, rules and outcomes goes to stdout, and a line of JSON behind it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).resolve().parents[1] / name) for name in ("attacks", "pack", "reference"))

import torch
from attack_rules import ATTACKS, EITHER, HONEST, MARKED, Attack, cases_of, is_quoted
from judged import Outcome, bad, judge, place_in_memory

TESTS = Path(__file__).resolve().parents[1]
MARGIN = 64 << 20  # bytes of addresses above the honest jobs'
SEEN = (
    "manifest",
    "pictures",
    "containers",
    "archives",
    "sources",
    "caches",
    "disk_tiers",
    "states",
    "stores",
)
TESTED = ("attacks", "cache", "decode")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def load() -> None:
    """Import all modules with attacks: named ones, and tests that are attacks themselves."""
    for name in SEEN:
        if (TESTS / "attacks" / f"named_{name}.py").exists():
            importlib.import_module(f"named_{name}")
    for folder in TESTED:
        sys.path.append(str(TESTS / folder))
        for path in sorted((TESTS / folder).glob("test_hostile*.py")):
            spec = importlib.util.spec_from_file_location(f"{folder}_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)


def ceilings(kinds: set[str], work: Path) -> tuple[dict[str, int], list[list[str]]]:
    """Bytes that attacks of each kind may take; what is wrong with the honest jobs."""
    found: dict[str, int] = {}
    wrong = []
    for kind in sorted(kinds):
        for number, make in enumerate(HONEST[kind]):
            outcome = in_folder(work / f"honest-{kind}-{number}", make, None, 120.0)
            fault = bad(outcome)
            if fault or outcome.ended != "returned":
                wrong.append([f"honest: {kind}", fault or outcome.words])
            found[kind] = max(found.get(kind, 0), outcome.peak)
    return {kind: peak + MARGIN for kind, peak in found.items()}, wrong


def in_folder(folder: Path, make: Any, ceiling: int | None, seconds: float) -> Outcome:
    """One attack, or an honest job, in a folder of its own that is removed."""
    folder.mkdir(parents=True)
    try:
        return judge(make, folder, ceiling=ceiling, seconds=seconds, prepare=partial(make, folder / "in"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def verdict(attack: Attack, outcome: Outcome) -> str:
    """What is wrong with what came of an attack, or nothing."""
    fault = bad(outcome)
    if fault:
        return fault
    if attack.words == EITHER:
        return ""
    if attack.words is None:
        return "" if outcome.ended == "returned" else f"{outcome.error}: {outcome.words}"
    if outcome.ended == "returned":
        return f"taken as good: {json.dumps(outcome.value):.200}"
    if re.search(attack.words, outcome.words) is None:
        return f"{outcome.error} without {attack.words!r}: {outcome.words:.1000}"
    return ""


def run(points: int, seed: int, work: Path, only: str = "", these: Sequence[str] = ()) -> dict[str, Any]:
    """The attacks, judged; prints the table."""
    names = sorted(name for name in ATTACKS if only in name or only == ATTACKS[name].kind)
    if these:
        names = sorted(these)
    elif points:
        names = sorted(random.Random(seed).sample(names, min(points, len(names))))
    limits, wrong = ceilings({ATTACKS[name].kind for name in names}, work)
    counts: dict[str, int] = {}
    for number, name in enumerate(names):
        attack = ATTACKS[name]
        ceiling = limits[attack.kind] + attack.extra
        outcome = in_folder(work / f"attack-{number}", attack.make, ceiling, attack.seconds)
        fault = verdict(attack, outcome) or (
            "" if is_quoted(attack.rule) else "its rule is not in the document"
        )
        if fault:
            wrong.append([name, fault])
        counts[attack.kind] = counts.get(attack.kind, 0) + 1
        said = f"{outcome.error}: {outcome.words}" if outcome.ended == "raised" else outcome.ended
        say(
            f"{'BAD' if fault else 'ok '} | {attack.kind} | {name} | {attack.rule} | {said:.160}".replace(
                "\n", " "
            )
        )
        say(f"    ceiling {ceiling >> 20} MiB, took {outcome.peak >> 20} MiB")
    return {"instrument": "hostile_inputs", "seed": seed, "points": counts, "bad": wrong}


def marked(show: bool) -> dict[str, Any]:
    """Tests that are attacks themselves: how many inputs, and which rules are not in the documents."""
    counts: dict[str, int] = {}
    wrong = []
    for test, rule in MARKED:
        names = list(cases_of(test))
        module = Path(test.__code__.co_filename).stem
        counts[module] = counts.get(module, 0) + len(names)
        if not is_quoted(rule):
            wrong.append([test.__name__, f"its rule is not in the document: {rule}"])
        for name in names if show else ():
            say(f"in pytest | {module} | {name} | {rule}".replace("\n", " "))
    return {"named in tests": counts, "bad": wrong}


def main(options: dict[str, Any]) -> int:
    torch.set_num_threads(1)
    os.environ["FASTLOAD_CACHE_DIR"] = "/proc/no-cache-but-those-named"
    points, seed = int(options.get("points", 0)), int(options.get("seed", 1))
    load()
    whole = not points and not {"only", "names"} & set(options)
    in_tests = marked(show=whole)
    with tempfile.TemporaryDirectory(dir=place_in_memory(options.get("folder"))) as work:
        result = run(points, seed, Path(work), str(options.get("only", "")), options.get("names", ()))
    result["points"] |= in_tests["named in tests"] if whole else {}
    result["bad"] += in_tests["bad"]
    say(json.dumps(result))
    return 1 if result["bad"] else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
