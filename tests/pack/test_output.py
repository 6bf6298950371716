"""The output folder's states: what each kind of pack makes of what another has left there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from field_samples import SCHEMA, Samples
from pack_trees import class_tree

import fastload
from fastload.errors import PackError
from fastload.packing import PackOptions, pack
from fastload.packing.cut import PLAN_NAME
from fastload.packing.foreign import index_files
from fastload.packing.target import RUN_NAME, OutputFolder


def states(folder: Path) -> str:
    return OutputFolder(folder).state()


def test_the_states_of_a_folder(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path)
    assert output.state() == "empty"
    (tmp_path / ".tmp-left").touch()
    (tmp_path / ".fastload.lock").touch()
    assert output.state() == "empty"
    (tmp_path / "mine.txt").touch()
    assert output.state() == "foreign"
    assert "found 'mine.txt'" in str(output.refusal())
    output.work.mkdir()
    assert output.state() == "unfinished"
    (tmp_path / "dataset.json").write_text("{}")
    assert output.state() == "complete"


def test_a_pack_of_one_kind_refuses_an_unfinished_one_of_another(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source", 1, 3)
    [shards] = pack(source, tmp_path / "shards", PackOptions(num_proc=1))
    for name, what in ((PLAN_NAME, "files"), (RUN_NAME, "samples")):
        folder = tmp_path / what
        OutputFolder(folder).work.mkdir(parents=True)
        (OutputFolder(folder).work / name).write_text("{}")
        with pytest.raises(PackError, match=f"holds an unfinished pack of {what}"):
            index_files([shards.output / shards.manifest.shards[0].file], folder)
        with pytest.raises(
            PackError, match=f"holds an unfinished pack of {what}|cannot be used|other options"
        ):
            pack(source, folder, PackOptions(num_proc=1))
        with pytest.raises(PackError, match=f"holds an unfinished pack of {what}|other options"):
            fastload.pack(Samples(3), folder, SCHEMA)
        assert (OutputFolder(folder).work / name).exists()
        assert states(folder) == "unfinished"


@pytest.mark.parametrize("format_name", ["arrow", "lmdb"])
def test_restart_removes_what_a_pack_has_made_and_nothing_else(tmp_path: Path, format_name: str) -> None:
    fastload.pack(Samples(30), tmp_path / "set", SCHEMA, format=format_name, shard_size=20_000)
    (tmp_path / "set" / "notes.txt").write_text("mine")
    assert len(os.listdir(tmp_path / "set")) > 20
    OutputFolder(tmp_path / "set").discard()
    assert os.listdir(tmp_path / "set") == ["notes.txt"]


def test_names_that_were_announced_are_known(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path)
    output.work.mkdir()
    output.announce(["set-00000-of-00001.arrow"])
    for name in ("set-00000-of-00001.arrow", "field-00.fli", ".tmp-field-01.fli", "index.fli", "other.arrow"):
        (tmp_path / name).touch()
    output.discard()
    assert os.listdir(tmp_path) == ["other.arrow"]
