"""Windows of frames for a policy: fastload on a packed LeRobot set, beside LeRobotDataset on its videos.

    benchmarks/install_rival.sh lerobot FOLDER
    python benchmarks/bench_windows.py IMAGE_FOLDER --lerobot FOLDER/lerobot

A sample has 3 frames of 2 cameras, at 480 x 640 in the set and 224 x 224 in the batch, and 50 actions. The
set is made of photographs that move, with AV1 as LeRobot encodes it (sets/robot.py). LeRobot's rows:
torchcodec, torch's DataLoader with each number of workers, ``image_transforms`` resizes. fastload's: the set
packed at full size and resized in the loader ("full"), packed at 224 x 224 ("small"), and the same as
coefficient records. All take turns; "times" compares with LeRobot's best number of workers. Without
``--lerobot`` its rows are left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.children import child
from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import (
    MINIMUM_REPEATS,
    Candidate,
    Run,
    alternate,
    check_repeats,
    failures,
    summarize,
    table,
    values_of,
    write_results,
)
from sets.images import bytes_below, pictures_in
from sets.robot import make_robot_set

HERE = Path(__file__).parent
SIDE = "224x224"
PACKS: dict[str, list[str]] = {
    "full": [],
    "small": ["--size", SIDE],
    "small, coefficients": ["--size", SIDE, "--coefficients", "fast"],
}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--lerobot", type=Path, metavar="ENVIRONMENT", help="a folder with bin/python")
    parser.add_argument("--episodes", type=int, default=12)
    parser.add_argument("--length", type=int, default=300, help="rows of an episode, 30 a second")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], help="of torch's DataLoader")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of fastload")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--workdir", type=Path, help="folder that keeps the sets")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "windows.json")
    return parser.parse_args(argv)


def prepared(options: argparse.Namespace, work: Path) -> Path:
    """The set and its packs, made if they are not there."""
    source = work / "set"
    if not (work / "made").exists():
        make_robot_set(source, pictures_in(options.images), options.episodes, options.length)
        (work / "made").touch()
    for name, words in PACKS.items():
        pack_folder(source, work / name, "--as", "lerobot", *words, "--quiet")
    return source


def candidates(options: argparse.Namespace, work: Path) -> list[Candidate]:
    """Every run of a round."""
    common = ["--batch-size", options.batch_size, "--seconds", options.seconds]
    found = []
    if options.lerobot is not None:
        # Absolute, but not resolved: the environment's python is a link.
        environment = Path(os.path.abspath(options.lerobot))
        libraries = [environment / "ffmpeg", *environment.glob("lib/python3*/site-packages/av.libs")]
        env = {"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)), "HF_HUB_OFFLINE": "1"}
        for workers in options.workers:
            words = ["lerobot", work / "set", "--workers", workers, *common]
            line = child("runs.windows", *words, python=environment / "bin" / "python")
            found.append(Candidate(f"LeRobot, {workers} workers", line, env, [work / "set"]))
    for name in PACKS:
        for dtype in ("float32", "uint8"):
            words = ["fastload", work / name, "--workers", options.threads, "--dtype", dtype, *common]
            line = child("runs.windows", *words)
            found.append(Candidate(f"{name}, {dtype}", line, reads=[work / name]))
    return found


def sizes(runs: Sequence[Run], work: Path) -> dict[str, float]:
    """MB on disk of what each candidate reads of the cameras."""
    names = dict.fromkeys(run.name for run in runs if not run.error)
    folders = {name: "set/videos" if is_theirs(name) else name.rpartition(", ")[0] for name in names}
    return {name: bytes_below(work / folder) / 1e6 for name, folder in folders.items()}


def is_theirs(name: str) -> bool:
    """Whether a candidate is LeRobot's own loader."""
    return name.startswith("LeRobot")


def shown(runs: Sequence[Run], megabytes: Mapping[str, float], videos: float) -> str:
    """The table."""
    rates = {name: summarize(values_of(runs, name, "rate")) for name in megabytes}
    theirs = [rate.median for name, rate in rates.items() if is_theirs(name)]
    rows: list[tuple[Any, ...]] = []
    for name, rate in rates.items():
        times = f"{rate.median / max(theirs):.1f}" if theirs else ""
        size = megabytes[name]
        rows.append((name, rate.text(int(is_theirs(name))), times, f"{size:.0f}", f"{size / videos:.1f}"))
    return table(("way", "samples/s", "times", "MB", "times the videos"), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parse(argv)
    check_repeats(options.repeats)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.workdir or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        prepared(options, work)
        print(f"{facts()['cpu']}, {facts()['cores']} cores")
        runs = alternate(candidates(options, work), options.repeats)
        megabytes = sizes(runs, work)
        print(shown(runs, megabytes, bytes_below(work / "set" / "videos") / 1e6))
    write_results(options.output, "windows", vars(options), runs, megabytes=megabytes)
    for name, error in failures(runs).items():
        print(f"{name} failed: {error}", file=sys.stderr)
    return 1 if failures(runs) else 0


if __name__ == "__main__":
    sys.exit(main())
