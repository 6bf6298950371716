"""What each chart shows, of a figure of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from charts.axes import Curve, Point, curves, points
from charts.bars import Bar, Group, bars, legend
from charts.results import Result, of_loader
from charts.svg import Drawing, number

__all__ = ["CHARTS", "JOBS", "jobs"]

CLASSIC = (("train_u8", "", "uint8"), ("train_f32", "2", "normalised float32"))
RECIPES = {
    "rand_augment": "RandAugment",
    "timm_rand": "timm's rand-m9-mstd0.5-inc1",
    "simclr": "SimCLR, two views",
    "dino": "DINO, ten views",
}
VISION = {
    "Qwen2-VL": "Qwen2-VL",
    "SigLIP2": "SigLIP 2",
    "Idefics3": "Idefics3",
    "Qwen2-VL, largest six": "Qwen2-VL, large pictures",
}
# Figure -> its words, fastload's candidate, how the names of its own loader begin, and its jobs in words.
JOBS = {
    "recipes": ("Augmentation, beside torchvision and timm", "fastload", "torch_pil", RECIPES),
    "vision": ("Vision-language pictures, beside transformers", "fastload, float32", "transformers, PIL",
               VISION),
    "windows": ("Windows of frames, beside LeRobot on videos", "fastload, full, float32", "LeRobot",
                {"windows": "three frames of two cameras"}),
}  # fmt: skip
FORMS = {
    "fastload_raw": "raw pixels",
    "fastload_noentries": "JPEG, no entry points",
    "fastload": "JPEG, entry points",
    "fastload_coefficients": "coefficients, fast",
    "fastload_small": "coefficients, small",
}
SIDES = {"torch_pil": "torchvision", "dali_fused": "DALI"}
FEEDS = {
    "synthetic": "no loader, batches on the GPU",
    "fastload": 'fastload, device="cuda"',
    "fastload_host": "fastload, pin_memory=True",
    "fastload_dali": 'fastload, backend="dali"',
    "torch_pil": "torch DataLoader + Pillow",
}
NETWORKS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}
Row = Mapping[str, Any]


def is_ours(name: str) -> bool:
    """Whether a candidate is one of fastload's."""
    return name.startswith("fastload")


def bar(row: Row, words: str, shade: str = "") -> Bar:
    """A row of the results as a bar."""
    kind = ("ours" if is_ours(row["name"]) else "rival") + shade
    return Bar(row["median"], row["low"], row["high"], words, kind)


def times(ours: float, other: float) -> str:
    """How many times as fast we are."""
    return f"{ours / other:.1f}×"


def described(rows: Sequence[Row]) -> str:
    """Names and values in a sentence, for those who do not see the chart."""
    return ", ".join(f"{of_loader(row['name'])} {number(row['median'])}" for row in rows)


def classic(result: Result) -> Drawing:
    """Every loader at the classic recipe, the fastest first."""
    jobs = {job: {row["name"]: row for row in rows} for job, rows in result.figure["jobs"].items()}
    loaders = (row for row in jobs["train_u8"].values() if row["name"] != "fastload_noentries")
    rows = sorted(loaders, key=lambda row: -row["median"])
    groups = []
    for row in rows:
        found = []
        for job, shade, _ in CLASSIC:
            one = jobs.get(job, {}).get(row["name"])
            if one:
                ratio = times(jobs[job]["fastload"]["median"], one["median"])
                found.append(
                    bar(one, number(one["median"]) + ("" if is_ours(row["name"]) else f" · {ratio}"), shade)
                )
        groups.append(Group(of_loader(row["name"]), found, is_ours(row["name"])))
    drawing = Drawing(
        "classic",
        "Images per second from JPEGs",
        f"Images per second, uint8: {described(rows)}.",
    )
    drawing.heading(
        "RandomResizedCrop(224) and flip, batches of 128, each loader with its best number of workers. "
        "5.0×: fastload is 5 times as fast. Thin lines: lowest and highest run."
    )
    legend(drawing, [("ours,rival", "uint8"), ("ours2,rival2", "normalised float32")])
    bars(drawing, groups)
    drawing.footer(result.source())
    return drawing


def recipes(result: Result) -> Drawing:
    """Today's recipes: fastload beside torchvision's and DALI's own."""
    jobs = result.figure["jobs"]
    groups, said = [], []
    for job, title in RECIPES.items():
        rows = jobs.get(job, [])
        ours = next((row for row in rows if row["name"] == "fastload"), None)
        if ours is None:
            continue
        found = []
        for row in sorted(rows, key=lambda row: -row["median"]):
            side = "timm" if job == "timm_rand" else SIDES.get(row["name"], "fastload")
            side = "fastload" if is_ours(row["name"]) else side
            ratio = "" if row is ours else f" · {times(ours['median'], row['median'])}"
            found.append(bar(row, f"{side} {number(row['median'])}{ratio}"))
        groups.append(Group(title, found))
        said.append(f"{title}: {described(rows)}")
    drawing = Drawing("recipes", "Today's training recipes", f"Samples per second. {'; '.join(said)}.")
    drawing.heading(
        "Samples per second from JPEGs, as normalised float32. 5.0×: fastload is 5 times as fast."
    )
    bars(drawing, groups)
    drawing.footer(result.source())
    return drawing


def cores(result: Result) -> Drawing:
    """Images a second against cores."""
    by_name: dict[str, list[Point]] = {}
    for count, part in sorted(result.figure.items(), key=lambda item: int(item[0])):
        for row in part["jobs"]["train_u8"]:
            kind = "ours" if is_ours(row["name"]) else "rival"
            point = Point(int(count), row["median"], row["low"], row["high"], kind=kind)
            by_name.setdefault(row["name"], []).append(point)
    lines = [
        Curve(f"{of_loader(name).removesuffix(' + Pillow')}\n{number(found[-1].y)}", found, found[-1].kind)
        for name, found in by_name.items()
    ]
    said = "; ".join(
        f"{of_loader(name)}: " + ", ".join(f"{number(point.y)} on {point.x:.0f}" for point in found)
        for name, found in by_name.items()
    )
    drawing = Drawing("cores", "Images per second by cores", f"{said}.")
    drawing.heading("The classic recipe, uint8, as many threads or workers as cores.")
    curves(drawing, lines, "cores", "images/s")
    drawing.footer(result.source())
    return drawing


def stored(result: Result) -> Drawing:
    """Bytes on the disk against speed, for each form of the same pictures."""
    rows = [row for row in result.figure["jobs"]["train_u8"] if row["name"] in FORMS]
    found = [
        Point(row["kb_an_image"], row["median"], row["low"], row["high"],
              f"{FORMS[row['name']]}\n{number(row['median'])}/s, {number(row['kb_an_image'])} kB")
        for row in rows
    ]  # fmt: skip
    said = ", ".join(point.label.replace("\n", ": ") for point in found)
    drawing = Drawing("bytes", "Bytes against speed", f"{said}.")
    drawing.heading("The same pictures packed in five ways; the classic recipe, uint8.")
    points(drawing, found, "kB an image, logarithmic", "images/s")
    drawing.footer(result.source())
    return drawing


def memory(result: Result) -> Drawing:
    """What all training processes of a node hold."""
    rows = result.figure["rows"]
    groups, said = [], []
    for ranks in sorted({row["ranks"] for row in rows}):
        own = {row["name"]: row for row in rows if row["ranks"] == ranks}
        found = []
        for name in ("fastload", "torch"):
            if name in own:
                words = "fastload" if name == "fastload" else "torch DataLoader"
                found.append(bar(own[name], f"{number(own[name]['median'])} MB · {words}"))
                said.append(f"{ranks} ranks, {name}: {number(own[name]['median'])} MB")
        groups.append(Group(f"{ranks} rank{'s' if ranks > 1 else ''}", found))
    held = max(row["cache"] for row in rows)
    drawing = Drawing("memory", "Memory of all ranks of a node", f"{', '.join(said)}.")
    drawing.heading(
        "Memory that the kernel cannot drop, of all processes together, two threads or workers a rank. "
        f"fastload's has the whole set in the node cache, once: {number(held)} MB. torch's set lies in the "
        "page cache, which is not counted."
    )
    bars(drawing, groups)
    drawing.footer(result.source())
    return drawing


def training(result: Result) -> Drawing:
    """How fast networks train on a GPU with each loader, beside none."""
    figure = result.figure
    groups, said = [], []
    for model, title in NETWORKS.items():
        own = {row["name"]: row for row in figure["rows"] if row["model"] == model}
        found = [
            bar(own[name], f"{number(own[name]['median'])} · {words}", "2" if name == "synthetic" else "")
            for name, words in FEEDS.items()
            if name in own
        ]
        groups.append(Group(title, found))
        said.append(f"{title}: " + ", ".join(f"{name} {number(row['median'])}" for name, row in own.items()))
    drawing = Drawing("training", "Training on a GPU", f"Images per second. {'; '.join(said)}.")
    drawing.heading(
        f"Images per second that networks train with on one {figure['device_name']}: {figure['amp']}, "
        f"batches of {figure['batch']}, {figure['threads']} threads or workers. "
        "Without a loader is the most that there can be."
    )
    bars(drawing, groups)
    drawing.footer(result.source())
    return drawing


def best(rows: Sequence[Row], name: str) -> Row | None:
    """The fastest row whose name begins so."""
    found = [row for row in rows if row["name"].startswith(name)]
    return max(found, key=lambda row: float(row["median"]), default=None)


def jobs(results: Mapping[str, Result]) -> Drawing:
    """How many times as fast as each job's own loader: of the medians, and of each round."""
    groups, shown = [], [name for name in JOBS if name in results]
    for figure in shown:
        title, name, other_name, titles = JOBS[figure]
        found = []
        for job, words in titles.items():
            rows = results[figure].figure["jobs"].get(job, [])
            ours = next((row for row in rows if row["name"] == name), None)
            other = best(rows, other_name)
            if ours and other:
                rounds = [mine / its for mine, its in zip(ours["runs"], other["runs"], strict=False)]
                middle = ours["median"] / other["median"]
                found.append(Bar(middle, min(rounds), max(rounds), f"{times(middle, 1)} {words}", "ours"))
        groups.append(Group(title, found))
    said = "; ".join(f"{group.label}: {', '.join(bar.words for bar in group.bars)}" for group in groups)
    drawing = Drawing("jobs", "Beside each job's own loader", f"Times as fast. {said}.")
    drawing.heading(
        "How many times as fast fastload is, in samples per second; vision-language pictures by CPU time. "
        "Thin lines: lowest and highest round."
    )
    bars(drawing, groups)
    first, *others = (results[name] for name in shown)
    drawing.footer(first.source(*others))
    return drawing


CHARTS: dict[str, Callable[[Result], Drawing]] = {
    "classic": classic,
    "recipes": recipes,
    "cores": cores,
    "bytes": stored,
    "memory": memory,
    "training": training,
}
