"""Write what ``make gpu`` measured into docs/project/gpu.md, between its marks: tools/gpu_report.py FOLDER.

Text outside the marks is written by hand and stays byte for byte as it is.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "project" / "gpu.md"
SECTIONS = ("run", "tests", "starvation", "articles")
NOT_RUN = "Not run in this session."
PACKAGES = ("numpy", "pillow", "torchvision", "nvidia-dali-cuda120", "nvidia-dali-cuda130")


def replace_section(text: str, name: str, body: str) -> str:
    """``text`` with ``body`` between the marks of section ``name``.

    Raises:
        ValueError: the marks are not there, or not once.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"The document needs the marks '{begin}' and '{end}', once each and in this order.")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{body.strip()}\n{end}{rest.split(end)[1]}"


def version_of(package: str) -> str:
    """A package's version, "-" where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def gpus_are_there() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def gpu_facts() -> list[tuple[str, str]]:
    """The GPUs and their software, as torch and nvidia-smi tell."""
    import torch

    if not gpus_are_there():
        return [("GPU", "none"), ("torch", torch.__version__)]
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        driver = "?"
    cudnn: Any = torch.backends.cudnn  # its version() has no annotations
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return [
        ("GPU", f"{len(names)} x {names[0]}"),
        ("driver", driver),
        ("torch", f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN {cudnn.version()}"),
    ]


def run_section(folder: Path, images: str) -> str:
    """Date, machine, versions, command, and how each part ended."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from harness.machine import facts
    from harness.provenance import commit

    machine = facts()
    count = sum(1 for path in Path(images).rglob("*") if path.is_file()) if images else 0
    rows = [
        ("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")),
        ("commit", commit()),
        ("command", "`make gpu`" if gpus_are_there() else "`make gpu DEVICE=cpu`: a rehearsal, no GPU"),
        ("images", f"{count} files"),
        ("CPU", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_mb']} MB"),
        ("kernel, Python", f"{machine['kernel']}, {platform.python_version()}"),
        *gpu_facts(),
        *((package, version_of(package)) for package in PACKAGES),
    ]
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    parts = folder / "parts"
    if parts.is_file():
        lines += ["", "| part | ended | seconds |", "|---|---|---|"]
        for line in parts.read_text().splitlines():
            name, status, seconds = line.split()
            ended = {"0": "well", "124": "stopped at its limit", "137": "stopped at its limit"}
            lines.append(f"| {name} | {ended.get(status, f'exit status {status}')} | {seconds} |")
    return "\n".join(lines)


def tests_section(folder: Path) -> str:
    """Each GPU test and how it ended, from pytest's XML; a killed run leaves none."""
    path = folder / "tests.xml"
    if not path.is_file():
        return f"{NOT_RUN} There is no {path.name}."
    rows, counts = [], {"passed": 0, "failed": 0, "skipped": 0}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        ended = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        counts[ended] += 1
        module = str(case.get("classname")).replace(".", "/")
        rows.append(f"| `{module}` | `{case.get('name')}` | {ended} |")
    summary = ", ".join(f"{count} {ended}" for ended, count in counts.items())
    return "\n".join([f"{summary}.", "", "| file | test | |", "|---|---|---|", *sorted(rows)])


def markdown(paths: list[Path]) -> str:
    """These files one after the other; headings one level deeper than they stand there."""
    texts = [path.read_text().strip() for path in paths if path.is_file()]
    return re.sub(r"(?m)^### ", "#### ", "\n\n".join(texts)) or NOT_RUN


def report(folder: Path, images: str, text: str) -> str:
    """The document with all its sections brought up to date."""
    bodies = {
        "run": run_section(folder, images),
        "tests": tests_section(folder),
        "starvation": markdown([folder / "starvation.md"]),
        "articles": markdown(sorted((folder / "articles").glob("*.md"))),
    }
    for name in SECTIONS:
        text = replace_section(text, name, bodies[name])
    return text


def main(argv: list[str] | None = None) -> int:
    """Bring the document up to date; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder that make gpu wrote")
    parser.add_argument("--images", default="", help="image folder that was measured")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args(argv)
    if not options.folder.is_dir():
        print(f"gpu_report.py: {options.folder} is not a folder; run make gpu first.", file=sys.stderr)
        return 1
    text = options.document.read_text(encoding="utf-8")
    options.document.write_text(report(options.folder, options.images, text), encoding="utf-8")
    print(f"{options.document} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
