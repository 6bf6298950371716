"""Commands whose output goes nowhere: a closed or a full descriptor ends no work, and never in a
traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from pack_trees import class_tree, command, environment, snapshot
from process import HANG

from fastload.packing import PackOptions, pack

CLOSED = ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"]
FULL = ["1>/dev/full", "2>/dev/full", "1>/dev/full 2>/dev/full"]
VERBS = {
    "pack": "pack {source} {out}/set --shard-size 8kB --num-proc 1",
    "pack, two processes": "pack {source} {out}/set --shard-size 8kB --num-proc 2",
    "info": "info {set}",
    "info --json": "info {set} --json",
    "verify": "verify {set}",
    "unpack": "unpack {set} {out}/back",
    "plan": "plan {set}",
    "index": "index {set} --entries",
    "cache ls": "cache ls",
    "warm": "warm {set} --page-cache",
    "completion": "completion bash",
    "--version": "--version",
    "--help": "--help",
    "pack --help": "pack --help",
    "an error": "info {out}/nothing",
    "wrong usage": "info",
}
FAILS = {"an error": 1, "wrong usage": 2}
SILENT = ("wrong usage", "an error")  # on standard output
HELPS = ("--help", "pack --help")  # argparse's, which drops what it cannot write


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return class_tree(tmp_path_factory.mktemp("source"), classes=3, images=5)


@pytest.fixture(scope="module")
def whole(source: Path) -> Path:
    folder = source.parent / "whole" / "set"
    pack(source, folder, PackOptions(shard_size=8000, num_proc=1))
    return folder


def run(words: str, how: str, out: Path, source: Path, whole: Path) -> tuple[int, str]:
    """Exit code, and what it said on either output, by a shell that redirects them."""
    places = {"source": source, "set": whole, "out": out}
    line = shlex.join(command(*shlex.split(words.format(**places))))
    said, cache = out / "said", out / "cache"
    cache.mkdir(exist_ok=True)
    with open(said, "w") as file:
        done = subprocess.run(
            ["bash", "-c", f"exec {line} {how}"], stdout=file, stderr=file, stdin=subprocess.DEVNULL,
            env=environment(FASTLOAD_CACHE_DIR=str(cache)), timeout=HANG, check=False,
        )  # fmt: skip
    return done.returncode, said.read_text()


def cases() -> list[tuple[str, str]]:
    """Each verb in two ways, and the two that matter most in all; FASTLOAD_LONG: all in all."""
    ways = [*CLOSED, *FULL]
    found = [(verb, ways[(place + step) % 7]) for place, verb in enumerate(VERBS) for step in (0, 3)]
    whole = list(VERBS) if os.environ.get("FASTLOAD_LONG") else ["pack", "info"]
    return list(dict.fromkeys([*found, *((verb, how) for verb in whole for how in ways)]))


@pytest.mark.parametrize(("verb", "how"), cases())
def test_no_traceback_and_the_work_is_done(
    verb: str, how: str, tmp_path: Path, source: Path, whole: Path
) -> None:
    code, said = run(VERBS[verb], how, tmp_path, source, whole)
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    lost = "1>/dev/full" in how and verb not in (*SILENT, *HELPS)
    assert code == (1 if lost else FAILS.get(verb, 0)), said
    if lost and "2>" not in how:
        assert "its output cannot be written: No space left on device. The rest of its work is done." in said
    if verb.startswith("pack,") or verb == "pack":
        assert snapshot(tmp_path / "set") == snapshot(whole)
    if verb == "unpack":
        assert {path.name for path in (tmp_path / "back").rglob("*.*")} == {
            path.name for path in source.rglob("*.*")
        }


def test_what_libraries_write_to_standard_error_is_in_no_file(tmp_path: Path) -> None:
    """The next file that a process opens would have the number of a descriptor that was closed before."""
    code = (
        "import os\nfrom fastload.cli import main\n"
        "from fastload.cli import commands\n"
        "def run(argv):\n"
        f"    file = open({str(tmp_path / 'data')!r}, 'w')\n"
        "    os.write(2, b'a library says')\n"
        "    return 0 if file.fileno() > 2 else 3\n"
        "commands.run_command = run\n"
        "raise SystemExit(main())\n"
    )
    (tmp_path / "code.py").write_text(code)
    python = command()[0]
    done = subprocess.run(
        ["bash", "-c", f"exec {python} {tmp_path}/code.py 0<&- 1>&- 2>&-"], env=environment(), check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "data").read_bytes() == b""


def test_who_reads_the_head_only_ends_it(tmp_path: Path, source: Path, whole: Path) -> None:
    line = shlex.join(command("info", whole))
    script = f"set -o pipefail; {line} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment(), timeout=HANG, check=False
    )
    assert done.stdout.strip() in ("0", "1")  # it may have been read before its end
    assert done.stderr == ""


def test_the_function_says_nothing_where_nobody_hears(tmp_path: Path) -> None:
    """fastload.pack() in a process without a standard error."""
    code = (
        "import sys\nassert sys.stderr is None\nimport numpy as np\nimport fastload\n"
        "fastload.pack([{'image': np.zeros((4, 4, 3), np.uint8), 'n': 1}], sys.argv[1])\n"
    )
    (tmp_path / "code.py").write_text(code)
    python = command()[0]
    done = subprocess.run(
        ["bash", "-c", f"exec {python} {tmp_path}/code.py {tmp_path}/set 2>&-"],
        env={**os.environ, **environment()}, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "set" / "dataset.json").exists()
