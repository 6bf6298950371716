"""What users run, each as one call that may be killed, failed or cut off, and what must hold then.

Each verb works below one folder: ``source`` is made once, ``work`` before each run; ``shm`` and ``tmp`` in it
are its node cache and its temporary folder. Nothing of a run lies elsewhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import field_samples
import numpy as np
import recode_sets
from annotated_trees import write_yolo
from decode_images import encode, photo
from pack_trees import make_tree, snapshot
from plain_pack import plain_pack

import fastload
from fastload import Cache, DataLoader
from fastload.cli import main as command_line
from fastload.packing import PackOptions, pack
from fastload.packing.recode import recode
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import ENTRIES_NAME, MANIFEST_NAME

__all__ = ["VERBS", "Place", "Verb"]

SHARD = 6000  # bytes: several shards
FORMATS = ("arrow", "lmdb", "hdf5")


@dataclass(frozen=True)
class Place:
    """The folders of one lane."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def output(self) -> Path:
        return self.work / "set"

    def clear(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        for name in ("set", "shm", "tmp", "disk"):
            if name != "set":
                (self.work / name).mkdir(parents=True)
        os.environ["FASTLOAD_CACHE_DIR"] = str(self.work / "shm")
        os.environ["TMPDIR"] = str(self.work / "tmp")


@dataclass(frozen=True)
class Verb:
    """One command.

    Attributes:
        prepare: makes the source, once.
        begin: what there is before each run, beside empty folders.
        run: the command; its exit code.
        sound: whatever happened: why what is on disk is wrong, or nothing.
        final: of what must be the same after every run that succeeded.
        durable: a power cut must not take away what it has done.
        refuses_twice: what is finished is not made again, which is an error.
    """

    name: str
    prepare: Callable[[Place], None]
    begin: Callable[[Place], None]
    run: Callable[[Place], int]
    sound: Callable[[Place], str] = lambda place: ""
    final: Callable[[Place], Any] = lambda place: snapshot(place.work)
    durable: bool = True
    refuses_twice: bool = False


# ---- sources ------------------------------------------------------------------------------------


@lru_cache
def pictures() -> dict[str, bytes]:
    """JPEGs of two classes, one that can be no coefficient record, and a PNG."""
    made = {
        f"c{i % 2}/{i:02d}.jpg": encode(photo(60 + i, 50, i), "JPEG", subsampling=i % 3) for i in range(10)
    }
    made["c1/cmyk.jpg"] = encode(photo(60, 50), "JPEG", "CMYK")
    made["c0/p.png"] = encode(photo(20, 18), "PNG")
    return made


def tree(place: Place) -> None:
    make_tree(place.source, pictures())


def packed(format_name: str, **options: Any) -> Callable[[Place], None]:
    """A packed set as the source."""

    def prepare(place: Place) -> None:
        make_tree(place.root / "tree", pictures())
        done = PackOptions(format=format_name, shard_size=SHARD, num_proc=1, **options)
        pack(place.root / "tree", place.source, done)

    return prepare


def nothing(place: Place) -> None:
    """No source, or nothing before a run."""


def fields(format_name: str, form: str | None = None) -> Callable[[Place], None]:
    """A set of pictures in two fields, beside others: a few, for the calls are as many as the records."""
    few = dict(list(recode_sets.pictures().items())[:5])

    def prepare(place: Place) -> None:
        recode_sets.field_set(place.source, format_name, few, shard_size=30_000)
        if form is not None:
            recode(place.source, form, 1)

    return prepare


def complete(place: Place) -> None:
    """The source, and the same command's result is there."""
    make_tree(place.source, pictures())
    done = PackOptions(format="arrow", shard_size=SHARD, num_proc=1)
    pack(place.source, place.root / "done" / "set", done)


def copy_complete(place: Place) -> None:
    shutil.copytree(place.root / "done" / "set", place.output)


def copy_touched(place: Place) -> None:
    """What a kill behind the manifest leaves: no entry points; meanwhile the source's files have got another
    time, which says nothing about their contents."""
    copy_complete(place)
    (place.output / ENTRIES_NAME).unlink()
    for path in place.source.rglob("*.jpg"):
        path.touch()


def with_cut_cache(place: Place) -> None:
    """A set, and what somebody has cut of the node cache's file of it."""
    raw(place)
    place.clear()
    assert trained(cache="8MB")(place) == 0
    shutil.copytree(place.work / "shm", place.root / "cut", dirs_exist_ok=True)
    (file,) = (place.root / "cut").rglob("*.flc")
    os.truncate(file, file.stat().st_size // 2)


def copy_cut_cache(place: Place) -> None:
    for path in (place.root / "cut").iterdir():
        shutil.copytree(path, place.work / "shm" / path.name)
        (place.work / "shm" / path.name).chmod(0o700)


def copy_source(place: Place) -> None:
    shutil.copytree(place.source, place.output)


# ---- what must hold ------------------------------------------------------------------------------


def contents(folder: Path) -> list[dict[str, bytes]]:
    """Every value of every sample, with every checksum compared."""
    files = PackedFiles(folder)
    ids = files.ids_at(np.arange(len(files)))
    return [{name: files.value_bytes(name, sample) for name in files.schema.names} for sample in ids.tolist()]


def whole_or_not_there(place: Place) -> str:
    """A manifest names what is there, all of it and as it was."""
    for manifest in sorted(place.output.rglob(MANIFEST_NAME)):
        try:
            found = contents(manifest.parent)
        except Exception as error:
            return f"the manifest is there, and {type(error).__name__}: {error}"
        if not found:
            return "the manifest is there, and there are no samples"
    return ""


def as_before(place: Place) -> str:
    """A set that is changed in place is whole at any moment."""
    try:
        before, now = contents(place.source), contents(place.output)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if before == now else "records have other values"


def before_or_after(place: Place) -> str:
    """A set that grows, or loses samples, is its old generation or its new one."""
    try:
        known, now = [contents(place.source), contents(place.root / "after")], contents(place.output)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if now in known else "it is neither the old generation nor the new one"


def cli(*words: object) -> int:
    return command_line([str(word) for word in words])


# ---- verbs ---------------------------------------------------------------------------------------


def packing(name: str, *options: object, source: Callable[[Place], None] = tree) -> Verb:
    def run(place: Place) -> int:
        return cli(
            "pack", place.source, place.output, "--shard-size", SHARD, "--num-proc", 1, "--quiet", *options
        )

    return Verb(name, source, nothing, run, whole_or_not_there)


def indexed(*options: object) -> Callable[[Place], int]:
    def run(place: Place) -> int:
        shards = sorted(place.source.glob("source-*"))
        return cli("index", *shards, "--output", place.output, "--num-proc", 1, *options)

    return run


def indexing(format_name: str) -> Verb:
    return Verb(f"index {format_name}", packed(format_name), nothing, indexed(), whole_or_not_there)


def index_once(place: Place) -> None:
    assert indexed()(place) == 0


def entries_anew(place: Place) -> int:
    return cli("index", place.output, "--entries", 16, "--num-proc", 1)


def recoded(*how: object) -> Callable[[Place], int]:
    return lambda place: cli("recode", place.output, *how, "--num-proc", 1, "--quiet")


def growing(name: str, prepare: Callable[[Place], None], change: Callable[[Place, Path], int]) -> Verb:
    """A set that gets another generation, in place."""

    def prepared(place: Place) -> None:
        prepare(place)
        make_tree(place.root / "more", {f"{name}/{key}": data for key, data in pictures().items()})
        shutil.copytree(place.source, place.root / "after")
        assert change(place, place.root / "after") == 0

    return Verb(name, prepared, copy_source, lambda place: change(place, place.output), before_or_after)


def appended(place: Place, folder: Path) -> int:
    words = ("--append", "--shard-size", SHARD, "--num-proc", 1, "--quiet")
    return cli("pack", place.root / "more", folder, *words)


def appended_fields(place: Place, folder: Path) -> int:
    few = dict(list(recode_sets.pictures().items())[5:8])
    recode_sets.field_set(folder, "lmdb", few, shard_size=30_000, append=True)
    return 0


def dropped(place: Place, folder: Path) -> int:
    return cli("drop", folder, "1-2", "4")


def unpacked(*how: object) -> Callable[[Place], int]:
    return lambda place: cli("unpack", place.source, place.output, *how)


def samples(place: Place) -> int:
    fastload.pack(
        field_samples.Samples(12), place.output, field_samples.SCHEMA, shard_size=20_000, entries=None
    )
    return 0


def annotated(place: Place) -> None:
    write_yolo(place.source, 4)


def in_shares(place: Place) -> int:
    words = ("pack", place.source, place.output, "--shard-size", SHARD, "--num-proc", 1, "--quiet")
    for share in ("1/2", "0/2"):
        code = cli(*words, "--shards", share)
        if code:
            return code
    return cli(*words, "--publish")


def warmed(*how: object) -> Callable[[Place], int]:
    return lambda place: cli("warm", place.source, "--limit", "8MB", "--threads", 2, *how)


def cache_state(place: Place) -> Any:
    """What is left when the cache is cleared: nothing."""
    assert command_line(["cache", "clear"]) == 0
    assert command_line(["cache", "clear", "--dir", str(place.work / "disk")]) == 0
    return sorted(str(p.relative_to(place.work)) for p in place.work.rglob("*") if p.is_file())


def trained(**options: Any) -> Callable[[Place], int]:
    """Two epochs, every value compared with the set's own."""

    def run(place: Place) -> int:
        found = dict(options)
        if found.pop("disk", False):
            found["cache"] = Cache(disk=f"{place.work / 'disk'}:8MB")
        with DataLoader(place.source, 4, shuffle=True, num_workers=1, seed=0, **found) as loader:
            for _ in range(2):
                seen = []
                for images, labels in loader:
                    for image, label in zip(images.permute(0, 2, 3, 1).numpy(), labels.tolist(), strict=True):
                        assert image.tobytes() == RAW[label].tobytes(), f"sample {label} has other pixels"
                        seen.append(label)
                assert sorted(seen) == list(range(len(RAW))), f"delivered {sorted(seen)}"
        return 0

    return run


RAW = np.random.default_rng(3).integers(0, 256, (24, 16, 16, 3), np.uint8)


def raw(place: Place) -> None:
    plain_pack(place.source, [one.tobytes() for one in RAW], range(len(RAW)), raw_size=(16, 16))


PACKED = packing("", "--format", "arrow")
VERBS = {
    verb.name: verb
    for verb in (
        *(packing(f"pack {name}", "--format", name) for name in FORMATS),
        packing("pack --coefficients", "--coefficients"),
        packing("pack --raw", "--raw", "--size", "16x16"),
        Verb("pack samples", nothing, nothing, samples, whole_or_not_there),
        packing("pack yolo", "--as", "yolo", source=annotated),
        packing("pack a set", "--format", "lmdb", source=fields("hdf5", "small")),
        Verb("pack over a complete one", complete, copy_complete, PACKED.run, whole_or_not_there),
        Verb("pack of touched files", complete, copy_touched, PACKED.run, whole_or_not_there),
        Verb("pack in shares", tree, nothing, in_shares, whole_or_not_there),
        *(indexing(name) for name in FORMATS),
        Verb("index --restart", packed("arrow"), index_once, indexed("--restart"), whole_or_not_there),
        Verb("entries", packed("arrow", entries=None), copy_source, entries_anew, as_before),
        Verb("recode", packed("arrow"), copy_source, recoded("--coefficients"), as_before),
        Verb("recode --jpeg", packed("lmdb", coefficients="fast"), copy_source, recoded("--jpeg"), as_before),
        Verb("recode fields", fields("lmdb"), copy_source, recoded("--coefficients"), as_before),
        Verb("recode fields --jpeg", fields("hdf5", "small"), copy_source, recoded("--jpeg"), as_before),
        growing("append", packed("arrow"), appended),
        growing("append to raw", packed("hdf5", raw=True, size=(8, 8)), appended),
        growing("append fields", fields("lmdb"), appended_fields),
        growing("drop", packed("arrow"), dropped),
        Verb("unpack", packed("hdf5"), nothing, unpacked(), refuses_twice=True),
        Verb("warm", packed("arrow"), nothing, warmed(), final=cache_state, durable=False),
        Verb("train", raw, nothing, trained(cache="off"), final=cache_state, durable=False),
        Verb("train cached", raw, nothing, trained(cache="8MB"), final=cache_state, durable=False),
        Verb(
            "train over a cut cache",
            with_cut_cache,
            copy_cut_cache,
            trained(cache="8MB"),
            final=cache_state,
            durable=False,
        ),
        Verb("train from disk tier", raw, nothing, trained(disk=True), final=cache_state, durable=False),
    )
}
