"""The command line: exit codes, JSON, messages without traceback, and what it imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pack_trees import class_tree, encoded, environment, make_tree, run_cli, snapshot

from fastload.cli import main
from fastload.errors import PackError
from fastload.packing.options import parse_bytes, parse_pixels

HEAVY = ("torch", "pyarrow", "h5py", "lmdb", "PIL", "datasets", "pandas")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return class_tree(tmp_path / "source")


def test_everything_in_a_row(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "set"
    assert main(["pack", str(source), str(packed), "--shard-size", "20kB", "--num-proc", "1"]) == 0
    text = capsys.readouterr()
    for expected in ("records", "48 in 4 classes", "jpeg 24, png 12, webp 12", "min / median / max"):
        assert expected in text.out
    assert "packing 48 files" in text.err
    assert main(["info", str(packed)]) == 0
    assert "class 0, class 1, class 2, class 3" in capsys.readouterr().out
    assert main(["verify", str(packed), "--decode"]) == 0
    assert "48 records are intact" in capsys.readouterr().out
    assert main(["unpack", str(packed), str(tmp_path / "back")]) == 0
    assert snapshot(tmp_path / "back") == snapshot(source)
    assert main(["index", str(packed), "--output", str(tmp_path / "index")]) == 0
    assert "48 in 4 classes" in capsys.readouterr().out
    assert main(["pack", str(source), str(packed), "--shard-size", "20kB"]) == 0
    assert "was already complete" in capsys.readouterr().out


def test_one_is_not_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_tree(tmp_path / "source", 1, 1)
    packed = tmp_path / "set"
    said = ""
    for words in (
        ("pack", tmp_path / "source", packed, "--dry-run"),
        ("pack", tmp_path / "source", packed),
        ("index", packed, "--output", tmp_path / "index"),
        ("verify", packed),
        ("unpack", packed, tmp_path / "back"),
        ("plan", packed, "--shuffle", "block", "--block", 1, "--window", 1),
    ):
        assert main([*map(str, words)]) == 0
        captured = capsys.readouterr()
        said += captured.err + captured.out
    for expected in (
        "packing 1 file,", "into 1 shard of", "entry points of 1 record of", "1 in 1 class\n",
        " in 1 arrow shard\n", " in 1 arrow file\n", "1 record (100.0%)", "1 record is intact",
        "1 file in", "blocks of 1 record (",
    ):  # fmt: skip
        assert expected in said, said


def test_json(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object, code: int = 0) -> dict[str, object]:
        assert main([*map(str, arguments), "--json"]) == code
        captured = capsys.readouterr()
        assert captured.err == ""
        return dict(json.loads(captured.out))

    make_tree(source, {"class 1/zz.jpg": b"no image"})
    packed = tmp_path / "set"
    [planned] = run("pack", source, packed, "--dry-run")["dry_run"]  # type: ignore[misc]
    assert (planned["records"], planned["shards"]) == (49, 1)
    assert not packed.exists()
    [done] = run("pack", source, packed, "--num-proc", 1, "--on-error", "skip")["datasets"]  # type: ignore[misc]
    assert (done["records"], done["skipped"], done["was_complete"]) == (48, 1, False)
    assert list(done["skip_reasons"].values()) == [1]
    info = run("info", packed)
    assert (info["id"], info["records"], info["skipped"]) == (done["id"], 48, 1)
    assert run("verify", packed) == {"ok": True, "records": 48, "found": 0, "problems": []}
    assert run("unpack", packed, tmp_path / "back")["files"] == 48
    assert run("index", packed, "--output", tmp_path / "index")["records"] == 48
    shard = packed / "set-00000-of-00001.arrow"
    shard.write_bytes(shard.read_bytes()[:-9000])
    bad = run("verify", packed, code=1)
    assert bad["ok"] is False
    assert bad["problems"]


def test_skipped_files_are_in_the_table(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tree(source, {f"class 1/z{i}.jpg": b"" for i in range(3)})
    assert main(["pack", str(source), str(tmp_path / "set"), "--on-error", "skip", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert "3 x empty file" in captured.out
    assert captured.err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "usage"),
        (["fly"], 2, "invalid choice"),
        (["pack", "{source}"], 2, "OUTPUT"),
        (["pack", "{source}", "{out}", "--format", "zip"], 2, "invalid choice"),
        (["pack", "{source}", "{out}", "--shard-size", "many"], 1, "'many' is not a size"),
        (["pack", "{source}", "{out}", "--size", "3"], 1, "size needs raw"),
        (["pack", "{out}", "{out}"], 1, "does not exist"),
        (["info", "{source}"], 1, "not a packed dataset"),
        (["verify", "{out}"], 1, "not a packed dataset"),
        (["unpack", "{out}", "{out}"], 1, "not a packed dataset"),
        (["index", "{source}", "--output", "{out}"], 1, "holds no .arrow"),
        (["index", "{source}", "--output", "{out}"], 1, "OUTPUT' packs pictures"),
    ],
)
def test_errors_are_one_message(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    names = {"source": source, "out": tmp_path / "out"}
    assert main([argument.format(**names) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version(option: str) -> None:
    done = run_cli(option)
    assert done.returncode == 0
    assert "fastload" in done.stdout


def test_module_and_bad_file_exit_code(source: Path, tmp_path: Path) -> None:
    make_tree(source, {"class 0/zz.jpg": b"text"})
    done = run_cli("pack", source, tmp_path / "out")
    assert done.returncode == 1
    assert "class 0/zz.jpg: not an image" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("format_name", "library"), [("arrow", "pyarrow"), ("lmdb", "lmdb"), ("hdf5", "h5py")]
)
def test_only_the_formats_library_is_imported(
    source: Path, tmp_path: Path, format_name: str, library: str
) -> None:
    program = (
        "import sys; from fastload.cli import main\n"
        f"code = main(['pack', {str(source)!r}, {str(tmp_path / 'out')!r}, '--format', {format_name!r}, "
        "'--num-proc', '1', '--quiet', '--json'])\n"
        f"sys.stderr.write(' '.join(name for name in {HEAVY!r} if name in sys.modules))\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=False
    )
    assert (done.returncode, done.stderr) == (0, library)


@pytest.mark.parametrize("verb", ["info", "verify", "unpack"])
def test_reading_needs_no_formats_library(source: Path, tmp_path: Path, verb: str) -> None:
    assert main(["pack", str(source), str(tmp_path / "set"), "--quiet", "--json"]) == 0
    extra = [str(tmp_path / "back")] if verb == "unpack" else []
    program = (
        "import sys; from fastload.cli import main\n"
        f"code = main([{verb!r}, {str(tmp_path / 'set')!r}, *{extra!r}, '--json'])\n"
        f"sys.stderr.write(' '.join(name for name in {HEAVY!r} if name in sys.modules))\n"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MB", 256_000_000), ("1GiB", 1 << 30), ("1.5k", 1500), ("4096", 4096), ("7 mib", 7 << 20),
        ("2T", 2 * 10**12), ("1G", 10**9), ("1Gi", 1 << 30), ("10B", 10), ("0.5GB", 500_000_000),
    ],
)  # fmt: skip
def test_human_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1XB", "1 2MB", "1e9", "iB", "1iB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(PackError, match="is not a size"):
        parse_bytes(text)


def test_pixels() -> None:
    assert parse_pixels("28x20") == (28, 20)
    assert parse_pixels(" 64 ") == (64, 64)
    for text in ("0x4", "70000", "x", "4x", "4x4x3", "a"):
        with pytest.raises(PackError, match=r"picture size|out of range"):
            parse_pixels(text)


def test_names_that_are_no_text_can_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bytes(tmp_path) + b"/s/c\xff"
    import os

    os.makedirs(folder)
    with open(folder + b"/\xfe.jpg", "wb") as file:
        file.write(encoded(0))
    with open(folder + b"/\xfd.jpg", "wb") as file:
        file.write(b"bad")
    assert main(["pack", str(tmp_path / "s"), str(tmp_path / "o"), "--quiet"]) == 1
    assert "c%FF/%FD.jpg: not an image" in capsys.readouterr().err
    assert main(["pack", str(tmp_path / "s"), str(tmp_path / "o"), "--quiet", "--on-error", "skip"]) == 0
    assert main(["info", str(tmp_path / "o")]) == 0
    assert "c%FF" in capsys.readouterr().out
