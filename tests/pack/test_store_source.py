"""Images in a store are packed as those in a folder are, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from object_server import ObjectServer
from pack_trees import class_tree, encoded, make_tree, run_cli, snapshot

from fastload.errors import PackError, RemoteError
from fastload.packing import PackOptions, pack
from fastload.packing.cut import WORK_NAME
from fastload.packing.packer import pack_shares, publish_shares
from fastload.packing.shares import ShardRanges
from fastload.remote.local import LocalStore

# Classes, folders and names whose order in a store's listing is another than ImageFolder's.
ODD = {
    "a/z.jpg": 1, "a/more/b.jpg": 2, "a/more/c.jpg": 3, "a/more-x/d.jpg": 4, "a b/e.png": 5, "a-b/f.jpg": 6,
    "a/B.JPG": 7, "ä/ö.jpg": 8, "a/notes.txt": 9, "only text/readme.txt": 10, "top.jpg": 11, "a/more.jpg": 12,
}  # fmt: skip


def options(**extra: object) -> PackOptions:
    return PackOptions(**{"shard_size": 8192, "num_proc": 1, **extra})  # type: ignore[arg-type]


def uploaded(server: ObjectServer, bucket: str, folder: Path) -> str:
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    server.make_bucket(bucket, {f"data/{name}": data for name, data in files.items()})
    return f"s3://{bucket}/data"


@pytest.mark.parametrize("kind", ["classes", "odd", "flat", "splits", "other classes"])
def test_the_same_bytes(tmp_path: Path, object_server: ObjectServer, kind: str) -> None:
    source = tmp_path / "source"
    if kind == "classes":
        class_tree(source)
    elif kind == "odd":
        make_tree(
            source, {name: encoded(seed, "PNG" if "png" in name else "JPEG") for name, seed in ODD.items()}
        )
    elif kind == "flat":
        make_tree(source, {f"{i}.jpg": encoded(i) for i in range(12)})
    else:
        class_tree(source / "train", classes=3, images=6)
        class_tree(source / "val", classes=3 if kind == "splits" else 2, images=4)
    pack(source, tmp_path / "whole" / "set", options())
    expected = snapshot(tmp_path / "whole" / "set")
    url = uploaded(object_server, f"source-{kind.replace(' ', '-')}", source)
    more = options(storage_options=object_server.storage_options)
    pack(url, tmp_path / "store" / "set", more)
    assert snapshot(tmp_path / "store" / "set") == expected
    assert all(result.was_complete for result in pack(url, tmp_path / "store" / "set", more))


def test_shares_and_the_command_line(tmp_path: Path, object_server: ObjectServer) -> None:
    source = class_tree(tmp_path / "source")
    pack(source, tmp_path / "whole" / "set", options())
    expected = snapshot(tmp_path / "whole" / "set")
    url, output = uploaded(object_server, "source-shares", source), tmp_path / "shares" / "set"
    given = options(storage_options=object_server.storage_options)
    pack_shares(url, output, ShardRanges.parse("1/2"), given)
    done = run_cli(
        "pack", url, output, "--shard-size", "8192", "--num-proc", "2", "--shards", "0/1",
        **object_server.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not [*(output / WORK_NAME).glob(".tmp-*")]
    publish_shares(url, output, given)
    assert snapshot(output) == expected


@pytest.mark.parametrize("into", ["folder", "store"])
def test_a_plan_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into: str) -> None:
    source = class_tree(tmp_path / "source")
    pack(source, tmp_path / "whole" / "set", options())
    output, listed, original = tmp_path / "out" / "set", [], LocalStore.list
    monkeypatch.setattr(
        LocalStore, "list", lambda self, prefix: listed.append(prefix) or original(self, prefix)
    )
    given = f"file://{output}" if into == "store" else output
    for text in ("1/2", "0/2"):
        pack_shares(f"file://{source}", given, ShardRanges.parse(text), options())
    publish_shares(f"file://{source}", given, options())
    assert publish_shares(f"file://{source}", given, options())[0].was_complete
    assert [prefix for prefix in listed if prefix.endswith("/source/")] == [f"{source}/"[1:]]
    assert snapshot(output) == snapshot(tmp_path / "whole" / "set")


def test_what_is_wrong(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source")
    url, output = f"file://{source}", tmp_path / "set"
    (source / "theirs.h5").write_bytes(b"")
    for given, found in (
        (f"{url}/nothing", "there is nothing at file:///.*/nothing"),
        (f"{url}/theirs.h5", r"theirs\.h5 is a file, and files of its kind are packed"),
        (f"{url}/no.csv", r"/source/no\.csv does not exist"),
        ("ftp://host/x", "A URL must begin with one of"),
    ):
        with pytest.raises(PackError, match=found):
            pack(given, output, options())
    (source / "theirs.h5").unlink()
    pack_shares(url, output, ShardRanges.parse("0"), options())
    (source / "class 3" / "003.jpeg").write_bytes(encoded(4711) + b"\0")
    (source / "class 1" / "003.jpeg").unlink()
    with pytest.raises(PackError, match=r"class 1/003\.jpeg: .*No such file"):
        pack_shares(url, output, ShardRanges.parse("0/2"), options())
    with pytest.raises(PackError, match=r"source has changed.*class%203/003\.jpeg had \d+ bytes, and has"):
        pack_shares(url, output, ShardRanges.parse("1/2"), options(on_error="skip"))
    assert not [*(output / WORK_NAME).glob(".tmp-files*")]


def test_a_store_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = class_tree(tmp_path / "source")
    pack(source, tmp_path / "whole" / "set", options())
    url, output, count = f"file://{source}", tmp_path / "store" / "set", 0
    get = LocalStore.get

    def failing(store: LocalStore, path: str) -> bytes:
        nonlocal count
        count += 1
        if count == 30:
            raise RemoteError(f"{path} cannot be read: the store answers 503.")
        return get(store, path)

    monkeypatch.setattr(LocalStore, "get", failing)
    with pytest.raises(RemoteError, match="answers 503"):
        pack(url, output, options())
    assert list(output.glob("[!.]*.arrow"))
    pack(url, output, options())
    assert snapshot(output) == snapshot(tmp_path / "whole" / "set")
