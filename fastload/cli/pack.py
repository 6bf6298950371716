"""``fastload pack SOURCE OUTPUT``: by one process, by several as shares of one plan, or by Ray."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import Any, TextIO

from fastload.cli.arguments import add_storage_options, field_argument, options_for
from fastload.cli.output import (
    ALPHA_HELP,
    ENTRIES_HELP,
    RUNS_HELP,
    classes_row,
    contents_json,
    contents_rows,
    entry_json,
    entry_rows,
    ignored_rows,
    lerobot_rows,
    print_json,
    print_lines,
    print_table,
    sides_row,
    spacing_argument,
)
from fastload.cli.progress import PackProgress
from fastload.errors import PackError
from fastload.machine.sizes import counted, human_bytes
from fastload.packing.append import AppendResult, append
from fastload.packing.coefficients import DEFAULT_FORM, FACTS, FORM_HELP, FORMS, NOTE, said_of
from fastload.packing.entries import DEFAULT_SPACING
from fastload.packing.options import EXIF, LAYOUTS, PackOptions, parse_bytes, parse_pixels
from fastload.packing.packer import (
    DryRun,
    PackShare,
    dry_run,
    pack,
    pack_shares,
    plan_shares,
    publish_shares,
)
from fastload.packing.publish import SKIPPED_NAME, PackResult
from fastload.packing.ray import RayCluster
from fastload.packing.shares import ShardRanges, ranges
from fastload.sample.fields import ALPHA
from fastload.shard.formats import FORMATS

# ---- Ray in commands --------------------------------------------------------------------------------

RAY_HELP = "run on this Ray cluster (auto, HOST:PORT, ray://HOST:PORT), or 'local' for this machine's CPUs"


def words_to_stderr() -> redirect_stdout[TextIO]:
    """Return a context in which Ray prints to stderr, so that stdout has only the result."""
    return redirect_stdout(sys.stderr)


@contextmanager
def ray_cluster(address: str) -> Iterator[RayCluster]:
    """Yield a cluster for the work of a command."""
    with words_to_stderr(), RayCluster(address) as cluster:
        yield cluster


# ---- One of several packs of the same dataset -------------------------------------------------------


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Declare the options that do less than a whole pack."""
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--dry-run", action="store_true", help="only print what would be done")
    steps.add_argument(
        "--plan-only", action="store_true", help="only list the source and plan the shards, for --shards"
    )
    steps.add_argument(
        "--shards",
        metavar="WHICH",
        help="pack only these shards of the plan (0-99, or 0-9,40-49), or one share (3/16: the fourth of "
        "sixteen), while other processes or machines pack the others; finish with --publish",
    )
    steps.add_argument("--ray", metavar="ADDRESS", help=RAY_HELP)
    steps.add_argument(
        "--publish", action="store_true", help="make the dataset from shards packed with --shards"
    )


def run_share(arguments: argparse.Namespace, options: PackOptions) -> int:
    """Plan the shards or pack some of them, and print how far the whole pack is."""
    with PackProgress(arguments.quiet or arguments.json) as progress:
        if arguments.plan_only:
            share = plan_shares(arguments.source, arguments.output, options, progress)
        else:
            shares = ShardRanges.parse(arguments.shards)
            share = pack_shares(arguments.source, arguments.output, shares, options, progress)
    if arguments.json:
        facts = {**asdict(share), "output": str(share.output), "asked": ranges(share.asked)}
        print_json({"share": facts})
        return 0
    print_table(str(share.output), _share_rows(share, arguments.plan_only))
    return 0


def _share_rows(share: PackShare, plan_only: bool) -> list[tuple[str, str]]:
    rows = [
        ("plan", f"{counted(share.files, 'file')}, {human_bytes(share.bytes)}, in "
                 f"{counted(share.shards, 'shard')}, 0 to {share.shards - 1}"),
    ]  # fmt: skip
    if not plan_only:
        what = ranges(share.asked) or "none"
        rows.append(
            ("these", f"{what}: {share.written} packed, {len(share.asked) - share.written} already there")
        )
    if share.published:
        rows.append(("all", "already published"))
    elif share.finished < share.shards:
        rows.append(("all", f"{share.finished} of {share.shards} packed"))
    else:
        rows.append(("all", "packed; run the same command with --publish in place of --shards"))
    return rows


# ---- ``fastload pack SOURCE OUTPUT`` ----------------------------------------------------------------

_SOURCE = (
    "class folders, a flat folder, or a parent of train/ and val/ (s3://bucket/photos is the URL of one); a "
    ".csv, .jsonl, .parquet or .arrow table of path and label, or any columns; Parquet or Arrow files in a "
    "folder or on the Hub (hf://datasets/OWNER/NAME); annotated images: COCO's annotations, YOLO's "
    "data.yaml, VOC2012, or folders images and masks; a LeRobot set (2.1 or 3.0); a packed set; tars, MDS "
    "shards, LMDB or HDF5 files; "
    "any of these but LeRobot, MDS, LMDB and HDF5 also by URL"
)


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "pack",
        help="pack images into shards",
        description="Pack images into Arrow, LMDB or HDF5 shards. If interrupted, run it again to resume.",
    )
    parser.add_argument("source", metavar="SOURCE", help=_SOURCE)
    parser.add_argument("output", metavar="OUTPUT", help="folder to create, or its URL (s3://bucket/name)")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="arrow", help="container format (default: %(default)s)"
    )
    parser.add_argument(
        "--shard-size", default="256MB", metavar="SIZE", help="bytes per shard (default: %(default)s)"
    )
    parser.add_argument(
        "--num-proc", type=int, metavar="N", help="processes (default: one per CPU, fewer for small sets)"
    )
    parser.add_argument(
        "--field", action="append", default=[], metavar="NAME=KIND",
        help="kind of a table column, in place of the one that --dry-run prints: image, mask, label, text, "
        "bytes, json, scalar(float32), array(float32, (None, 5)), boxes(xywh), polygons(rle), keypoints(17), "
        "or none to leave it out; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--root", metavar="DIR",
        help="base folder of a table's paths, which they may not leave (default: the table's folder)",
    )  # fmt: skip
    parser.add_argument("--as", dest="layout", choices=LAYOUTS, help="layout of SOURCE (default: detected)")
    parser.add_argument(
        "--annotations", action="append", default=[], metavar="FILE",
        help="annotation file for a folder of images (default: detected); may be repeated",
    )  # fmt: skip
    parser.add_argument("--masks", metavar="FOLDER", help="folder of masks for a folder of images")
    parser.add_argument(
        "--exif", choices=EXIF, default="refuse",
        help="turn: decode images as EXIF turns them; annotations refer to the turned images. ignore: "
        "decode them as stored. refuse (default): as ignore, but refuse annotated images that EXIF turns",
    )  # fmt: skip
    parser.add_argument("--alpha", choices=ALPHA, default="drop", help=ALPHA_HELP)
    parser.add_argument("--runs", metavar="BY[:ORDER[:TIME]]", help=RUNS_HELP)
    parser.add_argument("--limit", type=int, metavar="N", help="pack only the first N images of each split")
    _add_changes(parser)
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="stop at a file that is not an image, or leave it out (default: raise)",
    )
    parser.add_argument("--restart", action="store_true", help="discard what an earlier pack left in OUTPUT")
    parser.add_argument(
        "--append",
        action="store_true",
        help="add the rows of SOURCE to the end of OUTPUT, a packed set, with that set's options; its "
        "samples keep their ids. --restart then discards only an unfinished append",
    )
    add_steps(parser)
    add_storage_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _add_changes(parser: argparse.ArgumentParser) -> None:
    """Declare what is stored in place of the files."""
    parser.add_argument(
        "--max-side",
        type=int,
        metavar="N",
        help="re-encode images whose longer side exceeds N pixels as smaller JPEGs; others stay unchanged",
    )
    parser.add_argument(
        "--quality",
        type=int,
        default=90,
        metavar="Q",
        help="JPEG quality for --max-side, and for the frames of videos (default: %(default)s)",
    )
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="store progressive JPEGs as baseline: the pixels stay, the bytes change, also after 'unpack'",
    )
    parser.add_argument("--coefficients", choices=FORMS, nargs="?", const=DEFAULT_FORM, help=FORM_HELP)
    parser.add_argument("--raw", action="store_true", help="store decoded uint8 RGB pixels")
    parser.add_argument(
        "--size", metavar="WxH", help="with --raw, or for a LeRobot set: scale every picture to this size"
    )
    parser.add_argument(
        "--fps",
        type=float,
        metavar="F",
        help="for a LeRobot set: pack only F rows per second; the set's rate must be a multiple of F",
    )
    parser.add_argument(
        "--entries", type=spacing_argument, default=DEFAULT_SPACING, metavar="PIXELS", help=ENTRIES_HELP
    )


def run(arguments: argparse.Namespace) -> int:
    """Pack, and print the result."""
    options = PackOptions(
        format=arguments.format,
        shard_size=parse_bytes(arguments.shard_size),
        num_proc=arguments.num_proc,
        limit=arguments.limit,
        max_side=arguments.max_side,
        quality=arguments.quality,
        baseline=arguments.baseline,
        coefficients=arguments.coefficients,
        entries=arguments.entries,
        raw=arguments.raw,
        size=parse_pixels(arguments.size) if arguments.size else None,
        fps=arguments.fps,
        on_error=arguments.on_error,
        restart=arguments.restart,
        fields=tuple(map(field_argument, arguments.field)),
        layout=arguments.layout,
        annotations=tuple(arguments.annotations),
        masks=arguments.masks,
        root=arguments.root,
        exif=arguments.exif,
        alpha=arguments.alpha,
        runs=arguments.runs,
        storage_options=options_for(arguments, arguments.source) or options_for(arguments, arguments.output),
    )
    steps = [name for name in ("dry_run", "plan_only", "shards", "publish") if getattr(arguments, name)]
    if arguments.append and steps:
        raise PackError(
            f"--append is a whole pack. Found: --{steps[0].replace('_', '-')}. --num-proc and --ray share "
            "the work."
        )
    if arguments.dry_run:
        return _print_dry_runs(dry_run(arguments.source, arguments.output, options), arguments.json)
    if arguments.plan_only or arguments.shards is not None:
        return run_share(arguments, options)
    with PackProgress(arguments.quiet or arguments.json) as progress:
        results = _made(arguments, options, progress)
    if arguments.json:
        print_json({"datasets": [_facts(result) for result in results]})
        return 0
    if len(results) > 1:
        splits = ", ".join(result.output.name for result in results)
        print_lines([f"{arguments.output}: {len(results)} splits ({splits}), one dataset each"])
    for result in results:
        print_table(_title(result), _rows(result))
    return 0


def _made(arguments: argparse.Namespace, options: PackOptions, progress: PackProgress) -> list[PackResult]:
    if arguments.ray is not None:
        whole = append if arguments.append else pack
        with words_to_stderr():
            return whole(arguments.source, arguments.output, options, progress, arguments.ray)
    if arguments.append:
        return append(arguments.source, arguments.output, options, progress)
    make = publish_shares if arguments.publish else pack
    return make(arguments.source, arguments.output, options, progress)


def _title(result: PackResult) -> str:
    if isinstance(result, AppendResult):
        return str(result.output)
    if not result.was_complete:
        return str(result.output)
    manifest = result.manifest
    if not manifest.generations:
        return f"{result.output} was already complete"
    count = counted(manifest.at(1).num_records, "record")
    return (
        f"{result.output} has all {count} of this source already, as generation 1. It has changed since, and "
        f"is now generation {manifest.generation}:"
    )


def _rows(result: PackResult) -> list[tuple[str, str]]:
    manifest = result.manifest
    unlabelled = 0 if result.summary is None else result.summary.unlabelled
    rows = contents_rows(manifest, "shard", unlabelled) + ignored_rows(manifest.ignored)
    if isinstance(result, AppendResult):
        known = f"; {result.known} left out, whose keys are in the set already" if result.known else ""
        rows.insert(0, ("appended", f"{counted(result.added, 'sample')}{known}"))
        rows.insert(1, ("generation", str(manifest.generation)))
    if manifest.fields:
        rows.append(("schema", str(manifest.schema)))
        rows += [("", note) for note in result.notes]
    if result.summary is not None:
        rows.append(("sizes", sides_row(result.summary.sides())))
        rate = result.written_bytes / max(result.seconds, 1e-9)
        rows.append(("time", f"{result.seconds:.1f} s, {human_bytes(rate)}/s"))
    rows += _baseline_rows(result)
    rows += said_of(manifest.options) + lerobot_rows(manifest.options)
    if manifest.options.get(FACTS):
        rows.append(("", NOTE))
    rows += entry_rows(result.entries)
    if manifest.skipped:
        rows.append(("skipped", f"{manifest.skipped}, listed with reasons in {result.output / SKIPPED_NAME}"))
    if manifest.left_out:
        count = counted(manifest.left_out, "annotation")
        rows.append(("left out", f"{count}, listed with reasons in {result.output / SKIPPED_NAME}"))
    rows += [("", f"{count} x {reason}") for reason, count in result.skip_reasons()]
    return rows


def _baseline_rows(result: PackResult) -> list[tuple[str, str]]:
    converted = result.manifest.options.get("transcoded")
    if converted is None:
        return []
    kept, done = result.entries.progressive, counted(converted, "progressive JPEG")
    return [("baseline", f"{done} converted to baseline, {kept} cannot be converted and kept")]


def _facts(result: PackResult) -> dict[str, Any]:
    manifest = result.manifest
    return {
        "output": str(result.output),
        **contents_json(manifest),
        "sides": result.summary.sides() if result.summary else None,
        "transcoded": manifest.options.get("transcoded"),
        FACTS: manifest.options.get(FACTS),
        "entries": entry_json(result.entries),
        "skipped": manifest.skipped,
        "ignored": dict(manifest.ignored),
        "columns": list(result.notes),
        "left_out": manifest.left_out,
        "skip_reasons": dict(result.skip_reasons()),
        "was_complete": result.was_complete,
        "seconds": round(result.seconds, 3),
        "entries_seconds": round(result.entries_seconds, 3),
        **({"appended": result.added, "known": result.known} if isinstance(result, AppendResult) else {}),
    }


def _print_dry_runs(plans: list[DryRun], as_json: bool) -> int:
    facts: list[dict[str, Any]] = [
        {
            "output": str(plan.output),
            "records": plan.records,
            "bytes": plan.bytes,
            "classes": plan.classes,
            "shards": plan.shards,
            "schema": str(plan.schema),
            "columns": list(plan.notes),
            "ignored": dict(plan.ignored),
            "needed_bytes": plan.needed_bytes,
            "free_bytes": plan.free_bytes,
        }
        for plan in plans
    ]
    if as_json:
        print_json({"dry_run": facts})
        return 0
    for fact, plan in zip(facts, plans, strict=True):
        rows = [
            (
                "records",
                str(fact["records"]) + (f" in {counted(plan.classes, 'class')}" * bool(plan.classes)),
            ),
            classes_row(plan.schema),
            *ignored_rows(plan.ignored),
            ("bytes", human_bytes(fact["bytes"])),
            ("shards", str(fact["shards"])),
            ("schema", fact["schema"]),
            *(("", note) for note in plan.notes),
            (
                "disk",
                f"about {human_bytes(plan.needed_bytes)} needed"
                + (f", {human_bytes(plan.free_bytes)} free" if plan.free_bytes is not None else ""),
            ),
        ]
        print_table(f"{fact['output']} (dry run, nothing written)", rows)
    return 0
