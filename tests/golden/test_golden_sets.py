"""Every version reads the sets of every earlier one; FORMAT.md promises it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from golden_sets import GOLDEN, SETS, command, facts_of, files_of, libraries, make, restore, texts_as_bytes
from pack_fixtures import tmp_path, unsynced

import fastload
from fastload.shard.contents import content_id
from fastload.shard.manifest import Manifest

__all__ = ["tmp_path", "unsynced"]

KEPT = [(path.parent.name, path.stem) for path in sorted(GOLDEN.glob("*/*.json"))]


def kept(version: str, name: str) -> dict[str, Any]:
    """A set as it is kept: libraries, facts and files."""
    body: dict[str, Any] = json.loads((GOLDEN / version / f"{name}.json").read_text(encoding="utf-8"))
    return body


def test_all_sets_of_the_first_version_are_kept() -> None:
    assert {name for version, name in KEPT if version == "0.1.0"} == {
        "arrow", "fast", "fields", "hdf5", "lmdb", "masks", "raw", "recoded", "small", "tar",
    }  # fmt: skip
    assert sum(path.stat().st_size for path in GOLDEN.glob("0.1.0/*")) < 100_000


@pytest.mark.parametrize(("version", "name"), KEPT)
def test_a_kept_set_is_read(version: str, name: str, tmp_path: Path) -> None:
    body = kept(version, name)
    folder = restore(body["files"], tmp_path / name)
    assert facts_of(folder) == body["facts"]
    command("verify", folder, "--decode")


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_made_as_it_was(name: str, tmp_path: Path) -> None:
    """What is read of it whatever libraries write the shards; every byte where they are the same."""
    body = kept(KEPT[-1][0], name)
    folder = make(name, tmp_path)
    assert facts_of(folder) == body["facts"]
    if (libraries(), KEPT[-1][0]) != (body["libraries"], fastload.__version__):
        pytest.skip("the files are those of other versions")
    found, wanted = files_of(folder), texts_as_bytes(body["files"])
    assert found.keys() == wanted.keys()
    assert {file for file in found if found[file] != wanted[file]} == {"dataset.json"}
    said, was = (json.loads(files["dataset.json"]) for files in (found, wanted))
    old = restore(body["files"], tmp_path / "old" / name)
    assert said.pop("content") == content_id(Manifest.read(old), old)  # the first version had none
    ids, before = said.pop("same_as", []), was.pop("same_as", [])
    assert [one for one in ids if one in before] == before  # content ids besides
    assert said == was or name == "tar"  # the folder's path


def test_the_versions_of_the_format_are_there(tmp_path: Path) -> None:
    """Each minor version that this one writes."""
    found = set()
    for name in SETS:
        folder = restore(kept("0.1.0", name)["files"], tmp_path / name)
        found.add(tuple(json.loads((folder / "dataset.json").read_bytes())["fastload"]))
    assert found == {(1, 0), (1, 1), (1, 2), (1, 3)}
