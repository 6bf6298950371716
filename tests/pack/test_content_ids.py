"""The dataset id: the same samples have one however they are packed, and others have another."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from content_reference import content_of
from field_sets import RICH, rich_samples
from long_forms import SEED, as_drawn, how_many
from pack_trees import make_tree, run_cli
from PIL import Image as Pillow
from recode_sets import pictures

import fastload
from fastload import DataLoader, Images, Text
from fastload.errors import FormatError, PackError, ShardError, ShardTruncated, StateError
from fastload.packing import PackOptions, pack
from fastload.packing import recode as recode_module
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.packer import pack_shares, plan_shares, publish_shares
from fastload.packing.recode import recode
from fastload.packing.shares import ShardRanges
from fastload.packing.verify import verify
from fastload.sample.schema import Schema
from fastload.shard.contents import content_id
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest

FORMATS = ("arrow", "lmdb", "hdf5")
LISTS = Schema.of({"images": Images(), "text": Text()})
JPEGS = pictures()


# ---- rows, and the ways by which they become sets ------------------------------------------------


def lists_of_pictures(count: int) -> list[dict[str, Any]]:
    """Samples with no list, an empty one, and lists with and without places that have no picture."""
    draws, found = random.Random(5), [data for name, data in JPEGS.items() if name.startswith("c/")]
    rows: list[dict[str, Any]] = [{"images": None, "text": "none"}, {"images": [], "text": ""}]
    for number in range(count - 2):
        some = [draws.choice([None, *found]) for _ in range(1 + number % 4)]
        rows.append({"images": some, "text": "x" * number})
    return rows


def python_rows(kind: str) -> tuple[list[dict[str, Any]], Schema]:
    """The samples of a kind of set."""
    return (lists_of_pictures(10), LISTS) if kind == "lists" else (rich_samples(7), RICH)


#: What a kind of set is packed with: its pack's options decide its records.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {}, "raw": {"raw": True}, "coefficients": {"coefficients": "fast"},
    "fields": {}, "fields, raw": {"raw": True}, "lists": {},
}  # fmt: skip
PLAIN = ("plain", "raw", "coefficients")


def source_of(kind: str, folder: Path) -> Any:
    """What is packed: a tree of pictures, or samples."""
    return make_tree(folder / "source", JPEGS) if kind in PLAIN else python_rows(kind)[0]


def options(kind: str, **given: Any) -> dict[str, Any]:
    schema = {} if kind in PLAIN else {"schema": python_rows(kind)[1]}
    return {"num_proc": 1, **KINDS[kind], **schema, **given}


def directly(kind: str, source: Any, output: Path, **given: Any) -> None:
    fastload.pack(source, output, **options(kind, **given))


def from_a_set(kind: str, source: Any, output: Path, **given: Any) -> None:
    """A set is packed again, into other shards: ``given`` are those of the second pack."""
    first = output.with_name(f"{output.name}-first")
    directly(kind, source, first, format=FORMATS[FORMATS.index(given["format"]) - 1], shard_size=7001)
    fastload.pack(first, output, num_proc=1, **KINDS[kind], **given)


def by_shares(kind: str, source: Any, output: Path, **given: Any) -> None:
    """By several, of a plan; the source is a set, which any of them can open."""
    first = output.with_name(f"{output.name}-first")
    directly(kind, source, first, shard_size=7001)
    wanted = PackOptions(num_proc=1, **KINDS[kind], **given)
    plan_shares(first, output, wanted)
    for share in ("1/2", "0/2"):
        pack_shares(first, output, ShardRanges.parse(share), wanted)
    publish_shares(first, output, wanted)


def running(kind: str, source: Any, output: Path, **given: Any) -> None:
    """An iterable, whose length nobody knows before."""
    if kind in PLAIN:
        from_a_set(kind, source, output, **given)
    else:
        fastload.pack(iter(source), output, **options(kind, **given))


def into_a_store(kind: str, source: Any, output: Path, **given: Any) -> None:
    fastload.pack(source, f"file://{output}", **options(kind, **given))


WAYS: list[Callable[..., None]] = [directly, from_a_set, by_shares, running, into_a_store]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_way_gives_one_id(kind: str, tmp_path: Path) -> None:
    """Drawn: container, shards and way; the id is that of FORMAT.md's words, and verify finds it right."""
    draws = random.Random(f"{SEED} {kind}")
    source = source_of(kind, tmp_path)
    directly(kind, source, tmp_path / "one")
    wanted, shards, seals = PackedFiles(tmp_path / "one"), set(), set()
    for number in range(how_many(5, 60)):
        way, form = WAYS[number % len(WAYS)], draws.choice(FORMATS)
        size, output = draws.choice([4096, 6000, 9000, 1 << 30]), tmp_path / f"{number}"
        way(kind, source, output, format=form, shard_size=size)
        found, case = PackedFiles(output), as_drawn((kind, way.__name__, form, size))
        assert found.id == wanted.id == content_of(output), case
        assert verify(output) == ([], len(wanted)), case
        shards.add(len(found.manifest.shards))
        seals.add(found.manifest.seal)
    assert len(shards) > 1
    assert len(seals) > 1


@pytest.mark.parametrize("kind", ["plain", "lists"], indirect=True)
def test_processes_give_the_same_id(kind: str, tmp_path: Path) -> None:
    source = source_of(kind, tmp_path)
    directly(kind, source, tmp_path / "first", shard_size=7001)
    fastload.pack(tmp_path / "first", tmp_path / "set", num_proc=2, shard_size=4096)
    assert len(PackedFiles(tmp_path / "set").manifest.shards) > 1
    assert PackedFiles(tmp_path / "set").id == PackedFiles(tmp_path / "first").id


# ---- what has another id -------------------------------------------------------------------------


def other_value(value: Any, field: str) -> Any:
    """A value of the same field that differs, as little as can be."""
    if field in ("image", "mask", "second"):
        pixels = np.array(Pillow.open(io.BytesIO(value)))
        pixels[0, 0] ^= 1
        out = io.BytesIO()
        Pillow.fromarray(pixels).save(out, "PNG")
        return out.getvalue()
    changes: dict[str, Callable[[], Any]] = {
        "label": lambda: (value + 2) % 4 - 1, "weight": lambda: np.nextafter(value, 9), "notes": lambda: 1,
        "kept": lambda: not value, "caption": lambda: value + " ", "blob": lambda: value + b"\0",
        "attribute": lambda: value ^ 1, "outlines": lambda: [*value, []],
        "areas": lambda: [*value, {"size": [2, 2], "counts": [4]}],
    }  # fmt: skip
    if field in changes:
        return changes[field]()
    changed = np.array(value)
    changed.reshape(-1)[-1] += 1
    return changed


def set_id(rows: Any, folder: Path, schema: Schema, **given: Any) -> str:
    fastload.pack(rows, folder, schema, num_proc=1, **given)
    return PackedFiles(folder).id


@pytest.mark.parametrize("field", RICH.names)
def test_another_value_gives_another_id(field: str, tmp_path: Path) -> None:
    rows = rich_samples(6)
    changed = copy.deepcopy(rows)
    changed[5][field] = other_value(rows[5][field], field)
    assert set_id(rows, tmp_path / "set", RICH) != set_id(changed, tmp_path / "changed", RICH)


def test_another_order_class_name_or_setting_gives_another_id(tmp_path: Path) -> None:
    rows, fields = rich_samples(6), {field.name: field.kind for field in RICH}
    turned = [rows[1], rows[0], *rows[2:]]
    named = fields | {"label": replace(fields["label"], classes=("cat", "dog", "owl"))}
    masked = fields | {"mask": replace(fields["mask"], ignore=7)}
    swapped = {name: fields[name] for name in [*list(fields)[:-2], "attribute", "notes"]}
    cases: list[tuple[Any, Any]] = [(turned, fields), (rows[:-1], fields)]
    cases += [(rows, schema) for schema in (fields, named, masked, swapped)]
    found = [
        set_id(some, tmp_path / str(number), Schema.of(schema)) for number, (some, schema) in enumerate(cases)
    ]
    assert len(set(found)) == 6


@pytest.mark.parametrize("change", ["a byte", "a key", "a class", "a picture less", "two bytes of a list"])
def test_another_picture_or_key_gives_another_id(change: str, tmp_path: Path) -> None:
    files = dict(JPEGS)
    if change == "a byte":
        files["c/03.jpg"] = files["c/03.jpg"][:-1] + b"\xd8"
    elif change == "a key":
        files["c/03b.jpg"] = files.pop("c/03.jpg")
        files = dict(sorted(files.items()))
    elif change == "a class":
        files = {name.replace("d/", "e/"): data for name, data in files.items()}
    else:
        del files["d/1.png"]
    found = []
    for name, some in (("set", dict(JPEGS)), ("changed", files)):
        rows = [{"images": [data, None], "text": ""} for data in some.values()]
        if change == "two bytes of a list":
            found.append(set_id(rows, tmp_path / name, LISTS))
        else:
            [result] = pack(make_tree(tmp_path / f"source {name}", some), tmp_path / name)
            found.append(result.manifest.id)
    assert found[0] != found[1]


def test_a_place_without_a_picture_counts(tmp_path: Path) -> None:
    """Lists that have the same pictures in other places, or between other samples."""
    one, two = JPEGS["c/00.jpg"], JPEGS["c/01.jpg"]
    lists: list[list[Any]] = [
        [[one, two], []], [[one], [two]], [[one, None, two], []], [[None, one, two], []], [[one, two], None],
        [[two, one], []],
    ]  # fmt: skip
    found = [
        set_id([{"images": each, "text": ""} for each in some], tmp_path / str(number), LISTS)
        for number, some in enumerate(lists)
    ]
    assert len(set(found)) == len(lists)


# ---- indexes, recoded sets, sets of earlier versions ---------------------------------------------


def test_an_index_in_place_has_the_id_of_its_samples(tmp_path: Path) -> None:
    """Wherever the files are, in one or in several, and with entry points and without."""
    found = []
    for name in ("here", "there"):
        rows, folder = rich_samples(6), tmp_path / name
        fastload.pack(rows, folder / "set", RICH, num_proc=1, shard_size=6000 if name == "here" else 1 << 30)
        index_files([folder / "set"], folder / "index", IndexOptions(entries=None))
        index = PackedFiles(folder / "index")
        assert index.id == content_of(folder / "index") != index.manifest.seal
        run_cli("index", folder / "index", "--entries")
        assert PackedFiles(folder / "index").manifest == index.manifest
        assert verify(folder / "index") == ([], 6)
        found.append(index.id)
    assert len(set(found)) == 1


def as_before(folder: Path) -> Manifest:
    """The set as earlier versions wrote it, without a content id."""
    manifest = replace(Manifest.read(folder), content="")
    manifest.write(folder)
    return manifest


CHAIN = fastload.transforms.Compose(
    [fastload.transforms.RandomResizedCrop(16), fastload.transforms.ToDtype("uint8")]
)


def loader_of(folder: Path) -> DataLoader[Any]:
    return DataLoader(folder, 2, shuffle=True, seed=3, transform=CHAIN, num_workers=1)


def state_of(folder: Path) -> dict[str, Any]:
    """A loader's state after two batches."""
    with loader_of(folder) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        return dict(loader.state_dict())


def rest_of(folder: Path, state: dict[str, Any]) -> list[bytes]:
    """What a loader delivers of the epoch from a state on."""
    with loader_of(folder) as loader:
        loader.load_state_dict(state)
        return [np.asarray(images).tobytes() for images, _ in loader]


@pytest.fixture
def sets(tmp_path: Path) -> list[Path]:
    """The same pictures as a set of one shard, one of several, and one in another container."""
    source = make_tree(tmp_path / "source", JPEGS)
    given = [{"shard_size": 1 << 30}, {"shard_size": 4096}, {"shard_size": 4096, "format": "hdf5"}]
    for number, some in enumerate(given):
        pack(source, tmp_path / f"{number}", PackOptions(num_proc=1, **some))  # type: ignore[arg-type]
    return [tmp_path / f"{number}" for number in range(3)]


def test_states_go_on_with_the_same_samples_in_other_shards(sets: list[Path]) -> None:
    state = state_of(sets[0])
    wanted = rest_of(sets[0], state)
    assert len(wanted) == 5
    for folder in sets[1:]:
        manifest = Manifest.read(folder)
        assert rest_of(folder, state) == wanted
        assert rest_of(folder, {**state, "dataset": manifest.seal}) == wanted  # an earlier version's
    recode(sets[1], "fast", 1)
    recode(sets[1], "small", 1)
    assert Manifest.read(sets[1]).id not in (state["dataset"], Manifest.read(sets[0]).seal)
    assert rest_of(sets[1], state) == wanted
    with pytest.raises(StateError, match="dataset was"):
        rest_of(sets[0], state_of(sets[1]))  # nothing says that the recoded set is this one


def test_a_block_order_that_follows_from_shards_is_refused_in_words(tmp_path: Path) -> None:
    """Of lists of pictures only shards tell the bytes: their blocks are given, or differ."""
    rows = [{"images": [data], "text": ""} for data in JPEGS.values()] * 20
    for form in ("arrow", "hdf5"):
        fastload.pack(rows, tmp_path / form, LISTS, num_proc=1, format=form)
    saved: dict[str, Any] = {}
    for form in ("arrow", "hdf5"):
        for shuffle in (fastload.Block(), fastload.Block(8, 32)):
            with DataLoader(
                tmp_path / form, 2, shuffle=shuffle, seed=3, num_workers=1, fields=["text"]
            ) as loader:
                if form == "arrow":
                    saved[str(shuffle)] = loader.state_dict()
                elif shuffle.size is None:
                    with pytest.raises(StateError, match=r"shuffle was .*\d+.*, is .*\d+"):
                        loader.load_state_dict(saved[str(shuffle)])
                else:
                    loader.load_state_dict(saved[str(shuffle)])
                    assert loader.state_dict() == saved[str(shuffle)]


def test_a_set_that_was_cut_anew_is_the_same_to_who_knew_it(sets: list[Path], tmp_path: Path) -> None:
    """A pickled dataset opens it, and a pack of it is complete; with other samples neither is."""
    known, output = pickle.dumps(PackedFiles(sets[0])), tmp_path / "out"
    pack(sets[0], output, PackOptions(num_proc=1))
    shutil.rmtree(sets[0])
    pack(sets[1], sets[0], PackOptions(num_proc=1, shard_size=6000, format="lmdb"))
    assert [pickle.loads(known).read(i) for i in range(14)] == list(JPEGS.values())
    assert pack(sets[0], output, PackOptions(num_proc=1))[0].was_complete
    shutil.rmtree(sets[0])
    pack(sets[1], sets[0], PackOptions(num_proc=1, limit=13))
    with pytest.raises(FormatError, match="packed again, from other samples"):
        pickle.loads(known)
    with pytest.raises(PackError, match="holds a pack of other samples"):
        pack(sets[0], output, PackOptions(num_proc=1))


def test_sets_of_earlier_versions_keep_their_ids_and_states(sets: list[Path]) -> None:
    old = as_before(sets[1])
    assert PackedFiles(sets[1]).id == old.seal
    assert "content" not in json.loads((sets[1] / "dataset.json").read_text())
    assert verify(sets[1]) == ([], 14)
    state = state_of(sets[1])
    assert state["dataset"] == old.seal
    wanted = rest_of(sets[1], state)
    with pytest.raises(StateError, match="dataset was"):
        rest_of(sets[0], state)
    recode(sets[1], "fast", 1)
    new = Manifest.read(sets[1])
    assert new.id == new.content == content_of(sets[1])
    assert new.same_as == (old.seal,)
    assert rest_of(sets[1], state) == wanted


def test_a_recode_that_changes_nothing_is_finished_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its JPEGs can be no records: the id is the same, and the seal tells before the switch from after."""
    source = make_tree(tmp_path / "source", {f"{i}.jpg": JPEGS["d/0.jpg"] for i in range(3)})
    pack(source, tmp_path / "set", PackOptions(num_proc=1))
    before = Manifest.read(tmp_path / "set")
    with monkeypatch.context() as patch:
        patch.setattr(recode_module, "_finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            recode(tmp_path / "set", "fast", 1)
    after = Manifest.read(tmp_path / "set")
    assert (after.id, after.same_as) == (before.id, (before.seal,))
    assert recode(tmp_path / "set", "fast", 1).was_so
    assert not [path for path in (tmp_path / "set").iterdir() if path.name.startswith(".")]
    assert verify(tmp_path / "set", decode=True) == ([], 3)


# ---- what is wrong, and what an id costs ---------------------------------------------------------


def test_verify_finds_another_content_id(sets: list[Path]) -> None:
    manifest = replace(Manifest.read(sets[0]), content="0" * 32)
    manifest.write(sets[0])
    [problem], count = verify(sets[0])
    found = Manifest.read(sets[1]).content
    assert (problem.shard, count) == ("dataset.json", 14)
    assert problem.reason == (
        f"says content id {'0' * 32}, its files have {found}; states of other samples would fit it"
    )


@pytest.mark.parametrize("wrong", [7, "0" * 31, "G" * 32, ["0" * 32]])
def test_a_content_id_that_is_none(wrong: Any, sets: list[Path]) -> None:
    path = sets[0] / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"content": wrong}))
    with pytest.raises(FormatError, match="'content' must be 32 hex digits, or not be there. Found: "):
        PackedFiles(sets[0])


def test_opening_computes_nothing(sets: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastload.shard.contents.content_id", lambda *_: 1 / 0)
    assert PackedFiles(sets[0]).id == Manifest.read(sets[1]).content


def test_pieces_of_any_size_give_one_id(sets: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Manifest.read(sets[0])
    for size in (1, 2, 5, 1000):
        monkeypatch.setattr("fastload.shard.contents._CHUNK", size)
        assert content_id(wanted, sets[0]) == wanted.content


def test_info_says_it(sets: list[Path]) -> None:
    manifest = Manifest.read(sets[1])
    assert manifest.id != manifest.seal
    assert f"{manifest.id}" in run_cli("info", sets[1]).stdout


@pytest.mark.parametrize("name", ["index.fli", "field-02.fli"])
def test_files_that_cannot_be_read_are_named(name: str, tmp_path: Path) -> None:
    fastload.pack(rich_samples(4), tmp_path / "set", RICH, num_proc=1)
    manifest, path = Manifest.read(tmp_path / "set"), tmp_path / "set" / name
    path.write_bytes(path.read_bytes()[:4100])
    with pytest.raises(ShardTruncated, match=rf"{name} is too short\. Restore the file"):
        content_id(manifest, tmp_path / "set")
    path.unlink()
    with pytest.raises(ShardError, match=r"the tables of .*set cannot be read: No such file"):
        content_id(manifest, tmp_path / "set")
