"""What strangers have named does nothing to a terminal: names of classes, files, columns and keys, and a
server's words, in everything that commands print and in the texts of errors, warnings and verdicts."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_server import Fault, FaultServer, Rule
from pack_trees import command, environment
from pictures import encoded, picture
from plain_pack import plain_pack

import fastload
from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.cli import main
from fastload.cli.streams import Stream
from fastload.dataset import packed as pictures
from fastload.errors import FastloadError, RemoteError, harmless
from fastload.machine.messages import say
from fastload.remote.opening import open_store

TITLE = "\x1b]0;owned\x07"
EVIL = {
    "title": f"a{TITLE}b",
    "clipboard": "a\x1b]52;c;cm0gLXJm\x1b\\b",
    "colour": "a\x1b[31mb",
    "eight bits": "a\x9b31m\x9d0;owned\x9cb",
    "back": "a\b\b\rb\x7f",
    "turned": "a\u202egpj.exe\u2066b",
    "device": "a\x1b[6n\x1bP$q\x1b\\b",
}
OBEYED = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def obeyed(text: str) -> list[str]:
    return OBEYED.findall(text)


def test_what_is_harmless() -> None:
    for name in EVIL.values():
        assert obeyed(name)
        assert not obeyed(harmless(name))
        assert harmless(name)[0] + harmless(name)[-1] in ("ab", "af")
    same = "Äpfel, 苹果, \U0001f34e\nand\ttabs \\x1b"
    assert harmless(same) == same
    assert harmless("\x1b\x9b\u202e\ud800") == "\\x1b\\x9b\\u202e\\ud800"
    "".join(map(harmless, map(chr, range(0x110000)))).encode()  # all that is left can be written


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in class folders with such names, one of them no picture."""
    place = tmp_path_factory.mktemp("evil") / "source"
    for number, name in enumerate(EVIL.values()):
        (place / name).mkdir(parents=True)
        (place / name / f"{name}.jpg").write_bytes(encoded(picture(number, 30, 20)))
    (place / EVIL["title"] / f"{EVIL['colour']}.png").write_bytes(b"no picture")
    return place


@pytest.fixture(scope="module")
def packed(folders: Path) -> Path:
    out = folders.parent / "set"
    fastload.pack(folders, out, on_error="skip")
    assert set(PackedDataset(out).classes) == set(EVIL.values())
    return out


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed set whose keys, classes and a shard's name are such, with a damaged record."""
    blobs = [encoded(picture(i, 30, 20)) for i in range(4)]
    dataset = plain_pack(tmp_path_factory.mktemp("evil") / TITLE, blobs, range(4), list(EVIL.values())[:4])
    shard = dataset.folder / dataset.manifest.shards[0].file
    data = bytearray(shard.read_bytes())
    data[int(dataset.records[2]["offset"]) + 30] ^= 1
    shard.write_bytes(data)
    return dataset.folder


def lines(packed: Path, folders: Path, damaged: Path, out: Path) -> dict[str, list[object]]:
    """Commands, each with its words."""
    return {
        "info": ["info", packed],
        "info --stats": ["info", packed, "--stats"],
        "info, damaged": ["info", damaged],
        "verify": ["verify", damaged, "--decode"],
        "pack": ["pack", folders, out / "a"],
        "pack, skipped": ["pack", folders, out / "b", "--on-error", "skip"],
        "unpack": ["unpack", damaged, out / "c"],
        "plan": ["plan", packed],
        "index": ["index", packed, "--entries"],
        "recode": ["recode", packed, "--coefficients", "fast"],
        "missing": ["info", f"{out}/{TITLE}"],
        "url": ["info", f"http://127.0.0.1:9/{TITLE}"],
        "wrong option": ["pack", folders, out / "d", "--format", TITLE],
    }


NAMES = list(lines(Path(), Path(), Path(), Path()))


@pytest.fixture
def words(packed: Path, folders: Path, damaged: Path, tmp_path: Path) -> Callable[[str], list[str]]:
    return lambda name: [str(word) for word in lines(packed, folders, damaged, tmp_path)[name]]


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_a_log(
    words: Callable[[str], list[str]], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(words(name))
    said = capsys.readouterr()
    assert said.out + said.err
    assert obeyed(said.out + said.err) == []


@pytest.mark.parametrize("name", NAMES)
def test_commands_as_json(
    words: Callable[[str], list[str]], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays JSON, with the names as they are."""
    main([*words(name), "--json"])
    said = capsys.readouterr()
    assert obeyed(said.out + said.err) == []
    for line in said.out.splitlines():
        json.loads(line)


def on_a_terminal(arguments: list[str]) -> str:
    """What a command writes where both outputs are a terminal."""
    control, terminal = pty.openpty()
    with subprocess.Popen(
        command(*arguments), stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL,
        env=environment(TERM="xterm-256color", COLUMNS="200"),
    ) as process:  # fmt: skip
        os.close(terminal)
        data = b""
        while True:
            try:
                piece = os.read(control, 1 << 16)
            except OSError:  # its other end is closed
                break
            data += piece
        process.wait()
    os.close(control)
    return data.decode("utf-8", "replace")


OURS = re.compile(r"\x1b\[[0-9;?]*[mKAGHhlJF]|\r")  # rich's: colours, erased lines, the cursor


@pytest.mark.parametrize("name", ["info", "verify", "pack", "pack, skipped", "missing"])
def test_commands_on_a_terminal(words: Callable[[str], list[str]], name: str) -> None:
    """With tables and bars, which are made of what a terminal obeys, and of nothing else of it."""
    said = on_a_terminal(words(name))
    assert said
    assert obeyed(OURS.sub("", said)) == []
    assert "\x1b[31mb" not in said  # a name's colour
    assert "\x1b[6n" not in said


def errors_of(damaged: Path) -> Iterator[tuple[str, BaseException]]:
    dataset = PackedDataset(damaged)

    def raised(work: Callable[[], Any]) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011 (any)
            work()
        return caught.value

    yield "a sample", raised(lambda: dataset[2])
    with DataLoader(dataset, 4, transform=T.CenterCrop(8), num_workers=1) as loader:
        yield "a batch", raised(lambda: next(iter(loader)))
    yield "no set", raised(lambda: PackedDataset(f"{damaged}/{EVIL['clipboard']}"))
    with FaultServer() as server:
        body = f"<Error><Code>Evil</Code><Message>{EVIL['eight bits']}</Message></Error>".encode()
        server.rules.append(Rule(Fault(status=400, body=body, headers={"Content-Type": "application/xml"})))
        s3 = {"key": "a", "secret": "b", "region": "us-east-1", "endpoint_url": server.url}
        yield "a web server's words", raised(lambda: open_store(server.url).get("x"))
        yield "S3's words", raised(lambda: open_store("s3://bucket", s3).get("x"))


def test_errors(damaged: Path) -> None:
    found = dict(errors_of(damaged))
    assert len(found) == 5
    for name, error in found.items():
        assert obeyed(str(error)) == [], name
    assert isinstance(found["S3's words"], RemoteError)
    assert "\\x9b31m" in str(found["S3's words"])


def test_an_error_keeps_its_arguments() -> None:
    error = FastloadError(TITLE, 3)
    assert error.args == (TITLE, 3)
    assert not obeyed(str(error))
    assert str(FastloadError("")) == ""


def test_a_traceback(damaged: Path) -> None:
    code = f"import fastload; fastload.PackedDataset({str(damaged)!r})[2]"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 1
    assert "SampleError" in done.stderr
    assert obeyed(done.stderr) == []


def test_warnings_and_explanations(damaged: Path, packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "_told", [0])  # it is said once in a process, and others were before
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch_like = torch_loader(PackedDataset(packed))
        next(iter(torch_like))
        both = torch_concat([PackedDataset(packed), PackedDataset(damaged)])
        with DataLoader(both, 2, transform=T.CenterCrop(8), num_workers=1) as loader:
            shown = [str(loader.explain()), repr(loader), repr(PackedDataset(damaged)), str(loader.stats())]
    assert len(said) >= 2
    assert obeyed("".join(str(one.message) for one in said)) == []
    assert obeyed("".join(shown)) == []


def torch_loader(dataset: PackedDataset) -> Any:
    import torch

    return torch.utils.data.DataLoader(dataset, 1, collate_fn=list)


def torch_concat(datasets: list[PackedDataset]) -> Any:
    import torch

    return torch.utils.data.ConcatDataset(datasets)


def test_what_a_function_says(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    say(f"a name: {TITLE}")
    assert capsys.readouterr().err == "a name: \\x1b]0;owned\\x07\n"
    monkeypatch.setattr(sys, "stderr", None)
    say("nobody hears it")
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        say("nor this")
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space left"):
            full.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_stream_takes_what_its_encoding_has_not(tmp_path: Path) -> None:
    with open(tmp_path / "ascii", "w", encoding="ascii") as file:
        stream = Stream(file)
        assert stream.write("Äpfel\ud800\n") == 7
    assert (tmp_path / "ascii").read_text() == "\\xc4pfel\\ud800\n"
