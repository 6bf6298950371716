"""Minimise the corpus of a fuzzing campaign, and keep the best inputs of it.

libFuzzer's merge says which features (edges, and how often they were taken) each input has. A greedy
choice by features per stored byte, beyond those of the made seeds, gives the minimised corpus; the first of
the choice, as many as tests/cpp/fuzz/corpus.txt has room for, are kept there. Named findings stay.
"""

from __future__ import annotations

import base64
import heapq
import re
import shutil
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

import fuzz_campaign

ROOT = fuzz_campaign.ROOT
CORPUS = ROOT / "tests" / "cpp" / "fuzz" / "corpus.txt"
MOST_BYTES = 96 * 1024  # of corpus.txt
GENERATED = re.compile(r"cov-[0-9a-f]{10}$")


@dataclass(frozen=True)
class Input:
    """One input of a target."""

    target: str
    path: Path
    features: frozenset[int]

    @property
    def line(self) -> str:
        """As corpus.txt has it."""
        text = base64.b64encode(zlib.compress(self.path.read_bytes(), 9)).decode()
        return f"{self.target} cov-{self.path.name[:10]} {text}"


def features_of(control: str) -> dict[str, frozenset[int]]:
    """By file, from what libFuzzer's merge writes down.

    Its lines are: how many files, how many of them seeds, then each file's path; ``STARTED number size``,
    ``FT number features...`` of each file, in the files' order.
    """
    lines = control.splitlines()
    count = int(lines[0])
    files, rest = lines[2 : 2 + count], lines[2 + count :]
    found = {}
    for line in rest:
        word, *numbers = line.split()
        if word == "FT":
            found[files[int(numbers[0])]] = frozenset(map(int, numbers[1:]))
    return found


def read_features(state: fuzz_campaign.State, target: str) -> dict[str, frozenset[int]]:
    """What each made seed and each input of the corpus reaches.

    A merge for a set cover writes down all of it; a plain one only what is new of each file.
    """
    control, scratch = state.folder / f"{target}.merge", state.folder / "merged" / target
    for old in (control, scratch):
        shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
    scratch.mkdir(parents=True)
    folders = [fuzz_campaign.FUZZERS / "seeds" / target, state.folder / "corpus" / target]
    command = [str(fuzz_campaign.FUZZERS / "tests/cpp/fuzz" / target), "-set_cover_merge=1", str(scratch)]
    command += [str(folder) for folder in folders if folder.is_dir()]
    command += [f"-merge_control_file={control}", *fuzz_campaign.options_of(target)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        env=fuzz_campaign.environment(),
        check=False,
    )
    shutil.rmtree(scratch)
    if not control.exists():
        raise SystemExit(
            f"{target}: libFuzzer's merge ended with status {done.returncode}:\n{done.stderr[-2000:]}"
        )
    return features_of(control.read_text())


def choose(inputs: list[Input], reached: set[int]) -> list[Input]:
    """Those that reach something beyond ``reached`` and each other, the best for its bytes first."""
    sizes = [len(one.line) for one in inputs]
    known = set(reached)
    # A gain only falls, so only the best one's needs to be computed anew.
    best = [(-len(one.features - known) / sizes[i], i) for i, one in enumerate(inputs)]
    heapq.heapify(best)
    chosen: list[Input] = []
    while best:
        before, i = heapq.heappop(best)
        now = -len(inputs[i].features - known) / sizes[i]
        if now == 0:
            continue
        if now > before:
            heapq.heappush(best, (now, i))
            continue
        chosen.append(inputs[i])
        known |= inputs[i].features
    return chosen


def minimise_target(state: fuzz_campaign.State, target: str) -> tuple[list[Input], set[int]]:
    """The chosen inputs, in ``minimised/TARGET``, and what the made seeds reach."""
    found = read_features(state, target)
    seeds = fuzz_campaign.FUZZERS / "seeds" / target
    # What corpus.txt has lies among the seeds; it is to be chosen anew.
    made = {file for file in found if Path(file).parent == seeds and not GENERATED.match(Path(file).name)}
    reached: set[int] = set().union(*(found[file] for file in made))
    inputs = [Input(target, Path(file), features) for file, features in found.items() if file not in made]
    chosen = choose(inputs, reached)
    folder = state.folder / "minimised" / target
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for one in chosen:
        shutil.copy(one.path, folder / one.path.name)
    total = set(reached).union(*(one.features for one in inputs))
    print(
        f"{target}: {len(made)} seeds reach {len(reached)} features; {len(chosen)} of {len(inputs)} inputs "
        f"reach the other {len(total) - len(reached)}",
        flush=True,
    )
    return chosen, reached


def keep(chosen: dict[str, list[Input]], reached: dict[str, set[int]]) -> None:
    """Writes the best of the choice into corpus.txt, which keeps its named findings."""
    lines = []
    for line in CORPUS.read_text().splitlines():
        target, name, _ = line.split()
        # Of a target that was not minimised all stays as it is.
        if target not in chosen or not GENERATED.match(name):
            lines.append(line)
    size = sum(len(line) + 1 for line in lines)
    order = []
    for target, inputs in chosen.items():
        known = set(reached[target])
        for one in inputs:
            order.append((len(one.features - known) / len(one.line), one))
            known |= one.features
    taken = []
    for _, one in sorted(order, key=lambda item: -item[0]):
        line = one.line
        if size + len(line) + 1 > MOST_BYTES:
            continue
        taken.append(line)
        size += len(line) + 1
    CORPUS.write_text("".join(f"{line}\n" for line in [*lines, *sorted(taken)]))
    print(
        f"{CORPUS.relative_to(ROOT)}: {len(taken)} inputs beside {len(lines)} that stay, {size} bytes",
        flush=True,
    )


def minimise(state: fuzz_campaign.State, targets: list[str], keep_best: bool) -> None:
    """Of all targets."""
    chosen, reached = {}, {}
    for target in targets:
        chosen[target], reached[target] = minimise_target(state, target)
    if keep_best:
        keep(chosen, reached)
