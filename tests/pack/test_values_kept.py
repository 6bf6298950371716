"""A value that goes into a pack comes out of it: of every type of Parquet, Arrow, JSON and CSV, plain, null,
empty, extreme and nested, through batches and both kinds of tables that unpacking writes; or it is refused
in words that name the column, before anything is published.

Tables of random types are drawn besides: 20, in the long form (tests/reference/long_forms.py) 1,000.
"""

from __future__ import annotations

import base64
import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from field_samples import photo
from long_forms import SEED, as_drawn, how_many
from typed_values import REFUSED, TYPES, array_of, drawn_type, drawn_value, plain_of, same

import fastload
from fastload.errors import PackError
from fastload.packing import PackOptions, dry_run, pack
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.sample.fields import Scalar, is_missing
from fastload.shard.dataset import PackedFiles

OPTIONS = PackOptions(entries=None, num_proc=1)
DRAWN = how_many(20, 1000)
WAYS = ("plain", "null", "extreme", "extreme and null", "only null")


def values_of(way: str, plain: list[Any], extreme: list[Any]) -> list[Any]:
    """A column's values."""
    if way == "only null":
        return [None, None]
    return plain + (extreme if "extreme" in way else []) + ([None] if "null" in way else [])


def write(path: Path, columns: dict[str, Any]) -> Path:
    """Columns of one length, and a picture a row, as a file of the path's suffix."""
    count = len(next(iter(columns.values())))
    table = pa.table({"image": pa.array([photo(1)] * count, pa.binary()), **columns})
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return path


def rows_of_file(path: Path) -> Any:
    """The columns that the file has; of Parquet some are of other types than those that were written."""
    return parquet.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()


def batch_of(folder: Path) -> dict[str, list[Any]]:
    """All samples' values by field, as a loader gives them, in Python's types."""
    names = [name for name in PackedFiles(folder).schema.names if name != "image"]
    count = len(PackedFiles(folder))
    with fastload.DataLoader(folder, batch_size=count, fields=names, cache="off", num_workers=0) as loader:
        batch = next(iter(loader))
    found = {}
    for name in names:
        value = batch[name]
        if hasattr(value, "to_list"):
            value = [part.tolist() for part in value.to_list()]
        found[name] = value.tolist() if isinstance(value, torch.Tensor) else value
    return found


def in_a_batch(field: fastload.Field, value: Any) -> Any:
    """What a batch has for a value: a tensor of floats has NaN for null, and nothing else is another."""
    return float("nan") if value is None and isinstance(field.kind, Scalar) else value


def in_json(value: Any) -> Any:
    """What a table of JSON lines has for a value."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [in_json(part) for part in value] if isinstance(value, (list, tuple)) else value


def check(folder: Path, wanted: dict[str, list[Any]], options: PackOptions = OPTIONS) -> None:
    """The packed set ``folder/set`` has these columns: in batches, unpacked as JSONL and as Parquet, and
    packed again from either."""
    dataset = PackedFiles(folder / "set")
    batch = batch_of(folder / "set")
    for name, values in wanted.items():
        field = dataset.schema[name]
        assert same([in_a_batch(field, value) for value in values], batch[name]), (
            name,
            str(field),
            batch[name],
        )
    unpack(folder / "set", folder / "jsonl")
    lines = [json.loads(line) for line in (folder / "jsonl" / "samples.jsonl").read_text().splitlines()]
    for name, values in wanted.items():
        found = [line[name] for line in lines]
        assert same([in_json(value) for value in values], found), (name, str(dataset.schema[name]), found)
    unpack(folder / "set", folder / "parquet", table="parquet")
    table = parquet.read_table(folder / "parquet" / "samples.parquet")
    for name, values in wanted.items():
        found = plain_of(table[name])
        if pa.types.is_string(table[name].type) and dataset.schema[name].kind.name == "json":
            found = [None if text is None else json.loads(text) for text in found]
        assert same(values, found), (name, str(table[name].type), found)
    for kind in ("jsonl", "parquet"):
        again = folder / f"again-{kind}" / "set"
        pack(folder / kind / f"samples.{kind}", again, options)
        assert PackedFiles(again).id == dataset.id, kind
    assert verify(folder / "set") == ([], len(dataset))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("way", WAYS)
def test_every_type(tmp_path: Path, way: str, suffix: str) -> None:
    """All types beside each other, which are one pack; of those with fewer values the last is repeated."""
    columns = {}
    for name, (kind, plain, extreme) in TYPES.items():
        if pa.types.is_null(kind) or not (
            kind in (pa.binary(), pa.large_binary(), pa.binary(3)) and "null" in way
        ):
            values = values_of(way, plain, extreme)
            columns[name] = (kind, values)
    longest = max(len(values) for _, values in columns.values())
    made = {
        name: array_of(name, kind, values + values[-1:] * (longest - len(values)))
        for name, (kind, values) in columns.items()
    }
    path = write(tmp_path / f"table.{suffix}", made)
    [result] = pack(path, tmp_path / "set", OPTIONS)
    assert result.manifest.num_records == longest
    table = rows_of_file(path)
    check(tmp_path, {name: plain_of(table[name]) for name in made})


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_types_decide_the_kinds(tmp_path: Path, suffix: str) -> None:
    made = {name: array_of(name, kind, plain) for name, (kind, plain, _) in TYPES.items()}
    pack(write(tmp_path / f"table.{suffix}", made), tmp_path / "set", OPTIONS)
    schema = PackedFiles(tmp_path / "set").schema
    for name in ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))):
        assert schema[name].kind == Scalar(name)
    for name in ("float16", "float32", "float64"):
        assert schema[name].kind == Scalar(name)
    for name in ("micros_utc", "nanos_berlin", "duration", "time64"):
        assert schema[name].kind == Scalar("int64")
        assert schema[name].source == {"arrow": str(TYPES[name][0])}
    assert schema["date32"].kind == Scalar("int32")
    assert schema["decimal128"] == fastload.Field("decimal128", fastload.Text())
    assert schema["list_uint"].kind == fastload.Array("uint64", (None,))
    assert schema["list_fixed"].kind == fastload.Array("float64", (2,))
    assert "string" not in {field.source["arrow"] for field in schema if field.source}


def test_types_come_back(tmp_path: Path) -> None:
    """What Parquet keeps of the columns' types, unpacking writes."""
    made = {
        name: array_of(name, kind, values_of("null", plain, []))
        for name, (kind, plain, _) in TYPES.items()
        if not pa.types.is_binary(kind) and not pa.types.is_large_binary(kind) and name != "fixed_binary"
    }
    path = write(tmp_path / "table.parquet", made)
    pack(path, tmp_path / "set", OPTIONS)
    unpack(tmp_path / "set", tmp_path / "files", table="parquet")
    before = parquet.read_schema(path)
    after = parquet.read_schema(tmp_path / "files" / "samples.parquet")
    others = {"large_string", "dictionary"}  # texts all the same
    for name in made.keys() - others:
        wanted = pa.string() if pa.types.is_null(before.field(name).type) else before.field(name).type
        assert after.field(name).type == wanted, name
    for name in others:
        assert after.field(name).type == pa.string()


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_no_field_has_is_refused(tmp_path: Path, name: str) -> None:
    kind, values, words = REFUSED[name]
    path = write(tmp_path / "table.arrow", {"odd column": array_of(name, kind, values)})
    with pytest.raises(PackError, match=words) as caught:
        pack(path, tmp_path / "set", OPTIONS)
    assert "odd column" in str(caught.value)
    assert not (tmp_path / "set" / "dataset.json").exists()
    [result] = pack(path, tmp_path / "other", PackOptions(entries=None, fields=(("odd column", "none"),)))
    assert result.manifest.num_records == len(rows_of_file(path))


@pytest.mark.parametrize("number", range(DRAWN), ids=lambda number: as_drawn(f"table {number}"))
def test_random_types(tmp_path: Path, number: int) -> None:
    rng = random.Random(f"{SEED} {number}")
    count = rng.randint(1, 40)
    made = {}
    for column in range(rng.randint(1, 12)):
        kind, nulls = drawn_type(rng), rng.choice([0, 0, 0.2, 0.9])
        made[f"c{column}"] = array_of("", kind, [drawn_value(rng, kind, nulls) for _ in range(count)])
    path = write(tmp_path / f"table.{rng.choice(['parquet', 'arrow'])}", made)
    while words := refusal(path, tmp_path / "set"):
        # NaN in what must be JSON, and null among bytes: nothing else is refused, and the column is named.
        [name] = {name for name in re.findall(r"'(c\d+)'", words) if name in made}
        values = repr(plain_of(rows_of_file(path)[name]))
        if "have no place for" in words:
            assert re.search(r"\bNone\b", values)
        else:
            assert "also not json" in words or "must have finite numbers" in words
            assert re.search(r"\b(nan|inf)\b", values)
        del made[name]
        path = write(path, made or {"other": pa.array([1] * count)})
    table = rows_of_file(path)
    check(tmp_path, {name: plain_of(table[name]) for name in made})


def refusal(path: Path, output: Path) -> str:
    """What a pack says against a table; "": it packs it."""
    try:
        pack(path, output, PackOptions(entries=None, restart=True))
    except PackError as error:
        return str(error)
    return ""


def test_integers_that_no_float_has(tmp_path: Path) -> None:
    """Different ids stay different, whatever stands beside them."""
    ids = [2**63 + 1, 2**63 + 2, 5]
    made = {"u": pa.array(ids, pa.uint64()), "i": pa.array([2**60, 2**60 + 1, None], pa.int64())}
    pack(write(tmp_path / "t.parquet", made), tmp_path / "set", OPTIONS)
    batch = batch_of(tmp_path / "set")
    assert batch == {"u": ids, "i": [2**60, 2**60 + 1, None]}
    assert [type(one) for one in batch["i"]] == [int, int, type(None)]


def test_null_is_not_nan(tmp_path: Path, format_name: str) -> None:
    made = {
        name: pa.array([1.5, None, float("nan")], pa.type_for_alias(name))
        for name in ("float16", "float32", "float64")
    }
    made["text"] = pa.array(["", None, "\u00ff"])
    path = write(tmp_path / "t.parquet", made)
    options = PackOptions(entries=None, format=format_name)
    pack(path, tmp_path / "set", options)
    dataset = PackedFiles(tmp_path / "set")
    for name in ("float16", "float32", "float64"):
        assert [bool(is_missing(dataset.value(name, i))[0]) for i in range(3)] == [False, True, False]
        assert np.isnan(dataset.value(name, 1))
    assert [dataset.value("text", i) for i in range(3)] == ["", None, "\u00ff"]
    assert dataset.manifest.version == (1, 4)
    check(tmp_path, {name: plain_of(column) for name, column in made.items()}, options)
    with pytest.raises(PackError, match="'text' has empty texts and may have none.*CSV"):
        unpack(tmp_path / "set", tmp_path / "csv", table="csv")
    assert not (tmp_path / "csv").exists()


def test_stock_libraries_see_null(tmp_path: Path) -> None:
    made = {"text": pa.array(["", None, "b"]), "x": pa.array([0.5, None, float("nan")])}
    pack(write(tmp_path / "t.parquet", made), tmp_path / "arrow", OPTIONS)
    [shard] = (tmp_path / "arrow").glob("*.arrow")
    with pa.memory_map(str(shard)) as file:
        table = pa.ipc.open_stream(file).read_all()
    table.validate(full=True)
    assert same(table["text"].to_pylist(), ["", None, "b"])
    assert same(table["x"].to_pylist(), [0.5, None, float("nan")])


B = 2**53
REFUSAL = "refused: "
#: Values of a JSONL column, and the kind that it becomes, or why not.
JSON_COLUMNS: dict[str, tuple[list[Any], str]] = {
    "integers": ([1, -2], "scalar(int64)"),
    "edges": ([-(2**63), 2**63 - 1], "scalar(int64)"),
    "unsigned": ([5, 2**63 + 1, 2**64 - 1], "scalar(uint64)"),
    "integers and null": ([1, None], "json"),
    "ids and null": ([B + 1, B + 2, None], "json"),
    "both ends": ([-1, 2**63 + 1], REFUSAL + r"integers from -1 to 9223372036854775809.* in row 1, 2"),
    "beyond": ([1, 2**64], REFUSAL + r"the integer 18446744073709551616, beyond 64 bits.* in row 2\."),
    "mixed": ([1, 2.5], "scalar(float64)"),
    "mixed, inexact": ([0.5, B + 1], REFUSAL + r"fractions, and the integer 9007199254740993.* in row 2\."),
    "floats": ([0.1, 1e308, 5e-324, -0.0], "scalar(float64)"),
    "floats and null": ([0.5, None, float("nan")], "scalar(float64)"),
    "infinite": ([float("inf"), 1.0], "scalar(float64)"),
    "truths": ([True, False], "scalar(bool)"),
    "truths and null": ([True, None], "json"),
    "truths and numbers": ([True, 1, 0.5], "json"),
    "texts": (["a", "", "007"], "text"),
    "texts and null": (["a", None, ""], "text(null=True)"),
    "texts and numbers": (["1", 1], "json"),
    "lists": ([[1, 2], [3]], "array(int64, (None,))"),
    "lists and null": ([[1], None, []], "json"),
    "lists of fractions": ([[1, 2.5], [3]], "array(float64, (None,))"),
    "lists, inexact": ([[B + 1, 0.5], [1]], "json"),
    "lists, inexact apart": ([[B + 1], [0.5]], "json"),
    "unsigned lists": ([[2**63 + 5, 1], [2]], "array(uint64, (None,))"),
    "unsigned and negative": ([[2**63 + 5], [-1]], "json"),
    "lists beyond": ([[2**64], [1]], "json"),
    "lists of truths": ([[True, False], [True]], "array(bool, (None,))"),
    "truths in lists": ([[True, 2], [1]], "json"),
    "truths apart": ([[True], [1]], "json"),
    "holes": ([[1, None], [2]], "json"),
    "empty lists": ([[], []], "array(float32, (None,))"),
    "nested": ([[[1, 2], [3, 4]], [[5, 6]]], "array(int64, (None, 2))"),
    "uneven": ([[[1], [2, 3]]], "json"),
    "hollow": ([[[], []], [[1.0], [2.0]]], "json"),
    "objects": ([{"a": 1, "b": [None, 2**70]}, {"c": {"d": ""}}, None], "json"),
    "only null": ([None, None], "json"),
    "NaN within": ([{"a": float("nan")}], REFUSAL + r"also not json.* in row 1\."),
}  # fmt: skip


@pytest.mark.parametrize("name", list(JSON_COLUMNS))
def test_json(tmp_path: Path, name: str) -> None:
    values, wanted = JSON_COLUMNS[name]
    (tmp_path / "i.jpg").write_bytes(photo(1))
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"image": "i.jpg", "x": value}) + "\n" for value in values))
    if wanted.startswith(REFUSAL):
        with pytest.raises(PackError, match=rf"t\.jsonl: the column 'x' .*{wanted.removeprefix(REFUSAL)}"):
            pack(path, tmp_path / "set", OPTIONS)
        assert not (tmp_path / "set").exists()
        return
    pack(path, tmp_path / "set", OPTIONS)
    field = PackedFiles(tmp_path / "set").schema["x"]
    assert str(field) == f"x={wanted}"
    # A column of numbers has one type, by which 1 beside 0.5 is 1.0, and no other value changes.
    floats = "float" in wanted
    check(tmp_path, {"x": [_as_floats(value) if floats else value for value in values]})


def _as_floats(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_floats(part) for part in value]
    return float(value) if isinstance(value, int) else value


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400", '{"a": [1e400]}'])
def test_json_beyond_floats(tmp_path: Path, text: str) -> None:
    (tmp_path / "i.jpg").write_bytes(photo(1))
    (tmp_path / "t.jsonl").write_text(f'{{"image": "i.jpg", "x": 1}}\n{{"image": "i.jpg", "x": {text}}}\n')
    with pytest.raises(PackError, match=r"record 2: -?1e-?400 is beyond float64"):
        pack(tmp_path / "t.jsonl", tmp_path / "set", OPTIONS)


#: Texts of a CSV column, the kind that it becomes, and what a batch has of it.
NAN = float("nan")
CSV_COLUMNS: dict[str, tuple[list[str], str, list[Any]]] = {
    "integers": (["1", "-2", "+3"], "scalar(int64)", [1, -2, 3]),
    "gaps": (["1", "", "3"], "scalar(float64)", [1.0, NAN, 3.0]),
    "ids and gaps": ([str(B + 1), "", str(B + 2)], "text", [str(B + 1), "", str(B + 2)]),
    "unsigned": ([str(2**63 + 1), "5"], "scalar(uint64)", [2**63 + 1, 5]),
    "both ends": ([str(2**63 + 1), "-5"], "text", [str(2**63 + 1), "-5"]),
    "beyond": ([str(2**64), "1"], "text", [str(2**64), "1"]),
    "endless": (["1" * 5000, "1"], "text", ["1" * 5000, "1"]),
    "mixed": (["1", "2.5"], "scalar(float64)", [1.0, 2.5]),
    "mixed, inexact": ([str(B + 1), "0.5"], "text", [str(B + 1), "0.5"]),
    "inexact, with a point": ([f"{B + 1}.0", "1.0"], "text", [f"{B + 1}.0", "1.0"]),
    "floats": (["0.1", "1e308", "-0.0", "1e5"], "scalar(float64)", [0.1, 1e308, -0.0, 1e5]),
    "a negative zero": (["-0", "1"], "scalar(float64)", [-0.0, 1.0]),
    "too large": (["1e400", "1"], "text", ["1e400", "1"]),
    "too small": (["1e-400", "1"], "text", ["1e-400", "1"]),
    "no numbers": (["nan", "-inf"], "scalar(float64)", [NAN, float("-inf")]),
    "zeros": (["007", "7"], "text", ["007", "7"]),
    "other digits": (["٣", "1"], "text", ["٣", "1"]),
    "spaces": ([" 5", "6"], "text", [" 5", "6"]),
    "truths": (["true", "False"], "scalar(bool)", [True, False]),
    "truths and gaps": (["true", ""], "json", [True, None]),
    "truths and numbers": (["true", "1"], "text", ["true", "1"]),
    "texts": (["a", "", " b ", "NULL", 'q"\n'], "text", ["a", "", " b ", "NULL", 'q"\n']),
    "lists": (["[1, 2]", "[3]"], "array(int64, (None,))", [[1, 2], [3]]),
    "lists and gaps": (["[1]", ""], "json", [[1], None]),
    "lists and numbers": (["[1]", "5"], "text", ["[1]", "5"]),
    "objects": (['{"a": 1}', "[]"], "json", [{"a": 1}, []]),
    "almost lists": (["[1", "2]"], "text", ["[1", "2]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CSV_COLUMNS))
def test_csv(tmp_path: Path, name: str) -> None:
    texts, kind, wanted = CSV_COLUMNS[name]
    (tmp_path / "i.jpg").write_bytes(photo(1))
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", "x"], *(["i.jpg", text] for text in texts)])
    pack(tmp_path / "t.csv", tmp_path / "set", OPTIONS)
    dataset = PackedFiles(tmp_path / "set")
    assert str(dataset.schema["x"]) == f"x={kind}"
    assert same(batch_of(tmp_path / "set")["x"], wanted)
    unpack(tmp_path / "set", tmp_path / "files", table="csv")
    pack(tmp_path / "files" / "samples.csv", tmp_path / "again" / "set", OPTIONS)
    assert PackedFiles(tmp_path / "again" / "set").id == dataset.id


def test_kinds_that_are_said_refuse_null(tmp_path: Path) -> None:
    """In words with the field and the row; what may be null keeps it."""
    (tmp_path / "i.jpg").write_bytes(photo(1))
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"image": "i.jpg", "x": value}) + "\n" for value in (1, None)))
    for kind, words in (
        ("int64", "int64 cannot say so: float64 has NaN, json None"),
        ("array(int64, (None,))", "it is null, and an array has no null: json keeps it"),
        ("bytes", "it is null, which bytes have no place for"),
    ):
        with pytest.raises(PackError, match=rf"field 'x', row 2: .*{words}"):
            pack(path, tmp_path / "set", PackOptions(fields=(("x", kind),), restart=True))
    path.write_text(path.read_text().replace("1}", '"a"}'))
    with pytest.raises(PackError, match=r"row 2: it is null; text\(null=True\) keeps that"):
        pack(path, tmp_path / "set", PackOptions(fields=(("x", "text"),), restart=True))
    pack(path, tmp_path / "set", PackOptions(fields=(("x", "text(null=True)"),), restart=True))
    assert batch_of(tmp_path / "set")["x"] == ["a", None]


def test_samples_of_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [
        {"image": photo(i), "u": np.uint64(2**63 + i), "i": [2**63 + 1, 5, 7][i], "t": ["a", None, ""][i],
         "n": [1, None, 3][i], "f": np.float32(i), "l": [[2**63 + 1, 5], [1], []][i]}
        for i in range(3)
    ]  # fmt: skip
    fastload.pack(samples, tmp_path / "set", entries=None)
    schema = PackedFiles(tmp_path / "set").schema
    assert [str(field).partition("=")[2] for field in schema] == [
        "image", "scalar(uint64)", "scalar(uint64)", "text(null=True)", "json", "scalar(float32)",
        "array(uint64, (None,))",
    ]  # fmt: skip
    check(tmp_path, {name: [_plain(sample[name]) for sample in samples] for name in "uitnfl"})
    assert "schema, guessed from 3 samples" in capsys.readouterr().err
    with pytest.raises(
        PackError, match=r"00000001: Field 't' must be a str. Found: None, which text\(null=True\)"
    ):
        fastload.pack(samples, tmp_path / "no", {"image": "image", "t": "text"})
    with pytest.raises(PackError, match="no type of numbers has both"):
        fastload.pack([{"image": photo(1), "x": x} for x in (0.5, B + 1)], tmp_path / "no")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def test_what_became_of_columns_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = {
        "taken": pa.array([0, None], pa.int64()).cast(pa.timestamp("s")),
        "price": array_of("", pa.decimal128(10, 2), [TYPES["decimal128"][1][0]] * 2),
        "score": pa.array([None, 0.5]),
        "text": pa.array(["a", None]),
        "plain": pa.array([1, 2]),
    }
    path = write(tmp_path / "t.arrow", made)
    wanted = (
        "taken: timestamp[s] as json; null in 1 row (the first: row 2): None (json)",
        "price: decimal128(10, 2) as text",
        "score: null in 1 row (the first: row 1): NaN",
        "text: null in 1 row (the first: row 2): None (text)",
    )
    [planned] = dry_run(path, tmp_path / "set", OPTIONS)
    [result] = pack(path, tmp_path / "set", OPTIONS)
    assert planned.notes == result.notes == wanted
    fastload.pack(path, tmp_path / "python", entries=None)
    said = capsys.readouterr().err
    assert all(note in said for note in wanted)
    assert "schema, found in the source: image=image, taken=json" in said


def test_an_index_keeps_null(tmp_path: Path) -> None:
    made = {"text": pa.array(["a", None, ""]), "n": pa.array([1, None, 2**60 + 1], pa.int64())}
    from fastload.packing.foreign import IndexOptions, index_files

    options = IndexOptions(entries=None, fields=(("image", "image"),))
    index_files([write(tmp_path / "t.arrow", made)], tmp_path / "set", options)
    assert batch_of(tmp_path / "set") == {"text": ["a", None, ""], "n": [1, None, 2**60 + 1]}


def test_tokenisers_get_no_null(tmp_path: Path) -> None:
    """As of a sample without captions: the text is empty."""
    made = {"text": pa.array(["a", None, "c"])}
    pack(write(tmp_path / "t.parquet", made), tmp_path / "set", OPTIONS)
    seen: list[str] = []
    text = {"text": lambda texts: seen.extend(texts) or torch.zeros(len(texts), 1)}
    transform = fastload.transforms.Resize((8, 8))
    with fastload.DataLoader(tmp_path / "set", 3, text=text, transform=transform, cache="off") as loader:
        next(iter(loader))
    assert {*seen[:3]} == {*seen} == {"a", "", "c"}  # of the batches ahead, too
