"""Manifests as an attacker would send them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from attack_rules import MIB, Rule, attack, honest
from hostile_index import entries, index_bytes, write_dataset
from uses import BLOBS, crops, listed, read_all, unpacked

from fastload.shard.manifest import Manifest, Shard

KIND = "manifest"
KEYS = [b"c/%d.jpg" % i for i in range(5)]
SIZE = sum(map(len, BLOBS))
OVERLAPPING = 500_000

BYTES = Rule("FORMAT.md", "dataset.json", "One JSON object, UTF-8, at most 64 MiB")
TYPES = Rule("FORMAT.md", "dataset.json", "records in the index: samples")
CLASSES = Rule("FORMAT.md", "dataset.json", "class names; a label in the index is an index into it")
FILES = Rule("FORMAT.md", "dataset.json", "path relative to the manifest, with `/`, of 1 to 4095 bytes")
SIZES = Rule("FORMAT.md", "dataset.json", "and a shard file of another size")
IDS = Rule("FORMAT.md", "dataset.json", "A reader MUST refuse a manifest whose `id` differs")
OVERLAPS = Rule("FORMAT.md", "Records", "Records MUST NOT overlap.")
MAJOR = Rule(
    "FORMAT.md", "dataset.json", "A reader MUST refuse another major version and MUST accept any minor one"
)
INDEX = Rule("FORMAT.md", "dataset.json", "A reader MUST refuse others. If it is missing, the index is")
UNKNOWN = Rule("FORMAT.md", "dataset.json", "Readers MUST ignore fields that they do not know")
MEMORY = Rule("SECURITY.md", "What is trusted", "take memory without a bound")
ERROR = Rule(
    "SECURITY.md", "What is trusted", "may make a job fail with an error; it must not crash the process"
)
CLIMB = Rule(
    "FORMAT.md",
    "Keys",
    "a reader that writes files MUST refuse keys that are absolute or have empty, `.` or `..` parts or a NUL",
)


def plain(folder: Path, **changes: Any) -> Path:
    """Five pictures; fields of the manifest replaced, the id made to fit."""
    return write_dataset(folder, BLOBS, index_bytes(entries(BLOBS), KEYS), **changes)


def edited(folder: Path, **changes: Any) -> Path:
    """The same with changes of the text, the id left as it is."""
    plain(folder)
    body = json.loads((folder / "dataset.json").read_text()) | changes
    (folder / "dataset.json").write_text(json.dumps(body))
    return folder


def in_place(folder: Path, name: str, make: Callable[[Path], Any]) -> Path:
    """Something else in a file's place."""
    plain(folder)
    (folder / name).unlink()
    make(folder / name)
    return folder


@honest(KIND)
def a_small_set(folder: Path) -> Callable[[], Any]:
    return read_all(plain(folder))


@honest(KIND)
def a_small_epoch(folder: Path) -> Callable[[], Any]:
    return crops(plain(folder))


@attack(KIND, BYTES, "no file|regular file")
def a_fifo_as_the_manifest(folder: Path) -> Callable[[], Any]:
    return read_all(in_place(folder, "dataset.json", os.mkfifo), entries=False)


@attack(KIND, BYTES, "no file|regular file")
def a_device_without_end_as_the_manifest(folder: Path) -> Callable[[], Any]:
    return read_all(in_place(folder, "dataset.json", lambda path: path.symlink_to("/dev/zero")))


@attack(KIND, BYTES, "symbolic links")
def a_link_to_itself_as_the_manifest(folder: Path) -> Callable[[], Any]:
    return read_all(in_place(folder, "dataset.json", lambda path: path.symlink_to(path.name)))


@attack(KIND, BYTES, "larger than 67108864 bytes")
def a_manifest_of_2_to_the_40_bytes(folder: Path) -> Callable[[], Any]:
    def make(path: Path) -> None:
        path.touch()
        os.truncate(path, 1 << 40)

    return read_all(in_place(folder, "dataset.json", make))


@attack(KIND, MEMORY, "values", extra=256 * MIB)
def a_manifest_of_64_mib_of_empty_lists(folder: Path) -> Callable[[], Any]:
    def make(path: Path) -> None:
        path.write_bytes(b'{"options": {"a": [' + b"[]," * (21 << 20) + b"[]]}}")

    return read_all(in_place(folder, "dataset.json", make))


@attack(KIND, MEMORY, "values", extra=256 * MIB)
def ten_million_class_names(folder: Path) -> Callable[[], Any]:
    plain(folder)
    text = (folder / "dataset.json").read_text()
    names = b",".join(b'"%x"' % number for number in range(10**7 // 2)) + b',""' * (10**7 // 2)
    assert '"classes": []' in text
    data = text.encode().replace(
        b'"classes": []', b'"classes": [' + names[: 60 * MIB].rpartition(b",")[0] + b"]"
    )
    (folder / "dataset.json").write_bytes(data)
    return read_all(folder)


@attack(KIND, ERROR, "not valid JSON")
def options_nested_a_million_times(folder: Path) -> Callable[[], Any]:
    def make(path: Path) -> None:
        path.write_text('{"options": ' + '{"a":' * 10**6 + "1" + "}" * 10**6 + "}")

    return read_all(in_place(folder, "dataset.json", make))


@attack(KIND, TYPES, "num_records|damages a field")
def infinitely_many_records(folder: Path) -> Callable[[], Any]:
    return read_all(edited(folder, num_records=float("inf")))


@attack(KIND, TYPES, "damages a field")
def a_size_of_1e999(folder: Path) -> Callable[[], Any]:
    plain(folder)
    path = folder / "dataset.json"
    path.write_text(path.read_text().replace(f'"size": {SIZE}', '"size": 1e999'))
    return read_all(folder)


@attack(KIND, MAJOR, "damages a field")
def an_infinite_version(folder: Path) -> Callable[[], Any]:
    return read_all(edited(folder, fastload=[float("inf"), 0]))


@attack(KIND, TYPES, "not valid JSON|damages a field|has 5 records")
def records_by_a_number_of_4000_digits(folder: Path) -> Callable[[], Any]:
    return read_all(plain(folder, num_records=10**4000))


@attack(KIND, TYPES, "not valid JSON")
def a_number_of_a_million_digits(folder: Path) -> Callable[[], Any]:
    plain(folder)
    path = folder / "dataset.json"
    path.write_text(path.read_text().replace('"skipped": 0', '"skipped": ' + "7" * 10**6))
    return read_all(folder)


@attack(KIND, SIZES, "bytes")
def a_shard_of_minus_one_byte(folder: Path) -> Callable[[], Any]:
    return read_all(plain(folder, shards=(Shard("shard.bin", -1, 5),)))


@attack(KIND, SIZES, "bytes")
def a_shard_of_2_to_the_64_bytes(folder: Path) -> Callable[[], Any]:
    return read_all(plain(folder, shards=(Shard("shard.bin", 2**64 + SIZE, 5),)))


@attack(KIND, TYPES, "records")
def minus_five_records(folder: Path) -> Callable[[], Any]:
    return read_all(plain(folder, num_records=-5))


@attack(KIND, IDS, "says id")
def the_key_id_twice(folder: Path) -> Callable[[], Any]:
    plain(folder)
    path = folder / "dataset.json"
    path.write_text(path.read_text().rstrip("}\n ") + ', "id": "00000000000000000000000000000000"}')
    return read_all(folder)


@attack(KIND, INDEX, "'index' must be")
def an_index_outside_of_the_folder(folder: Path) -> Callable[[], Any]:
    return read_all(edited(folder, index="../../index-2.fli"))


@attack(KIND, FILES, "must be a path")
def a_nul_in_a_shards_name(folder: Path) -> Callable[[], Any]:
    return read_all(plain(folder, shards=(Shard("shard\0.bin", SIZE, 5),)))


@attack(KIND, FILES, "surrogate|UTF-8|damages a field|cannot be")
def half_of_a_pair_in_a_shards_name(folder: Path) -> Callable[[], Any]:
    plain(folder)
    path = folder / "dataset.json"
    name = "\ud800.bin"
    facts = {n: getattr(Manifest.read(folder), n) for n in Manifest.__dataclass_fields__}
    made = Manifest(**facts | {"shards": (Shard(name, SIZE, 5),)})
    body = json.loads(path.read_text()) | {
        "shards": [{"file": name, "size": SIZE, "records": 5}],
        "id": made.seal,
    }
    path.write_text(json.dumps(body))
    return read_all(folder)


@attack(KIND, FILES, "must be a path")
def a_shard_whose_name_has_a_million_letters(folder: Path) -> Callable[[], Any]:
    return read_all(plain(folder, shards=(Shard("x" * 10**6, SIZE, 5),)))


@attack(KIND, FILES, "symbolic links")
def a_shard_that_links_to_itself(folder: Path) -> Callable[[], Any]:
    return read_all(in_place(folder, "shard.bin", lambda path: path.symlink_to(path.name)))


@attack(KIND, FILES, "file|bytes")
def a_fifo_as_a_shard(folder: Path) -> Callable[[], Any]:
    return crops(in_place(folder, "shard.bin", os.mkfifo))


@attack(KIND, FILES, "file|bytes")
def a_fifo_as_a_shard_of_no_bytes(folder: Path) -> Callable[[], Any]:
    plain(folder, shards=(Shard("shard.bin", 0, 5),))
    (folder / "shard.bin").unlink()
    os.mkfifo(folder / "shard.bin")
    return crops(folder)


@attack(KIND, CLASSES, "'classes'|class")
def class_names_that_are_one_text(folder: Path) -> Callable[[], Any]:
    plain(folder, classes=("a", "b"))
    path = folder / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": "ab"}))
    return read_all(folder)


@attack(KIND, CLASSES, "no path below a folder|UTF-8|surrogate")
def half_of_a_pair_as_a_class(folder: Path) -> Callable[[], Any]:
    records = entries(BLOBS)
    records["label"] = 0
    write_dataset(folder, BLOBS, index_bytes(records, [b"%d.jpg" % i for i in range(5)]), classes=("X",))
    path, manifest = folder / "dataset.json", Manifest.read(folder)
    facts = {n: getattr(manifest, n) for n in Manifest.__dataclass_fields__} | {"classes": ("\ud800",)}
    body = json.loads(path.read_text()) | {"classes": ["\ud800"], "id": Manifest(**facts).seal}
    path.write_text(json.dumps(body))
    return unpacked(folder)


@attack(KIND, CLIMB, "no path below a folder")
def a_key_that_climbs_out(folder: Path) -> Callable[[], Any]:
    keys = [*KEYS[:4], b"../../../../out.jpg"]
    return unpacked(write_dataset(folder, BLOBS, index_bytes(entries(BLOBS), keys)))


@attack(KIND, TYPES, "bytes|records|finds")
def sums_of_2_to_the_200(folder: Path) -> Callable[[], Any]:
    return listed(plain(folder, data_bytes=2**200, index_size=2**200, index_crc=2**200))


@attack(KIND, UNKNOWN, None)
def unknown_keys_of_every_kind(folder: Path) -> Callable[[], Any]:
    return read_all(
        edited(folder, novelty=[None, {"a": [1e300, "\ud800", -0.0]}] * 1000, same_as=["x" * 10**5])
    )


@attack(KIND, TYPES, "same_as|damages a field")
def earlier_ids_that_are_a_number(folder: Path) -> Callable[[], Any]:
    return read_all(edited(folder, same_as=7))


@attack(KIND, FILES, "no file|regular file|cannot be")
def an_index_that_is_a_fifo(folder: Path) -> Callable[[], Any]:
    return read_all(in_place(folder, "index.fli", os.mkfifo))


@attack(KIND, FILES, "bytes|file")
def an_index_that_is_a_device_without_end(folder: Path) -> Callable[[], Any]:
    return read_all(in_place(folder, "index.fli", lambda path: path.symlink_to("/dev/zero")))


@attack(KIND, ERROR, None)
def a_fifo_as_entries(folder: Path) -> Callable[[], Any]:
    plain(folder)
    os.mkfifo(folder / "entries.fli")
    return crops(folder)


@attack(KIND, ERROR, None)
def a_device_without_end_as_entries(folder: Path) -> Callable[[], Any]:
    plain(folder)
    (folder / "entries.fli").symlink_to("/dev/zero")
    return crops(folder)


@attack(KIND, OVERLAPS, "overlaps sample")
def a_set_of_half_a_million_overlapping_records(folder: Path) -> Callable[[], Any]:
    """What verify says of it must not grow with it."""
    records = np.repeat(entries(BLOBS[:1]), OVERLAPPING)
    keys = [b"c/%d.jpg" % i for i in range(OVERLAPPING)]
    write_dataset(folder, BLOBS[:1], index_bytes(records, keys), num_records=OVERLAPPING)
    return listed(folder)
