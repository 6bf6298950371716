"""LeRobot sets that contradict themselves: found when they are opened, and said in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from lerobot_sets import TASKS, TOP, changed, packed

import fastload
from fastload.errors import PackError

VERSIONS = ("v2.1", "v3.0")


def test_a_set_that_contradicts_itself(tmp_path: Path) -> None:
    def refused(words: str, version: str = "v3.0", **info: Any) -> None:
        root = changed(tmp_path, version=version)
        path = root / "meta" / "info.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **info}))
        with pytest.raises(PackError, match=words):
            fastload.pack(root, tmp_path / "out")

    refused(r"says total_episodes 3, and the episodes that meta/ lists make 2\.", total_episodes=3)
    refused(r"says total_frames 11, and the episodes that meta/ lists make 10\.", "v2.1", total_frames=11)
    refused(r"says version 'v1\.6' of LeRobot's layout, must be v2\.1 or v3\.0\.", codebase_version="v1.6")
    refused(r"names the file '\.\./x\.mp4', which leads out of the set's folder", video_path="../x.mp4")
    refused(r"data_path or video_path cannot be used \(KeyError: 'chunk'\)", data_path="data/{chunk}.parquet")
    refused(r"\(AttributeError: 'int' object has no attribute 'foo'\)", data_path="{chunk_index.foo}")
    refused(r"info\.json: fps is 0, must be a number above 0", fps=0)
    refused(r"info\.json: fps is None, must be a number above 0", fps=None)
    refused(r"info\.json: video_path is None, must be a text", video_path=None)
    refused(r"info\.json: chunks_size is 'x', must be an integer of 1", "v2.1", chunks_size="x")
    refused(r"has the feature 'lost', and the Parquet files do not: their columns are action, ", features={
        "lost": {"dtype": "float32", "shape": [1]}})  # fmt: skip


def test_wrong_counts(tmp_path: Path) -> None:
    root = changed(tmp_path, version="v2.1")
    episodes = root / "meta" / "episodes.jsonl"
    episodes.write_text(episodes.read_text().replace('"length": 4', '"length": 5').replace(": 6", ": 5"))
    with pytest.raises(
        PackError, match=r"episode_000000\.parquet has 4 rows, and meta/ says that episode 0 in it has 5"
    ):
        fastload.pack(root, tmp_path / "out")
    root = changed(tmp_path)
    [path] = (root / "meta" / "episodes").rglob("*.parquet")
    table = parquet.read_table(path)
    wrong = table.set_column(table.schema.get_field_index("length"), "length", pa.array([5, 5]))
    parquet.write_table(wrong, path)
    with pytest.raises(
        PackError,
        match=r"file-000\.parquet: episode 0, row 4 of it: the row says episode_index 1, and meta/",
    ):
        fastload.pack(root, tmp_path / "out")


def test_a_task_without_a_text(tmp_path: Path) -> None:
    root = changed(tmp_path, version="v2.1")
    tasks = root / "meta" / "tasks.jsonl"
    tasks.write_text(tasks.read_text().splitlines()[0] + "\n")
    with pytest.raises(
        PackError,
        match=r"episode 1, frame 0: field 'task': task_index is 1, and the numbers "
        r"that \S+/meta/tasks\.jsonl has texts for are 0 to 0\. Complete that file, .*--field task=none",
    ):
        fastload.pack(root, tmp_path / "out")
    assert TASKS[1] not in tasks.read_text()


def with_column(root: Path, name: str, change: Callable[[list[Any]], pa.Array]) -> None:
    """Change a column, or add one, of the only Parquet file."""
    [path] = (root / "data").glob("*/*.parquet")
    table = parquet.read_table(path)
    old = table[name].to_pylist() if name in table.column_names else [*range(len(table))]
    table = table.drop_columns([name]) if name in table.column_names else table
    parquet.write_table(table.append_column(name, change(old)), path)


def with_episodes(root: Path, change: Callable[[int, dict[str, Any]], Mapping[str, Any]]) -> None:
    """Change the rows of the table of episodes."""
    [path] = (root / "meta" / "episodes").rglob("*.parquet")
    rows = parquet.read_table(path).to_pylist()
    parquet.write_table(pa.Table.from_pylist([row | change(i, row) for i, row in enumerate(rows)]), path)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    ("name", "at", "value", "words"),
    [
        ("frame_index", 5, 0, r"episode 1, row 1 of it: frame_index is 0 after 0; it must increase"),
        ("frame_index", 3, None, r"episode 0, row 3 of it: frame_index is nan after 2; it must"),
        ("timestamp", 6, 0.05, r"episode 1, row 2 of it: timestamp is 0\.05 after 0\.1; it must"),
        ("timestamp", 4, float("nan"), r"episode 1, row 0 of it: timestamp is nan; it must"),
        (
            "episode_index",
            9,
            0,
            r"episode 1, row 5 of it: the row says episode_index 0, and meta/ that it is of",
        ),
    ],
)
def test_rows_out_of_order_are_found_before_it_begins(
    tmp_path: Path, name: str, at: int, value: Any, words: str, on_error: str
) -> None:
    root = changed(tmp_path)
    kind = pa.float32() if name == "timestamp" else pa.int64()
    with_column(root, name, lambda old: pa.array([*old[:at], value, *old[at + 1 :]], kind))
    with pytest.raises(PackError, match=rf"data/chunk-000/file-000\.parquet: {words}"):
        fastload.pack(root, tmp_path / "out", on_error=on_error, dry_run=True)


def test_times_without_order_are_no_matter_without_runs(tmp_path: Path) -> None:
    root = changed(tmp_path, sizes={})
    with_column(root, "timestamp", lambda old: pa.array([0.0] * len(old), pa.float32()))
    with pytest.raises(PackError, match=r"timestamp is 0 after 0; .* --runs none"):
        fastload.pack(root, tmp_path / "out")
    assert len(packed(root, tmp_path / "out", runs="none")) == 10
    root = changed(tmp_path)
    with_column(root, "timestamp", lambda old: pa.array([float("inf"), *old[1:]], pa.float32()))
    with pytest.raises(PackError, match=r"row 0 of it: timestamp is inf, must be seconds"):
        fastload.pack(root, tmp_path / "of videos", runs="none")


@pytest.mark.parametrize("name", ["episode_index", "frame_index", "timestamp", "task_index"])
def test_columns_of_lists_where_numbers_must_be(tmp_path: Path, name: str) -> None:
    root = changed(tmp_path)
    with_column(root, name, lambda old: pa.array([[value] for value in old]))
    with pytest.raises(
        PackError, match=rf"file-000\.parquet: the column '{name}' is of type list<.*must be one"
    ):
        fastload.pack(root, tmp_path / "out")


BEGIN, END = (f"videos/{TOP}/{name}_timestamp" for name in ("from", "to"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda i, row: {BEGIN: 0.0}, r"episode 0 is from 0\.0+ to 0\.4\d* s .*, and episode 1 begins"),
        (lambda i, row: {BEGIN: row[BEGIN] - 0.21 * i}, r"and episode 1 begins there at 0\.19\d* s, before"),
        (lambda i, row: {END: row[END] - 0.21 * i}, r"episode 1 is from 0\.4\d* to 0\.79\d* .*is 0\.5"),
        (lambda i, row: {BEGIN: float("nan")}, r"episode 0: from_timestamp of '\S+' is nan, must be seconds"),
        (lambda i, row: {BEGIN: -1.0}, r"episode 0: from_timestamp of '\S+top' is -1\.0, must be seconds"),
        (lambda i, row: {"length": str(row["length"])}, r"episode 0: length is '4', must be an integer"),
        (lambda i, row: {"episode_index": i + 0.5}, r"episode_index is 0\.5, must be an integer"),
    ],
)  # fmt: skip
def test_episodes_that_contradict_each_other(
    tmp_path: Path, change: Callable[[int, dict[str, Any]], Mapping[str, Any]], words: str
) -> None:
    root = changed(tmp_path)
    with_episodes(root, change)
    with pytest.raises(PackError, match=words):
        fastload.pack(root, tmp_path / "out", on_error="skip")


def test_writers_round_by_a_frame(tmp_path: Path) -> None:
    """Ends that are a frame off, or missing, or too late at the end of a file, are no matter."""
    root = changed(tmp_path)
    with_episodes(root, lambda i, row: {END: row[END] + (0.09, -0.09)[i]})
    assert len(packed(root, tmp_path / "rounded")) == 10
    with_episodes(root, lambda i, row: {END: row[END] + 3 * i})
    assert len(packed(root, tmp_path / "long")) == 10
    [path] = (root / "meta" / "episodes").rglob("*.parquet")
    parquet.write_table(parquet.read_table(path).drop_columns([END]), path)
    assert len(packed(root, tmp_path / "without")) == 10
    with_episodes(root, lambda i, row: {BEGIN: 0.0})
    with pytest.raises(PackError, match=r"and episode 1 begins there at 0\.0+ s, before that ends"):
        fastload.pack(root, tmp_path / "over")


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("valid", None, r"the column 'valid': A field's name must not be 'valid'.* --field valid=none \("),
        ("a/b", None, r"the column 'a/b': A field's name must be .*--field a/b=none \("),
        ("none", [0], r"the feature 'none' has the shape \[0\]: .*--field none=none \("),
    ],
)
def test_a_column_that_cannot_be_a_field(
    tmp_path: Path, name: str, shape: list[int] | None, words: str
) -> None:
    root = changed(tmp_path, sizes={})
    values = pa.list_(pa.float32())
    with_column(root, name, lambda old: pa.array(old) if shape is None else pa.array([[]] * 10, values))
    if shape is not None:
        path = root / "meta" / "info.json"
        info = json.loads(path.read_text())
        info["features"][name] = {"dtype": "float32", "shape": shape, "names": None}
        path.write_text(json.dumps(info))
    with pytest.raises(PackError, match=words):
        fastload.pack(root, tmp_path / "out")
    assert name not in packed(root, tmp_path / "out", fields={name: "none"}).schema.names


@pytest.mark.parametrize("version", VERSIONS)
def test_the_file_of_the_texts_must_be_there(tmp_path: Path, version: str) -> None:
    root = changed(tmp_path, version=version)
    [path] = (root / "meta").glob("tasks.*")
    for number, damage in enumerate((b"xx", None)):
        path.unlink() if damage is None else path.write_bytes(damage)
        words = (
            "is not there: it has the texts of task_index" if damage is None else r"(cannot be read|line 1)"
        )
        with pytest.raises(PackError, match=rf"meta/{path.name},? {words}"):
            fastload.pack(root, tmp_path / f"out {number}")
    assert "task" not in packed(root, tmp_path / "without", fields={"task": "none"}).schema.names
    without = packed(root, tmp_path / "neither", fields={"task_index": "none"})
    assert not {"task", "task_index"} & {*without.schema.names}
