"""The measured tables of docs/measured/latest.md, from the same results as the charts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from charts.content import FEEDS, JOBS, NETWORKS, RECIPES, VISION, best, is_ours
from charts.results import Result, of_loader
from charts.svg import number

__all__ = ["TABLES", "filled"]

MARKS = re.compile(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)
Row = Mapping[str, Any]
_USED = {"numpy", "pillow", "torch", "transforms"}  # what many loaders use


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(row: Row | None) -> str:
    """Median and range; nothing where it was not measured."""
    return f"{number(row['median'])} [{number(row['low'])}-{number(row['high'])}]" if row else ""


def ratio(ours: Row | None, other: Row | None) -> str:
    """How many times as fast we are."""
    if ours is None or other is None or ours is other:
        return ""
    return f"{ours['median'] / other['median']:.1f}"


def version(row: Row) -> str:
    """The loader's own library and its version; of torch's DataLoader, of what decodes."""
    versions = row["versions"]
    name = min(versions, key=lambda name: (name in _USED, name != "pillow", name))
    return f"{name} {versions[name]}"


def with_source(result: Result, text: str, command: str) -> str:
    """A table and where it comes from."""
    line = f"{result.machine}, {result.date}, commit `{result.body['commit']}`.{result.conditions()}"
    images = result.body["images"]
    line += f" {images['files']} images, {images['mean_kb']:.0f} kB each on average."
    return f"{text}\n\n{line}\n\n```text\n{command}\n```"


def classic(result: Result) -> str:
    """Both jobs of every loader."""
    jobs = {job: {row["name"]: row for row in rows} for job, rows in result.figure["jobs"].items()}
    u8, f32 = jobs["train_u8"], jobs.get("train_f32", {})
    rows = []
    for row in sorted(u8.values(), key=lambda row: -row["median"]):
        other = f32.get(row["name"])
        cells = [of_loader(row["name"]), str(row["workers"]), cell(row), ratio(u8["fastload"], row)]
        cells += [cell(other), ratio(f32.get("fastload"), other)]
        cells += [f"{row['first_batch_s']:.1f}", number(row["memory_mb"]), version(row)]
        rows.append(cells)
    header = ["loader", "workers", "uint8, images/s", "fastload / it", "float32, images/s", "fastload / it"]
    text = table([*header, "first batch, s", "memory, MB", "version"], rows)
    return with_source(result, text, result.figure["command"])


def sweep(result: Result) -> str:
    """What each loader's counts of workers gave."""
    rates = result.figure.get("sweep", {})
    tried = sorted({int(count) for found in rates.values() for count in found})
    rows = [
        [
            of_loader(name),
            *(number(found[str(count)]) if found.get(str(count)) else "fails" for count in tried),
        ]
        for name, found in rates.items()
    ]
    text = table(["uint8, images/s by number of workers", *map(str, tried)], rows)
    return f"{text}\n\nOne short run each; the highest is what the loader is measured with."


def raw(result: Result) -> str:
    """Raw pixels."""
    rows = result.figure["jobs"]["train_u8"]
    ours = next((row for row in rows if row["name"].startswith("fastload")), None)
    ordered = sorted(rows, key=lambda row: -row["median"])
    lines = [[of_loader(row["name"]), cell(row), ratio(ours, row)] for row in ordered]
    text = table(["loader", "uint8, images/s", "fastload / it"], lines)
    return with_source(result, text, result.figure["command"])


def recipes(result: Result) -> str:
    """Each recipe and loader."""
    lines = []
    for job, title in RECIPES.items():
        rows = result.figure["jobs"].get(job, [])
        ours = next((row for row in rows if row["name"] == "fastload"), None)
        lines += [
            [title, of_loader(row["name"]), str(row["workers"]), cell(row), ratio(ours, row)] for row in rows
        ]
    text = table(["recipe", "loader", "workers", "samples/s", "fastload / it"], lines)
    return with_source(result, text, result.figure["command"])


def cores(result: Result) -> str:
    """Each loader on each number of cores."""
    counts = sorted(result.figure, key=int)
    rows = {count: {row["name"]: row for row in result.figure[count]["jobs"]["train_u8"]} for count in counts}
    lines = [
        [of_loader(name), *(cell(rows[count].get(name)) for count in counts)] for name in rows[counts[-1]]
    ]
    text = table(["images/s by number of cores", *counts], lines)
    return with_source(result, text, result.figure[counts[-1]]["command"])


def stored(result: Result) -> str:
    """Each form of the same pictures."""
    lines = [
        [of_loader(row["name"]), f"{row['kb_an_image']:.1f}", cell(row)]
        for row in sorted(result.figure["jobs"]["train_u8"], key=lambda row: row["kb_an_image"])
    ]
    text = table(["packed as", "kB an image", "uint8, images/s"], lines)
    return with_source(result, text, result.figure["command"])


def memory(result: Result) -> str:
    """What the processes of a node hold."""
    lines = [
        [
            str(row["ranks"]),
            row["name"],
            str(row["processes"]),
            cell(row),
            number(row["cache"]),
            number(row["file"]),
        ]
        for row in result.figure["rows"]
    ]
    header = ["ranks", "loader", "processes", "cannot be dropped, MB", "of it the cache", "mapped files, MB"]
    return with_source(result, table(header, lines), result.figure["command"])


def packing(result: Result) -> str:
    """How fast packers pack."""
    lines = [[row["name"], cell(row), f"{row['size_ratio']:.2f}"] for row in result.figure["rows"]]
    text = table(["packer, processes", "MB/s", "bytes out / in"], lines)
    return with_source(result, text, result.figure["command"])


def vision(result: Result) -> str:
    """Each model's pictures, and each way."""
    lines = []
    for job, title in VISION.items():
        rows = result.figure["jobs"].get(job, [])
        ours = best(rows, JOBS["vision"][1])
        lines += [
            [title, row["name"], cell(row), "" if is_ours(row["name"]) else ratio(ours, row)] for row in rows
        ]
    text = table(["pictures of", "way", "pictures / CPU second", "fastload, float32 / it"], lines)
    return with_source(result, text, result.figure["command"])


def windows(result: Result) -> str:
    """Windows of frames from each form of a set."""
    rows = result.figure["jobs"]["windows"]
    theirs = best(rows, JOBS["windows"][2])
    lines = [
        [row["name"], cell(row), ratio(row, theirs) if is_ours(row["name"]) else "", number(row["mb"])]
        for row in rows
    ]
    text = table(["way", "samples/s", "it / LeRobot", "cameras, MB"], lines)
    return with_source(result, text, result.figure["command"])


def training(result: Result) -> str:
    """Each network on each feed."""
    figure = result.figure
    bounds = {row["model"]: row["median"] for row in figure["rows"] if row["name"] == "synthetic"}
    lines = []
    for row in figure["rows"]:
        bound = bounds.get(row["model"])
        share = f"{row['median'] / bound:.3f}" if bound else ""
        cells = [NETWORKS[row["model"]], FEEDS[row["name"]], cell(row), share]
        cells += [f"{row['step_ms']:.1f}", f"{row['wait_ms']:.2f}", f"{row['wait_share']:.1%}"]
        lines.append([*cells, f"{row['cores']:.1f}"])
    header = ["network", "loader", "images/s", "of the bound", "step, ms", "wait, ms", "of the step", "cores"]
    text = table(header, lines)
    return with_source(result, f"{text}\n\nOn one {figure['device_name']}.", figure["command"])


# Mark in the document -> figure, and what is made of it.
TABLES: dict[str, tuple[str, Callable[[Result], str]]] = {
    "classic": ("classic", classic), "sweep": ("classic", sweep), "raw": ("raw", raw),
    "recipes": ("recipes", recipes), "cores": ("cores", cores), "bytes": ("bytes", stored),
    "memory": ("memory", memory), "packing": ("packing", packing),
    "training": ("training", training), "vision": ("vision", vision), "windows": ("windows", windows),
}  # fmt: skip


def filled(text: str, results: Mapping[str, Result]) -> str:
    """The document with a table between each pair of marks."""

    def section(found: re.Match[str]) -> str:
        figure, make = TABLES[found[2]]
        body = make(results[figure]) if figure in results else "Not measured yet."
        return f"{found[1]}{body}\n{found[3]}"

    return MARKS.sub(section, text)
