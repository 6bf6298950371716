"""DLIO, the program of MLPerf Storage: its own readers beside fastload's plug-in, on files that it has made.

    benchmarks/install_rival.sh dlio FOLDER
    python benchmarks/bench_mlperf.py --rivals-in FOLDER [--only resnet50] [--accelerators 8]

Each run is DLIO's own command with its own workload, some of whose options are set on the command line: fewer
files, two reading threads, the format or the loader. An accelerator is a process that sleeps for the time of
a step; the data lie in the page cache, so the loaders' CPU time is measured and no storage. U-Net3D has a
quarter of its bytes a sample and of its step, which asks for the same bytes a second.

*CPU time*: of all processes of a run with one accelerator, from the first to the last step of each epoch.
From it follows how many H100s so many cores can feed at most, also on a busy machine. The loaders take turns.

``--accelerators N`` measures it by the clock, too: 1, 2, 4, ... of them, at most N, until the utilisation
that DLIO prints (AU) is below 90%, then numbers between the last two. Only a quiet machine gives figures
there. ``--repeats 0`` leaves out the CPU time; ``--larger 2`` makes twice the files, so that many
accelerators have more steps an epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.machine import busy_seconds, facts
from harness.measure import Summary, check_repeats, table
from harness.provenance import provenance

HERE = Path(__file__).parent
AU = 90.0  # percent: what the rules ask of ResNet-50 and U-Net3D
PLUG_IN = "fastload.integrations.dlio.FastloadDataLoader"
#: Options of each loader: DLIO's framework and its loader; for fastload, that of its plug-in.
LOADERS = {
    "tensorflow": ("tensorflow", "tensorflow"),
    "pytorch": ("pytorch", "pytorch"),
    "dali": ("pytorch", "dali"),
    "native_dali": ("pytorch", "native_dali"),
    "fastload": ("pytorch", "custom"),
    "fastload packed": ("pytorch", "custom"),
}


@dataclass(frozen=True)
class Workload:
    """A workload of DLIO's, with what is set otherwise."""

    name: str
    config: str  # DLIO's
    format: str
    files: int
    each: int  # samples a file
    batch: int
    step: float  # seconds
    options: dict[str, object]  # of the dataset
    loaders: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Samples a second that one H100 takes."""
        return self.batch / self.step

    @property
    def samples(self) -> int:
        """Of all files."""
        return self.files * self.each


RECORDS = ("tensorflow", "native_dali", "fastload", "fastload packed")
PICTURES = ("pytorch", "native_dali", "fastload packed")
ARRAYS = ("pytorch", "tensorflow", "dali", "fastload", "fastload packed")
WORKLOADS = (
    Workload("resnet50", "resnet50_h100", "tfrecord", 8, 1251, 400, 0.224, {}, RECORDS),
    Workload("resnet50 jpeg", "resnet50_h100", "jpeg", 4000, 1, 400, 0.224, {}, PICTURES),
    Workload(
        "unet3d", "unet3d_h100", "npz", 42, 1, 7, 0.323 / 4,
        {"record_length": 146600628 // 4, "record_length_stdev": 68341808 // 4,
         "record_length_resize": 2097152 // 4}, ARRAYS,
    ),
)  # fmt: skip


# ---- One run of DLIO --------------------------------------------------------------------------------


class Dlio:
    """DLIO in its environment."""

    def __init__(self, environment: Path, workdir: Path) -> None:
        self._bin, self._workdir = environment / "bin", workdir
        self._env = {
            **os.environ,
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(HERE.parent),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def folder(self, workload: Workload, loader: str = "") -> Path:
        """Where a loader finds a workload's data: the same files, for one of them with a packed set."""
        kind = "packed" if loader == "fastload packed" else "data"
        return self._workdir / f"{workload.name.replace(' ', '-')}-{kind}"

    def generate(self, workload: Workload) -> None:
        """Let DLIO make a workload's files, and the plug-in its packed set."""
        data, packed = self.folder(workload), self.folder(workload, "fastload packed")
        if not data.exists():
            options = ["workflow.generate_data=True", "workflow.train=False"]
            words = self._command(workload, "tensorflow", 1, options)
            subprocess.run(words, env=self._env, check=True, cwd=self._workdir, capture_output=True)
        if not packed.exists():
            packed.mkdir()
            for name in ("train", "valid"):
                (packed / name).symlink_to(data / name)
            words = [str(self._bin / "python"), "-m", "fastload.integrations.dlio", str(packed)]
            subprocess.run(words, env=self._env, check=True, cwd=self._workdir)

    def run(self, workload: Workload, loader: str, accelerators: int, epochs: int) -> dict[str, Any]:
        """Run it; return CPU seconds a sample of each epoch, and the utilisation by DLIO."""
        epochs = 1 if loader == "native_dali" else epochs  # DLIO 2.0.0 fails in its second one
        words = self._command(workload, loader, accelerators, [f"train.epochs={epochs}"])
        last = workload.samples // workload.batch // accelerators
        seconds: list[float] = []  # at the first and at the last step of each epoch
        log = []
        process = subprocess.Popen(
            words, env=self._env, cwd=self._workdir, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line)
            match = re.search(r"Rank 0 step (\d+) processed", line)
            if match and int(match[1]) in (1, last):
                seconds.append(cpu_seconds(process.pid))
        if process.wait() != 0 or len(seconds) != 2 * epochs:
            raise SystemExit(f"{workload.name} by {loader} failed:\n{''.join(log[-40:])}")
        metric = json.loads((self._output / "summary.json").read_text())["metric"]
        return {
            "cpu": [
                (after - before) / ((last - 1) * workload.batch * accelerators)
                for before, after in zip(seconds[::2], seconds[1::2], strict=True)
            ],
            "au": metric["train_au_mean_percentage"],
            "au_each": metric["train_au_percentage"],
        }

    @property
    def _output(self) -> Path:
        return self._workdir / "output"

    def _command(self, workload: Workload, loader: str, ranks: int, options: Sequence[str]) -> list[str]:
        framework, data_loader = LOADERS[loader]
        given: dict[str, object] = {
            "framework": framework,
            "reader.data_loader": data_loader,
            "reader.read_threads": len(os.sched_getaffinity(0)),
            "reader.computation_threads": len(os.sched_getaffinity(0)),
            "reader.batch_size": workload.batch,
            "train.computation_time": workload.step,
            "workflow.checkpoint": False,
            "dataset.format": workload.format,
            "dataset.num_files_train": workload.files,
            "dataset.num_samples_per_file": workload.each,
            "dataset.data_folder": self.folder(workload, loader),
            **{f"dataset.{name}": value for name, value in workload.options.items()},
        }
        if data_loader == "custom":
            given |= {"reader.data_loader_classname": PLUG_IN, "reader.data_loader_sampler": "none"}
        set_so = [f"{name}={value}" for name, value in given.items()]
        mpi = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        return [
            str(self._bin / "mpirun"), *mpi, "-n", str(ranks), str(self._bin / "python"), "-m",
            "dlio_benchmark.main", f"hydra.run.dir={self._output}", f"workload={workload.config}",
            *(f"++workload.{one}" for one in [*set_so, *options]),
        ]  # fmt: skip


def cpu_seconds(root: int) -> float:
    """CPU seconds of a process and all below it, with those that are over."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = re.sub(r"^.*\) ", "", path.read_text(), flags=re.DOTALL).split()
        except OSError:
            continue  # it is over
        parents[int(path.parent.name)] = int(words[1])
        used[int(path.parent.name)] = sum(map(int, words[11:15]))
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(used.get(pid, 0) for pid in below) / os.sysconf("SC_CLK_TCK")


# ---- All of them ------------------------------------------------------------------------------------


def cpu_rows(dlio: Dlio, workload: Workload, repeats: int, epochs: int) -> list[dict[str, Any]]:
    """A row for each loader: CPU time a sample, and how many H100s follow from it."""
    found: dict[str, list[float]] = {loader: [] for loader in workload.loaders}
    utilisation: dict[str, list[float]] = {loader: [] for loader in workload.loaders}
    for turn in range(repeats):
        for loader in workload.loaders[:: 1 if turn % 2 == 0 else -1]:
            run = dlio.run(workload, loader, 1, epochs)
            found[loader] += run["cpu"]
            utilisation[loader] += run["au_each"]
    cores = len(os.sched_getaffinity(0))
    return [
        {
            "workload": workload.name,
            "loader": loader,
            "cpu_ms": spread([1e3 * each for each in found[loader]]),
            "rate": spread([cores / each for each in found[loader]]),
            "h100s": spread([cores / each / workload.rate for each in found[loader]]),
            "au": spread(utilisation[loader]),
        }
        for loader in workload.loaders
    ]


def spread(values: Sequence[float]) -> Summary:
    """Median and extremes; of DALI's epochs there are few."""
    return Summary(statistics.median(values), min(values), max(values), len(values))


def most_fed(dlio: Dlio, workload: Workload, loader: str, most: int, epochs: int) -> list[dict[str, Any]]:
    """Utilisation with 1, 2, 4, ... accelerators until it is too low, and between the last two numbers."""
    rows: list[dict[str, Any]] = []
    fed, starved = 0, most + 1
    while starved - fed > 1:
        accelerators = (fed + starved) // 2 if starved <= most else min(max(1, 2 * fed), most)
        if workload.samples // workload.batch // accelerators < 2:
            starved = accelerators  # DLIO leaves out the first step
            continue
        before = busy_seconds()
        run = dlio.run(workload, loader, accelerators, epochs)
        rows.append({"workload": workload.name, "loader": loader, "accelerators": accelerators, **run,
                     "busy": busy_seconds() - before})  # fmt: skip
        fed, starved = (accelerators, starved) if run["au"] >= AU else (fed, accelerators)
    return rows


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rivals-in", type=Path, required=True, metavar="FOLDER", help="with FOLDER/dlio")
    parser.add_argument("--only", nargs="+", default=[w.name for w in WORKLOADS], metavar="WORKLOAD")
    parser.add_argument("--loaders", nargs="+", default=list(LOADERS), choices=list(LOADERS))
    parser.add_argument("--repeats", type=int, default=2, help="runs of each loader; 0: no CPU time")
    parser.add_argument("--epochs", type=int, default=3, help="of a run")
    parser.add_argument("--accelerators", type=int, default=0, metavar="N", help="at most, by the clock")
    parser.add_argument("--larger", type=int, default=1, metavar="N", help="times the files")
    parser.add_argument("--workdir", type=Path, help="where the data are made, and stay")
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "mlperf.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = parse(argv)
    if arguments.repeats or not arguments.accelerators:
        check_repeats(arguments.repeats * arguments.epochs)
    with tempfile.TemporaryDirectory(prefix="fastload-mlperf-") as temporary:
        workdir = Path(arguments.workdir or temporary).absolute()
        workdir.mkdir(parents=True, exist_ok=True)
        dlio = Dlio((arguments.rivals_in / "dlio").absolute(), workdir)
        cpu, clock = [], []
        for workload in WORKLOADS:
            if workload.name not in arguments.only:
                continue
            asked = tuple(loader for loader in workload.loaders if loader in arguments.loaders)
            workload = replace(workload, loaders=asked, files=workload.files * arguments.larger)
            dlio.generate(workload)
            if arguments.repeats:
                cpu += cpu_rows(dlio, workload, arguments.repeats, arguments.epochs)
            for loader in workload.loaders if arguments.accelerators else ():
                clock += most_fed(dlio, workload, loader, arguments.accelerators, arguments.epochs)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()), "\n")
    show(cpu, clock)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    given = {name: str(value) for name, value in vars(arguments).items()}
    body = {"benchmark": "mlperf", **provenance(), "arguments": given, "cpu": cpu, "clock": clock}
    arguments.output.write_text(json.dumps(body, indent=1, default=_plain) + "\n")
    return 0


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Summary) else str(value)


def show(cpu: Sequence[dict[str, Any]], clock: Sequence[dict[str, Any]]) -> None:
    """Print the tables."""
    head = ("workload", "reader", "CPU ms a sample", "samples/s at most", "H100s at most", "AU of one, %")
    rows = [
        (row["workload"], row["loader"], row["cpu_ms"].text(3), row["rate"].text(0), row["h100s"].text(2),
         row["au"].text(1))
        for row in cpu
    ]  # fmt: skip
    if cpu:
        print(table(head, rows), "\n")
    if clock:
        rows = [
            (row["workload"], row["loader"], row["accelerators"], f"{row['au']:.1f}",
             ", ".join(f"{each:.1f}" for each in row["au_each"]))
            for row in clock
        ]  # fmt: skip
        print(table(("workload", "reader", "H100s", "AU, %", "of each epoch"), rows))


if __name__ == "__main__":
    sys.exit(main())
