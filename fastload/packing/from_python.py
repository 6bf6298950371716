"""``fastload.pack``: packs samples of any fields into a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.machine.messages import say
from fastload.packing.append import append as append_source
from fastload.packing.entries import DEFAULT_SPACING
from fastload.packing.folders import ignored_words
from fastload.packing.options import PackOptions, parse_bytes
from fastload.packing.packer import DryRun, PackShare, pack_shares, plan_shares, publish_shares
from fastload.packing.packer import dry_run as run_dry
from fastload.packing.packer import pack as pack_source
from fastload.packing.pictures import shown_schema
from fastload.packing.progress import Observer, Place
from fastload.packing.publish import PackResult
from fastload.packing.sample_rows import IterableRows, SequenceRows, rows_of
from fastload.packing.shares import ShardRanges
from fastload.packing.table_columns import guess_schema
from fastload.sample.schema import Schema
from fastload.shard.dataset import PackedFiles


class _Spoken(Observer):
    """An observer that prints to stderr what the user must know."""

    def said(self, place: Place, text: str) -> None:
        say(f"{place}: {text}")


def _say_found(result: PackResult, guessed: bool) -> None:
    """Print to stderr what a source contains, and what of it was not packed as it is."""
    manifest = result.manifest
    lines = [f"schema, found in the source: {manifest.schema}"] if guessed and manifest.fields else []
    lines += [*result.notes, *ignored_words(manifest.ignored)]
    if lines and not result.was_complete:
        say("\n".join(f"{result.output}: {line}" for line in lines))


def pack(
    samples: Any,
    output: str | os.PathLike[str],
    schema: Any = None,
    *,
    fields: Mapping[str, str] | None = None,
    format: str = "arrow",
    shard_size: int | str = "256MB",
    num_proc: int | None = None,
    limit: int | None = None,
    on_error: str = "raise",
    restart: bool = False,
    append: bool = False,
    entries: int | None = DEFAULT_SPACING,
    max_side: int | None = None,
    quality: int = 90,
    baseline: bool = False,
    coefficients: str | None = None,
    raw: bool = False,
    size: tuple[int, int] | None = None,
    fps: float | None = None,
    as_: str | None = None,
    annotations: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    masks: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    exif: str = "refuse",
    alpha: str = "drop",
    runs: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    plan_only: bool = False,
    shards: str | None = None,
    publish: bool = False,
    ray: str | None = None,
    observer: Observer | None = None,
) -> PackResult | list[PackResult] | PackShare | list[DryRun]:
    """Pack samples of any fields into ``output``.

    The same samples give the same bytes, for any ``num_proc``. An interrupted pack leaves nothing that could
    be taken for a dataset. If samples can be asked for by position, the same call resumes the pack; if it is
    already complete, the call only returns its result.

    Args:
        samples: an iterable of dicts of values by field name. Something with ``__getitem__`` and ``__len__``,
            like torch's map-style datasets, can also be resumed and packed by several processes.
            Pictures are paths, bytes of image files, ``{"bytes", "path"}``, PIL images, or arrays (height,
            width) or (height, width, channels); other values are what :meth:`fastload.Field.encode` takes.
            Or a path: a folder of images, annotated or not, a table or a packed set, packed as ``fastload
            pack`` does; or a :class:`fastload.PackedDataset`, whose samples are packed as they are stored.
        output: the folder to create, or its URL in a store.
        schema: :class:`fastload.Schema`, or what ``Schema.of`` takes, as ``{"image": Image(), "boxes":
            Boxes("xywh")}``. Other keys, or columns of a table, are left out. None: guessed from all
            rows of a table, or from a few samples, and printed.
        fields: for a table or tars, kinds in place of those that are found, as ``--field`` names them: of
            columns, or of members by suffix, ``{"seg.png": "mask", "*.jpg": "images", "txt": "none"}``.
        format: "arrow", "lmdb" or "hdf5".
        shard_size: most bytes of samples per shard, or a size like "256MB".
        num_proc: processes that make samples; None: this one. With several, samples must pickle, and a script
            must have ``if __name__ == "__main__":``.
        limit: pack only the first this many samples.
        on_error: "raise" stops at samples that cannot be packed, "skip" leaves them out and lists them in
            ``skipped.jsonl``.
        restart: throw away an unfinished or finished pack in the output folder.
        append: ``output`` is a packed dataset, and the samples become new ones at its end, its next
            generation (docs/guide/growing.md). Options and schema are the set's. ``restart`` then throws
            away an unfinished append only.
        entries: pixels between the JPEGs' entry points; 0: one per row of MCUs; None: make none.
        max_side: images and masks whose longer side has more pixels are scaled down to it: 8-bit images
            as JPEG, others losslessly, masks by nearest pixels. Values in pixels of the first image
            (boxes, keypoints, polygons) scale with it.
        quality: the quality of those JPEGs, and of videos' frames, 1 to 100.
        baseline: store progressive JPEGs as baseline JPEGs with the same pixels.
        coefficients: "fast" or "small": store JPEGs as coefficient records, which decode to the same
            pixels in less than half the time, and can be converted back into byte-identical files.
        raw: store images as pixels; with any ``max_side``, without JPEG's loss.
        size: with ``raw``, or of a LeRobot set, the (width, height) that every image and mask is scaled to.
        fps: of a LeRobot set, pack only so many rows a second; it must divide the set's rate. None: all.
        as_: what a path is, where that is not detected: "coco", "yolo", "voc", "pairs" (images beside masks),
            "wds" (WebDataset tars, compressed or not) or "lerobot"; for a folder of images, whether its
            folders are "classes" or "splits".
        annotations: the annotation files of a folder of images.
        masks: the folder of masks of a folder of images.
        root: for a table, the folder that its paths start from and do not leave; None: its own folder.
        exif: "turn": decode images as EXIF turns them; annotations are of the turned ones. Otherwise EXIF
            turns nothing, and images that it would turn are refused if annotations are in pixels
            ("refuse"), or packed, as the annotations are of the pixels as stored ("ignore").
        alpha: of images with alpha that become RGB or gray: "drop" it, or put them on "white". Both are for
            all images and lists of images; a kind says it of one field, ``Image(exif="turn")``.
        runs: which samples belong together, in which order: ``"BY:ORDER:TIME"``, as
            ``"episode_index:frame_index:timestamp"``. BY and ORDER are fields, or "/", the folder and the
            number in the file name of a sample's key; TIME is a field in seconds, or in another unit
            (``stamp@us``), or a rate (``30fps``). ORDER ("/") and TIME may be left out. "none": no runs.
            None: those of the packed set, if ``samples`` is one (docs/guide/sequences.md).
        storage_options: options of the stores that URLs name, such as credentials and endpoint.
        dry_run: only return what would be done.
        plan_only: only list the source and plan the shards, for ``shards``.
        shards: pack only these shards of the plan ("0-99", or "3/16", the fourth of sixteen shares), while
            others pack the others; the last step is ``publish``.
        publish: make the dataset from shards that were packed so.
        ray: the address of a Ray cluster that packs the shards; "local": this machine.
        observer: receives progress.

    Returns:
        The packed dataset's facts; for a path, a list of them, one per split. With ``plan_only`` or
        ``shards``, how far the whole pack is; with ``dry_run``, what would be done, split by split.

    Raises:
        PackError: samples cannot be packed, the folder holds another pack, or the disk is full.
        TypeError, ValueError: arguments are wrong.
    """
    most = parse_bytes(shard_size) if isinstance(shard_size, str) else shard_size
    files = [annotations] if isinstance(annotations, (str, os.PathLike)) else annotations
    # Other processes need a main guard in the script.
    processes = 1 if num_proc is None and ray is None else num_proc
    options = PackOptions(
        format=format, shard_size=most, num_proc=processes, limit=limit, on_error=on_error, restart=restart,
        entries=entries, max_side=max_side, quality=quality, baseline=baseline, raw=raw, size=size,
        fps=fps, coefficients=coefficients, layout=as_, storage_options=storage_options,
        fields=tuple((fields or {}).items()),
        annotations=tuple(os.fspath(file) for file in files), exif=exif, alpha=alpha, runs=runs,
        masks=None if masks is None else os.fspath(masks), root=None if root is None else os.fspath(root),
    )  # fmt: skip
    wanted = None if schema is None else Schema.of(schema)
    if wanted is not None and fields:
        raise ValueError("schema and fields exclude each other: schema names all fields. Leave one out.")
    steps = {
        "dry_run": dry_run, "plan_only": plan_only, "shards": shards is not None, "publish": publish,
        "append": append,
    }  # fmt: skip
    asked = [name for name, value in {**steps, "ray": ray is not None and not append}.items() if value]
    if len(asked) > 1:
        raise ValueError(f"{asked[0]} and {asked[1]} exclude each other: each is another step of a pack.")
    source: Any = samples
    if isinstance(samples, PackedFiles):
        if samples.manifest != samples.newest.manifest:
            raise PackError(
                f"{samples!r} is an earlier generation of its set; pack reads the newest. Give "
                f"PackedDataset({samples.where!r})."
            )
        source = samples.where
        options = replace(options, storage_options=storage_options or samples._storage_options)
    observer = observer or _Spoken()
    if isinstance(source, (str, os.PathLike)):
        options = replace(options, schema=wanted)
    else:
        if append and wanted is None:
            wanted = PackedFiles(output, entries=False).schema
        source = _rows(samples, options, wanted)
    if dry_run:
        return run_dry(source, output, options)
    if plan_only:
        return plan_shares(source, output, options, observer)
    if shards is not None:
        return pack_shares(source, output, ShardRanges.parse(shards), options, observer)
    whole = append_source if append else pack_source
    make = publish_shares if publish else whole
    results = (
        whole(source, output, options, observer, ray) if ray else make(source, output, options, observer)
    )
    if not isinstance(samples, (str, os.PathLike)):
        return results[0]
    for result in results:
        _say_found(result, wanted is None)
    return results


def _rows(samples: Any, options: PackOptions, schema: Schema | None) -> IterableRows | SequenceRows:
    if options.root is not None or options.fields:
        name, what = ("fields", "a table or tars") if options.fields else ("root", "a table")
        raise PackError(f"{name} is for {what}. Found: {type(samples).__name__}.")
    if options.says_what:
        raise PackError(f"{options.says_what} is for a folder of images. Found: {type(samples).__name__}.")
    options.refuse_for_videos()
    rows = rows_of(samples, os.fsencode(Path.cwd()), options.limit)
    if schema is None:
        first = rows.first()
        schema = guess_schema(first, rows.root)
        say(f"schema, guessed from {min(16, len(first))} samples: {schema}")
    rows.schema = shown_schema(schema, options.exif, options.alpha)
    return rows
