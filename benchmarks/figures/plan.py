"""What all.py runs: a step for each figure, which is one call of a benchmark or several."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FIGURES", "INSTALLED", "Setting", "Step", "absent", "steps"]

# Candidate of bench_loader.py -> the environment that install_rival.sh makes for it.
INSTALLED = {
    "torch_simd": "torch_simd", "torch_cv2": "torch_cv2", "dali_fused": "dali", "ffcv_orig": "ffcv",
    "tf_plain": "tf", "tf_aa": "tf", "spdl": "spdl", "wds": "wds", "mds": "mds", "litdata": "litdata",
}  # fmt: skip
FORMS = ("fastload", "noentries", "coefficients", "small", "raw")  # of the bytes' figure
RECIPES = ("rand_augment", "timm_rand", "simclr", "dino")
BESIDE = {"vision": "transformers", "windows": "lerobot"}  # figure -> the environment that it needs
FIGURES = ("classic", "raw", "recipes", "cores", "bytes", "memory", "packing", *BESIDE, "training")
START = {  # seconds until the first batch: FFCV compiles; the others start worker processes
    "ffcv_orig": 17.0, "ffcv_raw256": 17.0, "litdata": 21.0, "mds": 8.0, "wds": 6.0,
    "torch_pil": 6.0, "torch_simd": 6.0, "torch_cv2": 6.0,
}  # fmt: skip
SLOWER = 1.7  # times as long a recipe's run takes: its batches take longer, and DALI has some
OTHERS_START = 3.5  # imports and warm-up


@dataclass(frozen=True)
class Setting:
    """What the user asked for."""

    images: Path
    rivals_in: Path | None
    quick: bool
    output: Path  # where the steps' own JSON files go

    @property
    def measured(self) -> tuple[str, ...]:
        """Options of a measured run: so many seconds, and images an epoch."""
        return (
            ("--seconds", "0.3", "--images", "1500")
            if self.quick
            else ("--seconds", "1.0", "--images", "4000")
        )

    @property
    def repeats(self) -> int:
        """Runs of each candidate."""
        return 1 if self.quick else 5

    def python(self, environment: str) -> Path | None:
        """The interpreter of a rival's environment, where it is installed."""
        if self.rivals_in is None:
            return None
        python = self.rivals_in / environment / "bin" / "python"
        return python if python.exists() else None

    def rivals(self) -> list[str]:
        """The candidates whose environments are there."""
        return [name for name, environment in INSTALLED.items() if self.python(environment)]


@dataclass(frozen=True)
class Step:
    """One call of a benchmark: ``words`` are its script and options, made of what earlier steps found."""

    name: str  # its file's; up to a blank the figure
    words: Callable[[Mapping[str, Any]], Sequence[object]]
    seconds: float  # that it is expected to take


def gpu_is_there() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def absent(setting: Setting) -> dict[str, str]:
    """Rival, or figure -> why it is not measured."""
    place = "--rivals-in FOLDER"
    no_gpu = {} if gpu_is_there() else {"training": "torch sees no GPU"}
    return no_gpu | {
        environment: f"not installed: benchmarks/install_rival.sh {environment} FOLDER, then {place}"
        for environment in dict.fromkeys([*INSTALLED.values(), "torch_pil", *BESIDE.values()])
        if not setting.python(environment)
    }


def expected(names: Sequence[str], jobs: float, setting: Setting, prepared: float = 5.0) -> float:
    """Seconds that bench_loader.py takes for these candidates."""
    each = float(setting.measured[1])
    return prepared + setting.repeats * jobs * sum(START.get(name, OTHERS_START) + each for name in names)


def loader(setting: Setting, jobs: str, names: Sequence[str], *more: object) -> list[object]:
    """A call of bench_loader.py."""
    given: list[object] = ["bench_loader.py", setting.images, *setting.measured, "--jobs", jobs]
    given += ["--rivals-in", setting.rivals_in] if setting.rivals_in else []
    ours = [name for name in names if name.startswith("fastload_")]
    given += ["--rivals", *ours] if ours else []
    return [*given, "--only", ",".join(names), "--repeats", setting.repeats, *more]


def core_counts(cores: int) -> list[int]:
    """1, 2, 4 and so on, and all."""
    return sorted({1 << power for power in range(cores.bit_length()) if 1 << power <= cores} | {cores})


def fastest_rival(found: Mapping[str, Any]) -> list[str]:
    """The classic recipe's fastest rival, torch with Pillow aside; none if it was not measured."""
    rows = found.get("classic", {}).get("jobs", {}).get("train_u8", [])
    rivals = [row for row in rows if row["name"] != "torch_pil" and not row["name"].startswith("fastload")]
    return [max(rivals, key=lambda row: float(row["median"]))["name"]] if rivals else []


def as_classic(found: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """--workers: as many as each loader had at the classic recipe; nothing if it was not measured."""
    rows = found.get("classic", {}).get("jobs", {}).get("train_u8", [])
    given = [f"{row['name']}={row['workers']}" for row in rows if row["name"] in names]
    return ["--workers", *given] if given else []


def steps(setting: Setting) -> list[Step]:
    """All figures, in the order in which they are made."""
    names = ["fastload", "fastload_noentries", "torch_pil", *setting.rivals()]
    cores = len(os.sched_getaffinity(0))
    tried = sorted({cores, cores + cores // 2, 2 * cores})
    sweep: list[object] = ["--sweep", ",".join(map(str, tried)), "--sweep-seconds", setting.measured[1]]
    swept = expected(names, len(tried), setting, 60.0) / setting.repeats
    found = [
        Step("classic", lambda _: loader(setting, "train_u8,train_f32", names, *sweep),
             swept + expected(names, 2, setting)),
    ]  # fmt: skip
    raw = ["fastload_raw256", *(["ffcv_raw256"] if setting.python("ffcv") else [])]
    found.append(
        Step("raw", lambda _: loader(setting, "train_u8", raw, "--baseline", raw[0]),
             expected(raw, 1, setting, 40.0))
    )  # fmt: skip
    found.append(_recipes(setting))
    for count in core_counts(cores):
        found.append(
            Step(f"cores {count}", lambda found, count=count: loader(  # type: ignore[misc]
                setting, "train_u8", ["fastload", "torch_pil", *fastest_rival(found)], "--cpus", count),
                expected(["fastload", "torch_pil", ""], 1, setting))
        )  # fmt: skip
    forms = [name if name == "fastload" else f"fastload_{name}" for name in FORMS]
    found.append(
        Step("bytes", lambda _: loader(setting, "train_u8", forms, "--baseline", "fastload"),
             expected(forms, 1, setting, 40.0))
    )  # fmt: skip
    return [*found, *_others(setting), *_beside(setting)]


def _recipes(setting: Setting) -> Step:
    torch_side = setting.python("torch_pil")
    names = ["fastload", *(["torch_pil"] if torch_side else [])]
    names += ["dali_fused"] if setting.python("dali") else []
    jobs = ",".join(("train_f32", *RECIPES))
    words = ["bench_recipes.py", *loader(setting, jobs, names)[1:]]
    more = ("--baseline", names[-1] if len(names) == 1 else names[1])
    return Step(
        "recipes",
        lambda found: [*words, *more, *as_classic(found, names)],
        expected(names[:2], SLOWER * (1 + len(RECIPES)), setting),
    )


def _others(setting: Setting) -> list[Step]:
    ranks = "1,2" if setting.quick else "1,2,4,8"
    pack = ["--processes", 1, "--bytes", "20MB" if setting.quick else "100MB", "--repeats", setting.repeats]
    pack += ["--rivals-in", setting.rivals_in] if setting.rivals_in else []
    memory = ["--only", "memory", "--ranks", ranks, "--repeats", setting.repeats]
    found = [
        Step("memory", lambda _: ["bench_ranks.py", setting.images, *memory], 40.0 * setting.repeats),
        Step("packing", lambda _: ["bench_pack.py", setting.images, *pack], 25.0 * setting.repeats),
    ]
    if gpu_is_there():
        seconds = 0.3 if setting.quick else 3.0
        words = ["bench_starvation.py", setting.images, "--repeats", setting.repeats, "--seconds", seconds]
        found.append(Step("training", lambda _: words, 120.0 + 10 * (seconds + 2.0) * setting.repeats))
    return found


def _beside(setting: Setting) -> list[Step]:
    """Jobs that each have one other loader: they are measured beside it or not at all."""
    cores = len(os.sched_getaffinity(0))
    repeats = ["--repeats", setting.repeats]
    every = ["--every", 250] if setting.quick else []
    smallest = ["--episodes", 2, "--length", 9, "--batch-size", 4, "--seconds", 0.1, "--workers", 1]
    options = smallest if setting.quick else ["--workers", cores, 2 * cores]
    calls = {
        "vision": ("bench_vision.py", [*every, *repeats], 60.0 + 30.0 * setting.repeats),
        "windows": ("bench_windows.py", [*options, *repeats], 180.0 + 110.0 * setting.repeats),
    }
    found = []
    for name, (script, more, seconds) in calls.items():
        if setting.rivals_in and setting.python(BESIDE[name]):
            beside = [f"--{BESIDE[name]}", setting.rivals_in / BESIDE[name]]
            words = [script, setting.images, *beside, *more]
            found.append(Step(name, lambda _, words=words: words, seconds))  # type: ignore[misc]
    return found
