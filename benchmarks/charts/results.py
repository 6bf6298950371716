"""The results files of all.py, the newest first, and the words that charts and tables have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["NAMES", "Result", "newest", "of_loader"]

# The candidates of bench_loader.py, in words.
NAMES = {
    "fastload": "fastload",
    "fastload_noentries": "fastload, no entry points",
    "fastload_coefficients": "fastload, coefficient records",
    "fastload_small": "fastload, small coefficient records",
    "fastload_raw": "fastload, raw pixels",
    "fastload_raw256": "fastload, raw pixels, longer side 256",
    "torch_pil": "torch DataLoader + Pillow",
    "torch_simd": "torch DataLoader + pillow-simd",
    "torch_cv2": "torch DataLoader + OpenCV",
    "dali_fused": "DALI on the CPU",
    "ffcv_orig": "FFCV, the same JPEG bytes",
    "ffcv_raw256": "FFCV, raw pixels, longer side 256",
    "tf_plain": "tf.data",
    "tf_aa": "tf.data, antialiased",
    "spdl": "SPDL",
    "wds": "WebDataset",
    "mds": "MosaicML Streaming",
    "litdata": "LitData",
}
ALIKE = ("cpu", "cores")  # of machines whose loaders have as many workers
QUIET = 0.1  # cores that others may use, on average, before it is said


@dataclass(frozen=True)
class Result:
    """One figure and the file that it comes from."""

    figure: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def machine(self) -> str:
        """Cores and processor."""
        machine = self.body["machine"]
        cores = f"{machine['cores']} core{'s' if machine['cores'] != 1 else ''}"
        return f"{cores} of {machine['cpu'].removesuffix(' Processor')}"

    @property
    def date(self) -> str:
        """The day."""
        return str(self.body["date"][:10])

    def conditions(self) -> str:
        """What else ran, where something did; else nothing."""
        outside = max(load_of(self.figure), default=0.0)
        return f" Not quiet: other work took up to {outside:.1f} cores." if outside > QUIET else ""

    def source(self, *others: Result) -> str:
        """Where a chart's figures come from, of several: each machine, day and command once."""
        several = (self, *others)
        places = [f"{one.machine}, {one.date}.{one.conditions()}" for one in several]
        return " ".join(dict.fromkeys([*places, *(str(one.body["command"]) for one in several)]))


def load_of(part: Any) -> Iterator[float]:
    """Every "outside_cores" in a figure."""
    if isinstance(part, Mapping):
        if "outside_cores" in part:
            yield float(part["outside_cores"])
        for value in part.values():
            yield from load_of(value)
    elif isinstance(part, list):
        for value in part:
            yield from load_of(value)


def of_loader(name: str) -> str:
    """A candidate in words."""
    return NAMES.get(name, name)


def newest(folder: Path, machine: Mapping[str, Any] | None = None) -> dict[str, Result]:
    """Each figure's latest result (of machines like this one, if one is given); not those of --quick."""
    bodies = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    found: dict[str, Result] = {}
    for body in sorted(bodies, key=lambda body: str(body["date"])):
        alike = machine is None or all(body["machine"].get(key) == machine.get(key) for key in ALIKE)
        if alike and not body["quick"]:
            found |= {name: Result(figure, body) for name, figure in body["figures"].items()}
    return found
