"""The options of a pack, checked, and the sizes that they are written in."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.machine.paths import is_dir
from fastload.machine.sizes import parse_size
from fastload.packing.coefficients import FORMS
from fastload.packing.entries import DEFAULT_SPACING
from fastload.packing.folders import FOLDERS_ARE
from fastload.sample.fields import ALPHA
from fastload.sample.schema import Schema
from fastload.shard.formats import FORMATS
from fastload.shard.runs import NO_RUNS, RunsSpec

#: ``annotations/`` reads all but "lerobot" and FOLDERS_ARE.
LAYOUTS = ("coco", "yolo", "voc", "pairs", "wds", "lerobot", *FOLDERS_ARE)
EXIF = ("refuse", "ignore", "turn")
MIN_SHARD = 4096
MAX_SIDE = 65500  # libjpeg's limit of a picture's side


def parse_bytes(text: str) -> int:
    """Return the bytes of a size, by :func:`fastload.machine.sizes.parse_size`; a bare number is bytes.

    Raises:
        PackError: the text is not a size.
    """
    try:
        return parse_size(text, bare=True)
    except ValueError:
        raise PackError(f"'{text}' is not a size; write for example 256MB, 1GiB or 500000000.") from None


def parse_pixels(text: str) -> tuple[int, int]:
    """Return width and height of ``"28x28"`` (or ``"28"``, a square).

    Raises:
        PackError: the text is not a size, or a side is outside [1, 65500].
    """
    match = re.fullmatch(r"\s*(\d+)\s*(?:[xX×]\s*(\d+))?\s*", text)
    if match is None:
        raise PackError(f"'{text}' is not a picture size; write WIDTHxHEIGHT, for example 28x28.")
    width = int(match[1])
    height = int(match[2] or match[1])
    if not (1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE):
        raise PackError(f"size {width}x{height} is out of range; each side must be in [1, {MAX_SIDE}].")
    return width, height


def parse_runs(words: str | None) -> str | None:
    """Return the words for runs as :class:`~fastload.shard.runs.RunsSpec` writes them; None and "none" stay.

    Raises:
        PackError: the words say something else.
    """
    if words in (None, NO_RUNS):
        return words
    try:
        return str(RunsSpec.of(str(words)))
    except ValueError as error:
        raise PackError(str(error)) from None


@dataclass(frozen=True)
class PackOptions:
    """Options of :func:`fastload.packing.pack`; the command line has the same names.

    Args:
        format: one of :data:`fastload.shard.formats.FORMATS`.
        shard_size: most bytes of source images per shard (each shard holds at least one image).
        num_proc: processes that write shards; None: one per CPU this process may use, fewer for small sets.
        limit: pack only the first this many images of each split.
        max_side: re-encode images whose longer side has more pixels; with ``raw``, scale them.
        quality: JPEG quality of re-encoded images and of videos' frames, 1 to 100.
        baseline: store progressive JPEGs as baseline JPEGs with the same coefficients, so the same pixels.
        coefficients: store JPEGs as coefficient records of this form, "fast" or "small"; None: as they are.
        raw: store decoded uint8 RGB pixels in place of the files' bytes.
        size: with ``raw``, or of a LeRobot set, scale every picture to this (width, height).
        fps: of a LeRobot set, only so many rows a second; None: all.
        on_error: "raise" stops at files that are not images, "skip" leaves them out and lists them.
        restart: throw away an unfinished or finished pack in the output folder.
        fields: for a table, pairs of column and kind: ("boxes", "boxes(xywh)"); "none" leaves a column out.
        schema: for a table, all fields, each read from the column of its name; other columns are left out.
        storage_options: options of the stores that URLs name, such as credentials and endpoint.
        entries: pixels between the JPEGs' entry points; 0: one per row of MCUs; None: make none.
        layout: what the source is, one of :data:`LAYOUTS`; None: detected. "classes" and "splits" say
            what the folders of a folder of images are, where their names do not.
        annotations: annotation files for a source that is a folder of pictures; (): detected.
        masks: the folder of masks that go with a folder of pictures.
        root: for a table on this machine, the folder that its paths start from and do not leave; None: that
            of the table, which they may leave.
        exif: what to do with pictures that EXIF turns: "turn" them when they are decoded, and annotations
            are of the turned ones; or leave them, and where annotations may be of the turned ones "refuse"
            them, or "ignore" EXIF if the annotations are of the pictures as stored.
        alpha: of pictures that become RGB or gray, "drop" alpha, or put them on "white".
        runs: which samples belong together, in which order: the words of
            :class:`~fastload.shard.runs.RunsSpec`; "none": no runs, also where a packed set has some; None:
            those that a packed set has.
        first_number: the number by which the first sample's key begins, if it has no file.
    """

    format: str = "arrow"
    shard_size: int = 256 * 1000**2
    num_proc: int | None = None
    limit: int | None = None
    max_side: int | None = None
    quality: int = 90
    baseline: bool = False
    coefficients: str | None = None
    raw: bool = False
    size: tuple[int, int] | None = None
    fps: float | None = None
    on_error: str = "raise"
    restart: bool = False
    entries: int | None = DEFAULT_SPACING
    fields: tuple[tuple[str, str], ...] = ()
    schema: Schema | None = None
    storage_options: Mapping[str, Any] | None = None
    layout: str | None = None
    annotations: tuple[str, ...] = ()
    masks: str | None = None
    root: str | None = None
    exif: str = "refuse"
    alpha: str = "drop"
    runs: str | None = None
    first_number: int = 0

    def __post_init__(self) -> None:
        checks = [
            (self.format in FORMATS, f"format '{self.format}' is not one of {', '.join(FORMATS)}"),
            (self.shard_size >= MIN_SHARD, f"shard size {self.shard_size} is below {MIN_SHARD} bytes"),
            (self.num_proc is None or self.num_proc >= 1, f"num_proc is {self.num_proc}, must be >= 1"),
            (self.limit is None or self.limit >= 1, f"limit is {self.limit}, must be >= 1"),
            (1 <= self.quality <= 100, f"quality is {self.quality}, must be in [1, 100]"),
            (self.on_error in ("raise", "skip"), f"on_error is '{self.on_error}', must be raise or skip"),
            (self.fps is None or 0 < self.fps < float("inf"), f"fps is {self.fps}, must be above 0"),
            (self.layout in (None, *LAYOUTS), f"'{self.layout}' is not one of {', '.join(LAYOUTS)}"),
            (self.exif in EXIF, f"exif is '{self.exif}', must be {' or '.join(EXIF)}"),
            (self.alpha in ALPHA, f"alpha is '{self.alpha}', must be {' or '.join(ALPHA)}"),
            (self.schema is None or not self.fields, "schema and fields exclude each other"),
            (not (self.baseline and self.raw), "baseline and raw exclude each other"),
            (
                self.coefficients in (None, *FORMS),
                f"coefficients is '{self.coefficients}', must be {' or '.join(FORMS)}",
            ),
            (not (self.coefficients and self.raw), "coefficients and raw exclude each other"),
            (
                not (self.coefficients and self.baseline),
                "coefficients and baseline exclude each "
                "other: progressive JPEGs become coefficient records, too, and progressive ones again",
            ),
            (self.size is None or self.max_side is None, "size and max_side exclude each other"),
        ]
        if self.max_side is not None:
            range_text = f"max_side is {self.max_side}, must be in [1, {MAX_SIDE}]"
            checks.append((1 <= self.max_side <= MAX_SIDE, range_text))
        for good, text in checks:
            if not good:
                raise PackError(f"{text}.")
        object.__setattr__(self, "runs", parse_runs(self.runs))

    def identity(self) -> dict[str, Any]:
        """Return the options that decide the output's bytes, as JSON values."""
        facts: dict[str, Any] = {"format": self.format, "shard_size": self.shard_size, "limit": self.limit}
        facts["raw"] = self.raw
        facts["max_side"] = self.max_side
        facts["size"] = list(self.size) if self.size else None
        facts["quality"] = self.quality if self.max_side and not self.raw else None
        facts["baseline"] = self.baseline or None  # None: as in packs older than the option
        if self.coefficients is not None:  # left out for the same reason
            facts["coefficients"] = self.coefficients
        if self.exif == "turn":
            facts["exif"] = self.exif
        if self.alpha == "white":
            facts["alpha"] = self.alpha
        if self.runs is not None:
            facts["runs"] = self.runs
        if self.first_number:
            facts["first_number"] = self.first_number
        return facts

    def root_folder(self) -> bytes | None:
        """Return the absolute path of ``root``.

        Raises:
            PackError: it is no folder.
        """
        if self.root is None:
            return None
        if not is_dir(Path(self.root)):
            raise PackError(
                f"root: {self.root} is no folder. Give the one that the table's paths start from."
            )
        return os.path.abspath(os.fsencode(self.root))

    @property
    def says_what(self) -> str:
        """The first given option that only a folder of images has; "" if none is given."""
        return next((name for name in ("layout", "annotations", "masks") if getattr(self, name)), "")

    @property
    def says_annotated(self) -> bool:
        """Whether an option is given that only annotated pictures have."""
        return bool(self.annotations or self.masks or self.layout not in (None, *FOLDERS_ARE))

    @property
    def transcodes(self) -> bool:
        """True when records may differ from the files' bytes."""
        scales = self.max_side is not None or self.size is not None
        return self.raw or self.baseline or scales or self.coefficients is not None

    def refuse_for_videos(self) -> None:
        """Raise PackError if an option is given that only sets with videos have."""
        if self.size is not None and not self.raw:
            raise PackError("size needs raw, unless the source is a LeRobot set.")
        if self.fps is not None:
            raise PackError(f"fps is of LeRobot sets, and the source is none. Found: {self.fps:g}.")
