"""Plan of a pack: which file goes into which shard, and the work folder that makes it resumable."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.machine.sizes import counted
from fastload.packing.files import encode_key, printable, publish, remove, sync_folder, temporary_of
from fastload.packing.folders import Ignored, Listing, ListingWriter, Totals, ignored_words
from fastload.packing.options import PackOptions
from fastload.packing.progress import Place, Work
from fastload.packing.source import Source
from fastload.remote.location import Location
from fastload.shard.formats import FORMATS, format_of
from fastload.shard.manifest import names_fit
from fastload.shard.suffixes import IMAGES

WORK_NAME = ".fastload-pack"
PLAN_NAME = "plan.json"
VERSION = 1
MAX_LISTED = 20  # problems shown in one message


@dataclass(frozen=True)
class ShardPlan:
    """A shard of files ``[start, stop)`` of the listing; ``bytes`` is about the size of its payload."""

    name: str
    start: int
    stop: int
    bytes: int


@dataclass(frozen=True)
class PackPlan:
    """A pack's plan: the same plan and files give the same output, byte for byte."""

    identity: Mapping[str, Any]  # PackOptions.identity()
    totals: Totals
    classes: tuple[str, ...]
    shards: tuple[ShardPlan, ...]
    problems: tuple[tuple[str, str], ...] = ()  # unreadable folders: key, reason
    ignored: Mapping[str, Any] = field(default_factory=dict)  # Ignored.to_json()

    @functools.cached_property
    def digest(self) -> str:
        """Hash of all that decides the output's bytes: options, files with sizes and labels, shard cuts."""
        facts = [dict(self.identity), self.totals.content, self.classes, [asdict(s) for s in self.shards]]
        return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()

    def write(self, work: Path) -> None:
        """Publish as ``plan.json``, after its listing; from then on the work folder can be resumed."""
        Listing(work).sync()
        sync_folder(work)  # no plan without the names of its listing
        final = work / PLAN_NAME
        temporary_of(final).write_text(json.dumps({"version": VERSION, **asdict(self)}), encoding="utf-8")
        publish(temporary_of(final), final)
        sync_folder(work.parent)  # no shard without the folder that says which pack it belongs to

    @classmethod
    def read(cls, work: Path) -> PackPlan | None:
        """Read the plan of a work folder; None if it was never finished.

        Raises:
            PackError: the plan is damaged, or from another version of this program.
        """
        try:
            body = json.loads((work / PLAN_NAME).read_text(encoding="utf-8"))
            if body["version"] != VERSION:
                raise ValueError(f"version {body['version']}")
            shards = tuple(ShardPlan(**shard) for shard in body["shards"])
            problems = tuple((str(key), str(reason)) for key, reason in body["problems"])
            ignored = body.get("ignored", {})
            return cls(
                body["identity"], Totals(**body["totals"]), tuple(body["classes"]), shards, problems, ignored
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise PackError(
                f"{work / PLAN_NAME} cannot be used ({error}); pack again with --restart."
            ) from None


def make_plan(
    source: Source, options: PackOptions, stem: str, folder: Path, found: Callable[[int], None] | None = None
) -> PackPlan:
    """Walk the source, write its listing into ``folder`` and cut it into shards.

    Args:
        found: called now and then with the number of files so far.

    Raises:
        PackError: nothing to pack, folders that cannot be read (unless they are to be skipped), or more names
            than fit into a manifest.
    """
    size = options.size
    listing = ListingWriter(folder, options.shard_size, size[0] * size[1] * 3 if size else None)
    ignored = Ignored()
    with contextlib.closing(listing):
        for path, length, mtime_ns, label in source.files(ignored):
            listing.add(path, length, mtime_ns, label)
            if found is not None and listing.files % 2048 == 0:
                found(listing.files)
            if listing.files == options.limit:
                break
        totals = listing.finish()
    problems = tuple((encode_key(path)[0].decode(), reason) for path, reason in source.problems)
    if problems and options.on_error == "raise":
        raise PackError(
            f"{len(problems)} folder{'s' * (len(problems) != 1)} cannot be read:\n{listed(problems)}\n"
            f"--on-error skip goes on."
        )
    if not totals.files:
        raise PackError(_no_images(source, ignored))
    count, suffix = len(listing.shards), FORMATS[options.format].suffix
    shards = tuple(
        ShardPlan(f"{stem}-{i:05d}-of-{count:05d}{suffix}", start, stop, length)
        for i, (start, stop, length) in enumerate(listing.shards)
    )
    wrong = names_fit(source.classes, [shard.name for shard in shards])
    if wrong:
        raise PackError(wrong)
    return PackPlan(options.identity(), totals, source.classes, shards, problems, ignored.to_json())


def _no_images(source: Source, ignored: Ignored) -> str:
    """Return the message for a source without images, with what lies there instead."""
    known = ", ".join(IMAGES)
    others = "; ".join(ignored_words(ignored.to_json()))
    text = f"no images in {printable(source.root)}: no file has an image's extension ({known})."
    return text + (f" There are: {others}." if others else "")


def listed(problems: Sequence[tuple[str, str]]) -> str:
    """Return keys and reasons, one per line: the first ones, and how many more there are."""
    lines = [f"  {key}: {reason}" for key, reason in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        lines.append(f"  ... and {len(problems) - MAX_LISTED} more")
    return "\n".join(lines)


def resume_plan(
    source: Source, options: PackOptions, stem: str, work: Path, found: Callable[[int], None] | None = None
) -> PackPlan:
    """Return the plan of ``work``: a new one, or that of an interrupted pack, checked against the source.

    Raises:
        PackError: the source or the options differ from those of the interrupted pack.
    """
    old = PackPlan.read(work) if exists(work) else None
    if old is None:
        remove(work)
        work.mkdir()
        plan = make_plan(source, options, stem, work, found)
        plan.write(work)
        return plan
    check_options(old.identity, options, work.parent)
    scan = work / ".tmp-scan"
    remove(scan)
    scan.mkdir()
    new = make_plan(source, options, stem, scan, found)
    if (new.totals, new.classes, new.shards) != (old.totals, old.classes, old.shards):
        raise PackError(
            f"the source has changed since this pack of {work.parent} was begun: "
            f"{_difference(old, new, work, scan)}. "
            f"--restart throws the unfinished pack away and begins anew."
        )
    remove(scan)
    return old


def check_options(old: Mapping[str, Any], options: PackOptions, output: Path | Location) -> None:
    """Raise PackError naming the options that differ from those of the pack in ``output``."""
    new = {"coefficients": None, **options.identity()}
    different = [
        f"{name} was {old.get(name)}, now {value}" for name, value in new.items() if old.get(name) != value
    ]
    if different:
        raise PackError(
            f"{output} holds a pack with other options: {'; '.join(different)}. "
            f"Use the same options to go on, or --restart to throw it away and begin anew."
        )


def _difference(old: PackPlan, new: PackPlan, old_folder: Path, new_folder: Path) -> str:
    if old.classes != new.classes:
        return f"{counted(len(old.classes), 'class')} became {len(new.classes)}, or their names changed"
    had, has = old.totals, new.totals
    counts = f"{counted(had.files, 'file')} of {had.bytes} bytes, now {has.files} of {has.bytes}"
    for before, now in zip_longest(Listing(old_folder).rows(), Listing(new_folder).rows()):
        if before != now:
            path = (now or before or (b"",))[0]
            return f"{counts}; the first difference is at {printable(path)}"
    return counts


def packing_work(plan: PackPlan, output: Place, numbers: Sequence[int], missing: Iterable[int]) -> Work:
    """Return the work of writing some of a plan's shards, of which some are missing."""

    def totals(of: Iterable[int]) -> tuple[int, int]:
        shards = [plan.shards[number] for number in of]
        return sum(shard.stop - shard.start for shard in shards), sum(shard.bytes for shard in shards)

    (files, size), (left_files, left_size) = totals(numbers), totals(missing)
    where, done = f"into {counted(len(numbers), 'shard')} of", (files - left_files, size - left_size)
    if len(numbers) == len(plan.shards):
        size = plan.totals.bytes  # of the files, which shards of raw pixels do not have
    return Work("packing", output, "file", files, size, *done, where)


def planned_bytes(plan: PackPlan, work: Path, done: frozenset[str] = frozenset()) -> int:
    """Estimate the bytes that the shards not in ``done`` need on disk."""
    shard_bytes = format_of(str(plan.identity["format"])).shard_bytes
    listing = Listing(work)
    needed = 1 << 20
    for shard in plan.shards:
        if shard.name not in done:
            lengths = listing.read(shard.start, shard.stop)[1]["size"]
            needed += shard_bytes(lengths) if not plan.identity["size"] else shard.bytes
            if plan.identity.get("coefficients"):
                needed += shard.bytes // 8  # a form may take more bytes than the JPEG
    return needed
