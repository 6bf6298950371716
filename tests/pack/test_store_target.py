"""Packing into a store: the bytes of a pack into a folder, whoever is killed, alone and in shares."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from object_server import ObjectServer
from pack_trees import class_tree, command, encoded, environment, make_tree, run_cli, snapshot
from process import HANG

from fastload.errors import PackError, RemoteError
from fastload.packing import Observer, PackOptions, pack
from fastload.packing.cut import WORK_NAME
from fastload.packing.packer import pack_shares, plan_shares, publish_shares
from fastload.packing.shares import ShardRanges
from fastload.packing.store_target import StoreTarget
from fastload.remote.local import LocalStore

DRIVER = Path(__file__).with_name("store_driver.py")


def options(**extra: object) -> PackOptions:
    return PackOptions(**{"shard_size": 8192, "num_proc": 1, **extra})  # type: ignore[arg-type]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return class_tree(tmp_path / "source")


def whole(tmp_path: Path, source: Path, given: PackOptions | None = None) -> dict[str, bytes]:
    pack(source, tmp_path / "whole" / "set", given or options())
    return snapshot(tmp_path / "whole" / "set")


def objects(server: ObjectServer, bucket: str, prefix: str) -> dict[str, bytes]:
    client = server.client()
    keys = [
        found["Key"] for found in client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
    ]
    return {key[len(prefix) :]: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


@pytest.fixture
def no_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders go here."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_from_store_to_store(tmp_path: Path, source: Path, object_server: ObjectServer) -> None:
    expected = whole(tmp_path, source)
    files = {f"in/{p.relative_to(source)}": p.read_bytes() for p in source.rglob("*") if p.is_file()}
    object_server.make_bucket("pack-target", files)
    arguments = ("s3://pack-target/in", "s3://pack-target/out/set", "--shard-size", "8192")
    first = run_cli("pack", *arguments, "--shards", "0/2", **object_server.environment)
    assert first.returncode == 0, first.stderr
    early = run_cli("pack", *arguments, "--publish", **object_server.environment)
    assert early.returncode == 1
    assert "s3://pack-target/out/set cannot be published: of" in early.stderr
    done = run_cli("pack", *arguments, "--num-proc", "2", "--json", **object_server.environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["datasets"][0]["output"] == "s3://pack-target/out/set"
    assert objects(object_server, "pack-target", "out/set/") == expected


def test_killed_around_every_change_in_the_store(tmp_path: Path) -> None:
    tree = class_tree(tmp_path / "source", classes=1)
    done = subprocess.run(
        [sys.executable, DRIVER, tree, tmp_path], capture_output=True, text=True, timeout=HANG,
        env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["points"] >= 30
    assert (result["failures"], result["early"], result["again"]) == ([], 0, 0)


def test_killed_at_random_moments(tmp_path: Path, source: Path, object_server: ObjectServer) -> None:
    """Two packs of all shards at once, by processes, killed while they write to a server."""
    expected, rng = whole(tmp_path, source), random.Random(3)
    object_server.make_bucket("pack-killed")
    arguments = (source, "s3://pack-killed/set", "--shard-size", "8192", "--num-proc", "2", "--quiet")
    (tmp_path / "tmp").mkdir()
    found = environment(**object_server.environment, TMPDIR=str(tmp_path / "tmp"))
    for _ in range(2):
        packs = [
            subprocess.Popen(command("pack", *arguments), env=found, stderr=subprocess.DEVNULL)
            for _ in range(2)
        ]
        time.sleep(rng.uniform(1.0, 2.5))
        for process in packs:
            process.kill()
            process.wait()
    done = run_cli("pack", *arguments, **object_server.environment, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 0, done.stderr
    assert objects(object_server, "pack-killed", "set/") == expected
    assert [*(tmp_path / "tmp").iterdir()] == []


def test_shares(tmp_path: Path, source: Path) -> None:
    expected, url = whole(tmp_path, source), f"file://{tmp_path}/store/set"
    with pytest.raises(PackError, match="holds no pack that could be published"):
        publish_shares(source, url, options())
    planned = plan_shares(source, url, options())
    assert (planned.finished, planned.files) == (0, 48)
    assert pack_shares(source, url, ShardRanges.parse("1-2"), options()).written == 2
    assert pack_shares(source, url, ShardRanges.parse("0-2"), options()).written == 1
    with pytest.raises(PackError, match=rf"missing \(3-{planned.shards - 1}\)"):
        publish_shares(source, url, options())
    with pytest.raises(PackError, match="format was arrow, now lmdb"):
        pack_shares(source, url, ShardRanges.parse("1"), options(format="lmdb"))
    last = pack_shares(source, url, ShardRanges.parse("0/1"), options())
    assert (last.written, last.finished) == (planned.shards - 3, planned.shards)
    publish_shares(source, url, options())
    assert snapshot(tmp_path / "store" / "set") == expected
    assert pack_shares(source, url, ShardRanges.parse("0"), options()).published


def test_another_pack_is_faster(tmp_path: Path, source: Path) -> None:
    expected, url = whole(tmp_path, source), f"file://{tmp_path}/store/set"

    class Overtaken(Observer):
        def started(self, *_: object) -> None:
            pack(source, url, options())

    with pytest.raises(PackError, match=r"another pack has published .*Run the same command again"):
        pack(source, url, options(), Overtaken())
    assert pack(source, url, options())[0].was_complete
    assert snapshot(tmp_path / "store" / "set") == expected


def test_another_pack_publishes_first(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shards are there, and both packs know it."""
    expected, url, original = whole(tmp_path, source), f"file://{tmp_path}/store/set", StoreTarget.publish

    def late(*arguments: object) -> object:
        monkeypatch.setattr(StoreTarget, "publish", original)
        publish_shares(source, url, options())
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreTarget, "publish", late)
    [result] = pack(source, url, options())
    assert result.was_complete
    assert snapshot(tmp_path / "store" / "set") == expected


def test_two_plans_at_the_same_time(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes second takes the first one's, also where both have found none."""
    expected, url, original = whole(tmp_path, source), f"file://{tmp_path}/store/set", LocalStore.put
    other = class_tree(tmp_path / "other")
    (other / "class 3" / "zzz.jpg").write_bytes(encoded(5))

    def late(store: LocalStore, path: str, data: bytes, *, if_absent: bool = False) -> bool:
        monkeypatch.setattr(LocalStore, "put", original)
        plan_shares(source, url, options())
        return original(store, path, data, if_absent=if_absent)

    monkeypatch.setattr(LocalStore, "put", late)
    assert plan_shares(other, url, options()).files == 48
    pack(source, url, options())
    assert snapshot(tmp_path / "store" / "set") == expected


def test_skipped_files_entry_points_and_splits(tmp_path: Path) -> None:
    files = {
        f"{i:02d}.jpg": encoded(i, width=200) if i > 8 or i == 2 else b"no image" * 2000 for i in range(20)
    }
    root = tmp_path / "source"
    for split in ("train", "val"):
        make_tree(root / split / "a", files)
    given = options(on_error="skip", entries=0)
    pack(root, tmp_path / "whole", given)
    url = f"file://{tmp_path}/store"
    with pytest.raises(PackError, match=r"cannot be packed:\n  a/\d\d\.jpg"):
        pack(root, url, options())
    pack_shares(root, url, ShardRanges.parse("0/1"), options(on_error="skip", entries=None))
    results = publish_shares(root, url, given)  # entry points are made here
    assert snapshot(tmp_path / "store") == snapshot(tmp_path / "whole")
    assert [len(result.skip_reasons()) for result in results] == [1, 1]


def test_restart_and_what_is_wrong(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "store" / "set"
    url = f"file://{output}"
    output.mkdir(parents=True)
    (output / "thesis.txt").write_text("mine")
    with pytest.raises(PackError, match=r"not empty and holds no pack \(found 'thesis.txt'\)"):
        pack(source, url, options())
    (output / "thesis.txt").unlink()
    pack_shares(source, url, ShardRanges.parse("0-1"), options(format="lmdb"))
    (output / "thesis.txt").write_text("mine")
    with pytest.raises(PackError, match="format was lmdb, now arrow"):
        pack(source, url, options())
    (output / "thesis.txt").unlink()
    pack(source, url, options(restart=True))
    assert snapshot(output) == whole(tmp_path, source)
    with pytest.raises(PackError, match="is a whole store; give a folder in it"):
        pack(source, "s3://bucket", options())


def test_a_store_that_fails(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, no_leftovers: Path
) -> None:
    expected, url, count = whole(tmp_path, source), f"file://{tmp_path}/store/set", 0
    upload = LocalStore.upload

    def failing(store: LocalStore, path: str, file: Path) -> None:
        nonlocal count
        count += 1
        if count == 7:
            raise RemoteError(f"{path} cannot be written: the store answers 503.")
        upload(store, path, file)

    monkeypatch.setattr(LocalStore, "upload", failing)
    with pytest.raises(RemoteError, match="answers 503"):
        pack(source, url, options())
    assert not list(no_leftovers.iterdir())
    assert list((tmp_path / "store" / "set" / WORK_NAME).glob("*/*.part"))
    pack(source, url, options())
    assert snapshot(tmp_path / "store" / "set") == expected


def test_few_shards_are_on_this_machine_at_a_time(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, no_leftovers: Path
) -> None:
    most, upload = 0, LocalStore.upload

    def counting(store: LocalStore, path: str, file: Path) -> None:
        nonlocal most
        most = max(most, len(list(no_leftovers.rglob("*.arrow"))))
        upload(store, path, file)

    monkeypatch.setattr(LocalStore, "upload", counting)
    [result] = pack(source, f"file://{tmp_path}/store/set", options())
    assert len(result.manifest.shards) > 6
    assert 1 <= most <= 2
