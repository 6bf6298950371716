"""How many CPU cores a GPU needs, by network and loader: fills the tables of docs/measured/cores.md.

    python benchmarks/cores_of_gpus.py

Nothing is measured: images a second and core are those of the newest results of all.py and of
docs/measured/detection.md, step rates and clouds' shapes those of fastload/machine/step_rates.py, which names
their sources. The same results give the same bytes; a test compares them with what is there.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from charts.results import Result, newest  # noqa: E402
from charts.tables import table  # noqa: E402

from fastload.machine.step_rates import RATES, SHAPES, SOURCES, fed  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
DETECTION = ROOT / "docs" / "measured" / "detection.md"
DOCUMENT = ROOT / "docs" / "measured" / "cores.md"
LOADERS = {
    "torch_pil": "torch's DataLoader",
    "tf_plain": "tf.data",
    "dali_fused": "DALI on the CPU",
    "fastload": "fastload",
}
_DETECTION_CORES = 2  # of the machine of docs/measured/detection.md


@dataclass(frozen=True)
class Work:
    """What a loader does for a picture.

    Args:
        title: in words.
        networks: those that are trained so.
        figure, job: of the results; without a figure, the row of docs/measured/detection.md that begins so.
    """

    title: str
    networks: tuple[str, ...]
    figure: str
    job: str


WORKS = (
    Work(
        "random crop, flip, uint8",
        ("resnet18", "resnet18_ffcv", "resnet50", "resnet50_mlperf", "mae_vit_large"),
        "classic",
        "train_u8",
    ),
    Work(
        "the same with RandAugment, float32",
        ("vit_small", "vit5_small", "vit_base", "convnext_base"),
        "recipes",
        "rand_augment",
    ),
    Work("ten views, as DINO's", ("dinov2_vit_large",), "recipes", "dino"),
    Work("SSD's crops with boxes, 320", ("ssd",), "", "SSD"),
    Work("shortest side 480 to 800, with boxes", ("maskrcnn",), "", "Faster R-CNN"),
)


def speeds(results: Mapping[str, Result], detection: str, work: Work) -> dict[str, float]:
    """Pictures a second and core, by loader."""
    if not work.figure:
        row = next(line for line in detection.splitlines() if line.startswith(f"| {work.job}"))
        ours, theirs = (float(row.split("|")[at].split()[0].replace(",", "")) for at in (2, 5))
        return {"torch_pil": theirs / _DETECTION_CORES, "fastload": ours / _DETECTION_CORES}
    result = results[work.figure]
    rows = result.figure["jobs"][work.job]
    cores = result.body["machine"]["cores"]
    return {row["name"]: row["median"] / cores for row in rows if row["name"] in LOADERS}


def number(value: float) -> str:
    """Two digits, or whole ones."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.{1 if value >= 0.095 else 2}f}"


def cells(speed: Mapping[str, float], write: Callable[[float], str]) -> list[str]:
    """A cell for each loader, empty for those that were not measured."""
    return [write(speed[name]) if name in speed else "" for name in LOADERS]


def cores_table(found: Mapping[str, Mapping[str, float]], marks: Mapping[str, int]) -> str:
    """Cores a GPU needs, a row for each GPU and network."""
    rows = [
        [
            rate.gpu,
            rate.network,
            f"{rate.rate:,.0f} [{marks[rate.source]}]",
            *cells({name: rate.rate / each for name, each in found[rate.network].items()}, number),
        ]
        for rate in RATES
    ]
    return table(["GPU", "network", "pictures/s of its step", *LOADERS.values()], rows)


def shapes_table(found: Mapping[str, Mapping[str, float]], marks: Mapping[str, int]) -> str:
    """The share of a step's rate that each loader feeds, where one does not feed it all."""
    names: dict[tuple[str, float], list[str]] = {}
    for shape in SHAPES:
        names.setdefault((shape.gpu, shape.cpus_a_gpu), []).append(f"{shape.name} [{marks[shape.source]}]")
    rows = []
    for (gpu, cpus), shapes in names.items():
        for rate in (each for each in RATES if each.gpu == gpu):
            shares = {name: fed(cpus, each, rate.rate) for name, each in found[rate.network].items()}
            if min(shares.values()) < 1:
                row = [", ".join(shapes), gpu, f"{cpus:g}", rate.network]
                rows.append(row + cells(shares, lambda share: f"{share:.0%}"))
    return table(["shapes", "GPU", "CPUs a GPU", "network", *LOADERS.values()], rows)


def filled(text: str, results: Mapping[str, Result], detection: str) -> str:
    """The page with its tables filled in."""
    marks = {name: at for at, name in enumerate(SOURCES, 1)}
    found = {work: speeds(results, detection, work) for work in WORKS}
    by_network = {network: found[work] for work in WORKS for network in work.networks}
    tables = {
        "speeds": table(
            ["pictures/s on a core", *LOADERS.values()],
            [[work.title, *cells(found[work], number)] for work in WORKS],
        ),
        "cores": cores_table(by_network, marks),
        "shapes": shapes_table(by_network, marks),
        "sources": "\n".join(f"{at}. {SOURCES[name]}" for name, at in marks.items()),
    }

    def section(match: re.Match[str]) -> str:
        return f"<!-- {match[1]}: begin -->\n{tables[match[1]]}\n<!-- {match[1]}: end -->"

    return re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", section, text, flags=re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args(argv)
    text = options.document.read_text(encoding="utf-8")
    detection = DETECTION.read_text(encoding="utf-8")
    options.document.write_text(filled(text, newest(options.results), detection), encoding="utf-8")
    print(options.document)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
