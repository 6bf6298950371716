"""``dataset.json``: the manifest of a packed dataset, with its schema; written last, it completes a pack."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastload.errors import FormatError, FormatVersionError, ShardError
from fastload.machine.paths import is_dir, is_file, meant, read_regular
from fastload.shard.generations import Dropped, Generation, mark_of
from fastload.shard.suffixes import is_image

if TYPE_CHECKING:
    from fastload.sample.schema import Field, Schema
    from fastload.shard.runs import RunsFile


# ---- The manifest's ``fields``: the schema, and where each field's values are (FORMAT.md, "Fields") ----

#: The mark on names of files that coexist with a set's current ones until the manifest names them, during
#: recoding in place.
SECOND = "-2"
#: That mark, or the one of a generation, in a name of such a file.
_MARKED = re.compile(r"(-2|-g[1-9]\d{0,8})(?=\.fli$)")
#: One JSON object per field.
Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ColumnFile:
    """A field's own file."""

    file: str  # its name, in the dataset's folder
    size: int  # bytes
    digest: int  # CRC-32C of its header and page table


def column_name(position: int, mark: str = "") -> str:
    """Return the file of the field at ``position`` of the schema; ``mark``: "", :data:`SECOND` or that of a
    generation."""
    return f"field-{position:02}{mark}.fli"


def entries_of(schema: Schema, files: Mapping[str, ColumnFile]) -> list[dict[str, Any]]:
    """Return the manifest's entries for fields; none if version 1.0 suffices.

    Args:
        schema: the dataset's.
        files: by name, of the fields that have files.
    """
    if schema.is_plain:
        return []
    entries = []
    for field in schema:
        entry = field.to_json()
        if field == schema.index_field:
            entry["stored"] = "index"
        elif field == schema.label_field:
            del entry["classes"]  # the manifest has them
            entry["stored"] = "label"
        else:
            file = files[field.name]
            entry |= {"stored": "column", "file": file.file, "size": file.size, "digest": file.digest}
        entries.append(entry)
    return entries


def minor_of(entries: Entries) -> int:
    """Return the format's lowest minor version with all of these entries; older readers would miss some."""
    if not entries:
        return 0
    if any(entry["kind"] in ("picture", "pictures") for entry in entries):
        return 6
    if any(entry["kind"] == "images" for entry in entries) or not any(
        entry["stored"] == "index" for entry in entries
    ):
        return 5
    if any(entry.get("null") for entry in entries):
        return 4
    return 2 if any(map(_is_of_version_2, entries)) else 1


def _is_of_version_2(entry: Mapping[str, Any]) -> bool:
    return bool(
        entry["kind"] in ("labels", "texts")
        or (entry["kind"], entry.get("format")) == ("polygons", "mixed")
        or entry.keys() & {"of", "source", "pairs"}
    )


def fields_digest(entries: Entries) -> bytes:
    """Return the fields' digest for the index's header: 16-byte BLAKE2b of canonical JSON; b"": no fields."""
    if not entries:
        return b""
    text = json.dumps(list(entries), ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def schema_of(entries: Entries, classes: Sequence[str]) -> Schema:
    """Return the schema that a manifest's ``fields`` and ``classes`` describe.

    Raises:
        ValueError, TypeError: they break a rule of FORMAT.md, which the message names.
    """
    from fastload.sample.schema import Schema

    if not entries:
        return Schema.plain(classes)
    schema = Schema(tuple(_field(number, entry, classes) for number, entry in enumerate(entries)))
    for number, (field, entry) in enumerate(zip(schema, entries, strict=True)):
        wanted = "column"
        if field is schema.index_field:
            wanted = "index"
        elif field is schema.label_field:
            wanted = "label"
        if entry["stored"] != wanted:
            raise ValueError(
                f"field {field.name!r} must be stored as {wanted!r}. Found: {entry['stored']!r:.200}."
            )
        if wanted == "column":
            column_file(number, entry)
    return schema


def column_file(number: int, entry: Mapping[str, Any]) -> ColumnFile:
    """Return the file of a field that has one.

    Raises:
        ValueError: its entry breaks a rule of FORMAT.md, which the message names.
    """
    name, found = column_name(number), entry.get("file")
    if not isinstance(found, str) or _MARKED.sub("", found) != name:
        raise ValueError(f"the file of field {entry['name']!r} must be {name!r}. Found: {found!r}.")
    for key, most in (("size", 2**63 - 1), ("digest", 2**32 - 1)):
        value = entry.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ValueError(
                f"{key!r} of field {entry['name']!r} must be an integer from 0 to {most}. Found: {value!r}."
            )
    return ColumnFile(found, entry["size"], entry["digest"])


def _field(number: int, entry: Any, classes: Sequence[str]) -> Field:
    from fastload.sample.fields import Kind, Label
    from fastload.sample.schema import Field

    if not isinstance(entry, Mapping) or not {"name", "kind", "stored"} <= entry.keys():
        raise ValueError(
            f"field {number} must be an object with 'name', 'kind' and 'stored'. Found: {entry!r:.200}."
        )
    is_label = entry["stored"] == "label" and entry["kind"] == Label.name
    try:
        kind = Label(tuple(classes)) if is_label else Kind.from_json(entry)
        return Field(entry["name"], kind, entry.get("of"), entry.get("source"))
    except TypeError as error:  # a setting whose type is never legal
        raise ValueError(f"field {number} has settings that are wrong: {error}.") from None


# ---- ``dataset.json`` ----

MANIFEST_NAME = "dataset.json"
INDEX_NAME = "index.fli"
SECOND_INDEX = f"index{SECOND}.fli"
ENTRIES_NAME = "entries.fli"
MAJOR = 1
_OPTIONAL = (
    "fields", "left_out", "ignored", "index", "same_as", "content", "generations", "dropped", "runs",
)  # fmt: skip
MAX_BYTES = 64 << 20  # a manifest of a million classes is far smaller
MAX_VALUES = 4_000_000  # JSON's parser makes an object of each, of 64 bytes or more
_HTML = re.compile(rb"(\xef\xbb\xbf)?\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.I | re.S)
_ID = re.compile("[0-9a-f]{32}")
_MOST_NAME = 4096  # bytes of a path, Linux's PATH_MAX
MAX_NUMBERED = 1_000_000  # more integer labels get no class names, which would be their numbers


def entries_name(index: str) -> str:
    """Return the file of the entry points that belong to an index; ``index``: the manifest's."""
    found = _MARKED.search(index)
    return ENTRIES_NAME if found is None or found[0] == SECOND else f"entries{found[0]}.fli"


def index_name(generation: int) -> str:
    """Return the manifest's ``index`` of a generation, unless it is "". A version that knows no generations
    refuses those of later ones, rather than read a part of the set."""
    return SECOND_INDEX if generation == 1 else f"index{mark_of(generation)}.fli"


def names_fit(classes: Sequence[str], shards: Sequence[str], fields: Entries = ()) -> str | None:
    """Return None if a manifest of these classes, shards and fields can be read again, else what is wrong."""
    told = json.dumps(list(fields), ensure_ascii=False, indent=1)
    text = sum(len(json.dumps(name, ensure_ascii=False).encode()) + 4 for name in classes)
    needed = text + len(told.encode()) + sum(len(name.encode()) + 80 for name in shards) + (1 << 16)
    what = f"the names of {len(classes)} classes, {len(shards)} shards and {len(fields)} fields"
    if needed > MAX_BYTES:
        return (
            f"{MANIFEST_NAME} with {what} would have about {needed} bytes, and may have {MAX_BYTES}. Use "
            "shorter names or integer labels, or larger shards."
        )
    values = sum(map(_marks, (told, *classes, *shards))) + len(classes) + 4 * len(shards) + (1 << 16)
    if values > MAX_VALUES:
        return (
            f"{MANIFEST_NAME} with {what} would have about {values} values, and may have {MAX_VALUES}. Use "
            "integer labels, or larger shards."
        )
    return None


def _marks(text: str | bytes) -> int:
    """Return the most values that a JSON text may have, less one."""
    marks = (b",", b"[", b"{") if isinstance(text, bytes) else (",", "[", "{")
    return sum(text.count(mark) for mark in marks)  # type: ignore[arg-type,misc]


@dataclass(frozen=True)
class Shard:
    """One shard file: its path relative to the manifest, or for foreign files the absolute path or URL."""

    file: str
    size: int  # bytes
    records: int


@dataclass(frozen=True)
class Manifest:
    """The description of a packed dataset, except its records (those are in ``index.fli``)."""

    format: str  # "arrow", "lmdb" or "hdf5"
    num_records: int
    data_bytes: int  # sum of the records' lengths
    classes: tuple[str, ...]
    shards: tuple[Shard, ...]
    index_size: int  # bytes of index.fli
    index_crc: int  # CRC-32C of its header and page table
    codecs: Mapping[str, int] = dataclasses.field(default_factory=dict)  # records per codec
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # pack's options
    skipped: int = 0
    writer: str = ""
    fields: Entries = ()  # version 1.1: the fields; (): an image and a label, version 1.0
    left_out: int = 0
    ignored: Mapping[str, Any] = dataclasses.field(
        default_factory=dict
    )  # hidden files, and those in the source that are not images
    index: str = ""  # the index's file, unless it is index.fli
    same_as: tuple[str, ...] = ()  # ids of sets of the same samples, pixels and order: from before recoding
    content: str = ""  # the content id; "": written by an earlier version
    generations: tuple[Generation, ...] = ()  # version 1.7: the earlier ones, oldest first
    dropped: Dropped | None = None  # version 1.7: the samples that were dropped; None: none
    runs: RunsFile | None = None  # version 1.8: which samples belong together, in which order

    @property
    def index_name(self) -> str:
        """The file of its index."""
        return self.index or INDEX_NAME

    @property
    def entries_name(self) -> str:
        """The file of its entry points, if there is one: it has the mark of the index's generation."""
        return entries_name(self.index)

    @property
    def generation(self) -> int:
        """The number of its generation, from 1."""
        return len(self.generations) + 1

    def generation_of(self, dataset_id: str) -> int | None:
        """Return the newest generation that a set with this id had; None: it was another set."""
        if dataset_id in self.all_ids:
            return self.generation
        found = [number for number, one in enumerate(self.generations, 1) if one.is_called(dataset_id)]
        return found[-1] if found else None

    def at(self, generation: int) -> Manifest:
        """Return the manifest of a generation, as a view of the present files.

        Raises:
            ValueError: there is no such generation.
        """
        is_number = isinstance(generation, Integral) and not isinstance(generation, bool)
        if not is_number or not 1 <= generation <= self.generation:
            raise ValueError(
                f"generation must be an integer from 1 to {self.generation}, the newest of this set. Found: "
                f"{generation!r}."
            )
        return self if generation == self.generation else EarlierManifest.of(self, generation)

    @cached_property
    def schema(self) -> Schema:
        """The fields of its samples."""
        return schema_of(self.fields, self.classes)

    @property
    def in_store(self) -> bool:
        """Whether its shards are named by URLs: an index of files that are in a store."""
        return bool(self.shards) and "://" in self.shards[0].file

    @property
    def read_bytes(self) -> int:
        """About how many bytes an epoch reads: of the index's pictures; where pictures are in lists, or
        there are none, of the shards."""
        in_lists = any(field.get("kind") == "images" for field in self.fields)
        return (
            sum(shard.size for shard in self.shards) if in_lists or not self.data_bytes else self.data_bytes
        )

    @property
    def is_plain(self) -> bool:
        """Whether samples are an image and a label."""
        return not self.fields or self.schema.is_pair

    @property
    def version(self) -> tuple[int, int]:
        """The format's version that it needs."""
        recoded = bool(self.index or "coefficients" in self.codecs or "coefficients" in self.options)
        needed = (minor_of(self.fields), 3 * recoded, 7 * bool(self.generations), 8 * (self.runs is not None))
        return (MAJOR, max(needed))

    @property
    def id(self) -> str:
        """Dataset id, 32 hex digits: the content id, which equal samples in the same order have however they
        are cut into shards; of a set that an earlier version packed, the seal. With runs, and without the
        dropped samples, it is another one."""
        found = self.content or self.seal
        found = found if self.runs is None else self.runs.spec.id_of(found)
        return found if self.dropped is None else self.dropped.id_of(found)

    @property
    def all_ids(self) -> tuple[str, ...]:
        """The ids by which states may know these samples: content id, seal, those from before recoding."""
        seals = [] if self.dropped is not None else [self.seal]
        return tuple(dict.fromkeys([self.id, *seals, *self.same_as]))

    @property
    def seal(self) -> str:
        """The manifest's ``id``, 32 hex digits: a hash of index (which has the fields' digest), shards and
        classes. It names these files; the same samples in other shards have another one."""
        facts = [
            self.num_records,
            self.index_size,
            self.index_crc,
            list(self.classes),
            [[shard.file, shard.size, shard.records] for shard in self.shards],
        ]
        text = json.dumps(facts, ensure_ascii=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def write(self, folder: Path) -> None:
        """Publish atomically as ``folder/dataset.json``: temporary name, fsync, rename, fsync of folder.

        Raises:
            FormatError: it would be larger than a reader accepts; see :func:`names_fit`.
        """
        wrong = names_fit(self.classes, [shard.file for shard in self.shards], self.fields)
        if wrong:
            raise FormatError(wrong)
        body = {"fastload": list(self.version), "id": self.seal, "content": self.content, **asdict(self)}
        body["runs"] = None if self.runs is None else self.runs.to_json()
        for name in _OPTIONAL:
            if not body[name]:
                del body[name]
        temporary = folder / f".tmp-{MANIFEST_NAME}"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(body, file, indent=1, ensure_ascii=False)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, folder / MANIFEST_NAME)
        finally:
            temporary.unlink(missing_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read ``folder/dataset.json``.

        Raises:
            FormatError: no manifest (not a packed dataset, or an unfinished pack), or a damaged one.
            ShardError: it cannot be read.
            FormatVersionError: written by a newer major version.
        """
        path = folder / MANIFEST_NAME
        try:
            data = read_regular(path, MAX_BYTES)
            if data is None:
                raise FormatError(f"{path} is larger than {MAX_BYTES} bytes; it is not a manifest.")
        except (FileNotFoundError, NotADirectoryError):
            raise FormatError(f"{folder} is not a packed dataset: {_missing(folder)}") from None
        except OSError as error:
            raise ShardError(f"{path} cannot be read: {error.strerror}.") from None
        return cls.parse(path, data)

    @classmethod
    def parse(cls, path: Path | str, data: bytes) -> Manifest:
        """Parse the file's bytes; ``path`` is its name for messages.

        Raises:
            FormatError, FormatVersionError: as :meth:`read`.
        """
        values = _marks(data)
        if values > MAX_VALUES:
            raise FormatError(
                f"{path} has {values} values, and may have {MAX_VALUES}: it would take too much memory. It "
                "is not a manifest that fastload has written."
            )
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            if _HTML.match(data):
                raise FormatError(f"{path} is {_page_words(str(path))}") from None
            raise FormatError(f"{path} is not valid JSON: {error}. {_RESTORE}") from None
        return cls._of(path, body)

    @classmethod
    def _of(cls, path: Path | str, body: Any) -> Manifest:
        try:
            major = _whole(body["fastload"][0])
            if major != MAJOR:
                # No version precedes the first.
                advice = "Upgrade fastload" if major > MAJOR else "No fastload has written it: pack again"
                raise FormatVersionError(
                    f"{path} has format version {major}; this fastload reads {MAJOR}. {advice}."
                )
            shards = tuple(
                Shard(_path(s["file"]), _whole(s["size"]), _whole(s["records"])) for s in body["shards"]
            )
            manifest = cls(
                format=str(body["format"]),
                num_records=_whole(body["num_records"]),
                data_bytes=_whole(body["data_bytes"]),
                classes=_names(body["classes"]),
                shards=shards,
                index_size=_whole(body["index_size"]),
                index_crc=_whole(body["index_crc"]),
                codecs={str(name): _whole(count) for name, count in body["codecs"].items()},
                options=dict(body["options"]),
                skipped=_whole(body["skipped"]),
                writer=str(body["writer"]),
                fields=tuple(body.get("fields", ())),
                left_out=_whole(body.get("left_out", 0)),
                ignored=dict(body.get("ignored", {})),
                index=str(body.get("index", "")),
                same_as=tuple(str(one) for one in body.get("same_as", ())),
                content=str(body.get("content", "")),
                generations=tuple(Generation.from_json(one) for one in body.get("generations", ())),
                dropped=Dropped.from_json(body["dropped"]) if "dropped" in body else None,
                runs=_runs(body["runs"]) if "runs" in body else None,
            )
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{path} lacks or damages a field: {error!r:.1000}") from None
        name = index_name(manifest.generation)
        if manifest.index != name and (manifest.index or manifest.generations):
            or_not = "" if manifest.generations else ", or not be there"
            raise FormatError(f"{path}: 'index' must be {name!r}{or_not}. Found: {manifest.index!r:.200}.")
        if not _ID.fullmatch(manifest.content or manifest.seal):
            raise FormatError(
                f"{path}: 'content' must be 32 hex digits, or not be there. Found: {manifest.content!r:.80}."
            )
        if body.get("id") != manifest.seal:
            raise FormatError(
                f"{path} says id {body.get('id')!r:.80}, its contents give {manifest.seal!r}: it was "
                f"changed. {_RESTORE}"
            )
        try:
            manifest.check_fields()
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{path}: 'fields' is not valid: {error}") from None
        return manifest

    def check_fields(self) -> None:
        """Raise ValueError, naming the rule, if ``fields`` breaks one of FORMAT.md."""
        fields_digest(self.fields)
        if self.fields and self.schema.label_field is None and self.classes:
            raise ValueError("'classes' has names, and there is no label that they could be of.")


@dataclass(frozen=True)
class EarlierManifest(Manifest):
    """An earlier generation of a set, as a view of its present files: the first samples.

    Numbers that no reader needs (codecs, options, left-out files) are the present set's.
    """

    files: Manifest | None = None  # that of the present files
    known_as: str = ""  # its dataset id

    @classmethod
    def of(cls, files: Manifest, generation: int) -> EarlierManifest:
        """Return the view; ``generation``: from 1, below the present one."""
        one = files.generations[generation - 1]
        own = {field.name: getattr(files, field.name) for field in dataclasses.fields(Manifest)}
        own |= {
            "num_records": one.records, "data_bytes": one.data_bytes, "classes": files.classes[: one.classes],
            "shards": files.shards[: one.shards], "generations": files.generations[: generation - 1],
            "same_as": one.same_as,
        }  # fmt: skip
        return cls(**own, files=files, known_as=one.id)

    @property
    def id(self) -> str:
        return self.known_as

    @property
    def all_ids(self) -> tuple[str, ...]:
        return (self.known_as, *self.same_as)

    @property
    def seal(self) -> str:
        assert self.files is not None
        return self.files.seal

    def write(self, folder: Path) -> None:
        raise FormatError(f"generation {self.generation} of {folder} is a view, which is never written.")


def _page_words(path: str) -> str:
    """Return that the file is an HTML page and no manifest, and what to do."""
    if "://" in path:
        return (
            "an HTML page, not a manifest: the server answers with a login page, or with a page about an "
            "error. Open the URL in a browser, and give what lets you in as storage_options (headers, token)."
        )
    return (
        "an HTML page, not a manifest: it was saved from a web page. Copy the set's own dataset.json there."
    )


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"an integer must be where {value!r:.80} is")
    return value


def _runs(body: Any) -> RunsFile:
    from fastload.shard.runs import RunsFile

    return RunsFile.from_json(body)


def _names(value: Any) -> tuple[str, ...]:
    """Return class names: a list of texts that UTF-8 can encode."""
    if not isinstance(value, list) or not all(type(name) is str for name in value):
        raise TypeError(f"'classes' must be a list of texts. Found: {value!r:.80}")
    "".join(value).encode()
    return tuple(value)


def _path(value: Any) -> str:
    """Return a shard's path or URL."""
    if type(value) is not str or not 0 < len(value.encode()) < _MOST_NAME or "\0" in value:
        raise ValueError(
            f"a shard's 'file' must be a path of 1 to {_MOST_NAME - 1} bytes. Found: {value!r:.80}"
        )
    return value


_RESTORE = "Restore it from a copy, or pack the source again."


def _missing(folder: Path) -> str:
    """Return why ``folder`` has no manifest, and what to do."""
    if is_file(folder):
        if folder.suffix == ".tar":
            return f"it is a tar. 'fastload index {folder} --output OUTPUT' makes one; pass OUTPUT."
        return "it is a file. Pass the folder that 'fastload pack' made."
    if not is_dir(folder):
        return f"there is no such folder.{meant(folder)} 'fastload pack SOURCE {folder}' makes it."
    packed = sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST_NAME}"))
    if packed:
        return (
            f"it has no {MANIFEST_NAME}, but folders in it are packed datasets ({', '.join(packed[:5])}"
            f"{', ...' if len(packed) > 5 else ''}). Pass one of them: {str(folder / packed[0])!r}."
        )
    if any(folder.glob("*.tar")):
        return f"it is a folder of tars. 'fastload index {folder} --output OUTPUT' makes one; pass OUTPUT."
    if _has_images(folder):
        return (
            f"it is a folder of images, and has no {MANIFEST_NAME}. Pack it into another folder, with "
            f"'fastload pack {folder} OUTPUT', and pass OUTPUT."
        )
    return (
        f"it has no {MANIFEST_NAME}. Make one with 'fastload pack SOURCE {folder}'; an interrupted pack goes "
        "on with the same command. Where this folder is the SOURCE itself, pack it into another one."
    )


_LOOKED_AT = 1000  # names in a folder, and its first folders


def _has_images(folder: Path) -> bool:
    """Return whether there are images in a folder or its subfolders, for a message."""
    try:
        with os.scandir(folder) as entries:
            some = [*islice(entries, _LOOKED_AT)]
        below = [entry.path for entry in some if entry.is_dir() and not entry.name.startswith(".")][:3]
        names = [entry.name for entry in some]
        for path in below:
            with os.scandir(path) as entries:
                names += [entry.name for entry in islice(entries, _LOOKED_AT)]
    except OSError:
        return False
    return any(map(is_image, names))
