"""Training from an object store: fastload, mosaicml-streaming, litdata, WebDataset, torch's S3 connector.

    python benchmarks/bench_stores.py IMAGE_FOLDER [--rivals-in FOLDER] [--rivals mds=/envs/mds/bin/python]

The store is SeaweedFS on loopback, behind a line of stated latency (of each request) and bandwidth (of all
together): tests/reference. Each reader has the pictures in its own format and reads two epochs, shuffled, in
batches of 64, cropped and flipped to uint8 (readers/ says how), the first with nothing on the node, the
second with what it kept there.

fastload_third has a tier on disk for a third of the set; mds_third and litdata_third, chosen by --rivals,
have caches of a third. Then a job ends at 90% of its first epoch, and one resumes from its state
(stores.restart).

"of the line": the pictures' bytes over the epoch's seconds and the bandwidth; seconds count from opening the
set, after all imports. CPU seconds and memory are those of the reader's whole process tree, not the server's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.children import child
from harness.machine import facts
from harness.measure import (
    MINIMUM_REPEATS,
    Candidate,
    Run,
    alternate,
    check_repeats,
    failures,
    run_once,
    summarize,
    table,
    values_of,
    write_results,
)
from sets.images import repeat_images
from stores.run import find, names

sys.path.append(str(Path(__file__).parents[1] / "tests" / "reference"))

from object_server import ObjectServer

HERE = Path(__file__).parent
BUCKET = "pictures"
OWN = ("fastload", "fastload_block", "fastload_third", "fastload_local")
RESTART = "restart"
RESTARTS = {  # column: a run's value, its factor, digits
    "first batch, s: epoch's beginning": ("begin_first", 1.0, 2),
    "at 90%": ("restart_first", 1.0, 2),
    "fetched until 90%, MB": ("begin_bytes", 1e-6, 1),
    "records in the tier": ("held_records", 1.0, 0),
    "fetched after it, MB": ("restart_bytes", 1e-6, 1),
    "of records delivered before, MB": ("again_bytes", 1e-6, 3),
}
HEADS = (
    "",
    "first batch, s",
    "round trips",
    "requests before it",
    "first epoch, MB/s",
    "of the line",
    "CPU s a 1,000",
    "bytes / the set's",
    "requests",
    "second epoch, images/s",
    "CPU s a 1,000",
    "fetched again",
    "peak PSS, MB (anonymous + files)",
)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--rivals", nargs="+", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--rivals-in", type=Path, metavar="FOLDER", help="folder of install_rival.sh")
    parser.add_argument("--only", type=lambda text: text.split(","), help="readers to run, by comma")
    parser.add_argument("--images", type=int, default=1500, help="least images per epoch")
    parser.add_argument("--latency", type=float, default=0.02, help="seconds per request")
    parser.add_argument("--bandwidth", type=float, default=50e6, help="bytes per second")
    parser.add_argument("--shard-bytes", type=int, default=8_000_000, help="bytes per shard of the others")
    parser.add_argument("--threads", type=int, default=2, help="threads or worker processes per reader")
    parser.add_argument("--workers", nargs="+", default=[], metavar="NAME=N", help="workers if not --threads")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--output", type=Path, default=HERE.parent / "build" / "bench" / "stores.json")
    return parser.parse_args(argv)


def readers_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Name -> interpreter: fastload's with this one, then the rivals asked for."""
    chosen = dict.fromkeys(OWN, sys.executable)
    for name in names() if arguments.rivals_in else ():
        python = arguments.rivals_in / name / "bin" / "python"
        if python.exists():
            chosen[name] = str(python)
    for rival in arguments.rivals:
        name, _, python = rival.partition("=")
        find(name)
        chosen[name] = python or sys.executable
    if arguments.only:
        chosen = {name: python for name, python in chosen.items() if name in arguments.only}
    return chosen


def private(workdir: Path) -> dict[str, str]:
    """A folder for temporary files: litdata empties some that it finds in the common one."""
    folder = workdir / "fastload-bench-tmp"
    folder.mkdir(exist_ok=True)
    variables = ("TMPDIR", "DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER")
    return dict.fromkeys(variables, str(folder))


def upload(server: ObjectServer, folder: Path, prefix: str) -> None:
    """All files of a folder."""
    client = server.client()
    files = [path for path in folder.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda path: client.put_object(
                    Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes()
                ),
                files,
            )
        )


def prepare(
    arguments: argparse.Namespace, chosen: dict[str, str], server: ObjectServer, workdir: Path
) -> list[Run]:
    """Pack for every reader and upload it; those that fail leave ``chosen``."""
    failed: list[Run] = []
    done: set[str] = set()
    for name in list(chosen):
        stem = name.partition("_")[0]
        if stem in done:
            continue
        packed = workdir / stem
        words = [stem, "prepare", f"--packed={packed}", f"--folder={workdir / 'images'}"]
        words += [f"--shard-bytes={arguments.shard_bytes}"]
        command = child("stores.run", *words, python=chosen[name])
        run = run_once(Candidate(name, command, private(workdir)))
        print(f"prepare {stem}: {run.error or f'{run.wall:.1f} s'}", file=sys.stderr, flush=True)
        if run.error:
            failed.append(run)
            del chosen[name]
        else:
            upload(server, packed.resolve(), stem)
            done.add(stem)
    return failed


def plan(
    arguments: argparse.Namespace, chosen: dict[str, str], server: ObjectServer, workdir: Path
) -> list[Candidate]:
    """A run of each reader, and the restart."""
    workers = dict(item.split("=") for item in arguments.workers)
    env = {**server.environment, **private(workdir)}
    found = []
    restart = {RESTART: chosen["fastload"]} if "fastload" in chosen else {}
    for name, python in {**chosen, **restart}.items():
        stem = "fastload" if name == RESTART else name.partition("_")[0]
        words = ["stores.restart"] if name == RESTART else ["stores.run", name, "run"]
        command = child(*words, f"--packed={workdir / stem}", python=python)
        command += [f"--url=s3://{BUCKET}/{stem}", f"--upstream={server.endpoint.removeprefix('http://')}"]
        command += [f"--latency={arguments.latency}", f"--bandwidth={arguments.bandwidth}"]
        command += [f"--threads={workers.get(name, arguments.threads)}"]
        found.append(Candidate(name, command, env, reads=(workdir / stem,) if "local" in name else ()))
    return found


def row(arguments: argparse.Namespace, runs: Sequence[Run], name: str, size: float) -> list[str]:
    """A reader's line of the table; ``size``: the mean bytes of a picture."""
    own = [run for run in runs if run.name == name]
    images = values_of(runs, name, "cold_images")

    def text(key: str, digits: int, scale: Any = lambda value, images: value) -> str:
        if not all(key in run.values for run in own):
            return "-"
        pairs = zip(values_of(runs, name, key), images, strict=True)
        return summarize([scale(value, count) for value, count in pairs]).text(digits)

    memory = max((run.memory for run in own), key=lambda memory: memory.total)
    local = name == "fastload_local"
    rate = text("cold_seconds", 1, lambda took, count: count * size / took / 1e6)
    share = text("cold_seconds", 2, lambda took, count: count * size / took / arguments.bandwidth)
    again = text("second_bytes", 2, lambda value, count: value / count / size)
    return [
        name,
        text("cold_first_seconds", 2),
        "-" if local else text("cold_first_seconds", 0, lambda took, _: took / (arguments.latency or 1)),
        "-" if local else text("cold_first_requests", 0),
        rate,
        "-" if local else share,
        text("cold_cpu", 2, lambda cpu, count: 1000 * cpu / count),
        "-" if local else text("cold_bytes", 2, lambda value, count: value / count / size),
        "-" if local else text("cold_requests", 0),
        text("second_seconds", 0, lambda took, count: count / took),
        text("second_cpu", 2, lambda cpu, count: 1000 * cpu / count),
        "-" if local else again,
        f"{memory.total:.0f} ({memory.anonymous:.0f} + {memory.file:.0f}), {memory.processes}",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    chosen = readers_of(arguments)
    with tempfile.TemporaryDirectory(dir=arguments.workdir, prefix="fastload-bench-") as folder:
        workdir = Path(folder)
        count, _ = repeat_images(arguments.folder, workdir / "images", arguments.images)
        size = sum(path.stat().st_size for path in (workdir / "images").rglob("*.jpg")) / count
        server = ObjectServer(workdir / "store", public=BUCKET)
        try:
            server.make_bucket(BUCKET)
            runs = prepare(arguments, chosen, server, workdir)
            runs += alternate(plan(arguments, chosen, server, workdir), arguments.repeats)
        finally:
            server.stop()
    bad = failures(runs)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print(f"{count} pictures of {size / 1000:.1f} kB; {arguments.latency * 1000:g} ms, ", end="")
    print(f"{arguments.bandwidth / 1e6:g} MB/s; {arguments.repeats} runs in turns, median [min-max]\n")
    print(table(HEADS, [row(arguments, runs, name, size) for name in chosen if name not in bad]))
    if "fastload" in chosen and RESTART not in bad:
        cells = [
            summarize([factor * value for value in values_of(runs, RESTART, key)]).text(digits)
            for key, factor, digits in RESTARTS.values()
        ]
        print(f"\n{table(list(RESTARTS), [cells])}")
    for name, error in bad.items():
        print(f"\nfailed: {name}: {error}")
    write_results(
        arguments.output, "stores", vars(arguments) | {"pictures": count, "picture_bytes": size}, runs
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
