"""A dataset packed by several: shares of one plan, at the same time, killed, overlapping."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pack_trees import class_tree, command, encoded, environment, make_tree, run_cli, snapshot
from process import HANG

from fastload.errors import PackError
from fastload.packing import Observer, PackOptions, pack
from fastload.packing import target as opening
from fastload.packing.cut import WORK_NAME
from fastload.packing.files import LOCK_NAME, PLAN_LOCK_NAME, claim, folder_lock, share_lock
from fastload.packing.packer import PackShare, pack_shares, plan_shares, publish_shares
from fastload.packing.progress import Place
from fastload.packing.shares import ShardRanges, ranges
from fastload.packing.target import part_path

DRIVER = Path(__file__).with_name("kill_driver.py")
CLI = ("--shard-size", "8192", "--num-proc", "1", "--quiet")


def options(format_name: str = "arrow", **extra: object) -> PackOptions:
    return PackOptions(**{"format": format_name, "shard_size": 8192, "num_proc": 1, **extra})  # type: ignore[arg-type]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return class_tree(tmp_path / "source")


def whole(tmp_path: Path, source: Path, given: PackOptions | None = None) -> dict[str, bytes]:
    pack(source, tmp_path / "whole" / "set", given or options())
    return snapshot(tmp_path / "whole" / "set")


def some(source: Path, output: Path, text: str, **extra: object) -> PackShare:
    return pack_shares(source, output, ShardRanges.parse(text), options(**extra))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-3", [0, 1, 2, 3]), ("8-99", [8, 9]), ("7", [7]), ("4-5,0,5", [0, 4, 5]), ("0/3", [0, 1, 2]),
     ("2/3", [6, 7, 8, 9]), ("0/11", []), ("10/11", [9])],
)  # fmt: skip
def test_which_shards(text: str, found: list[int]) -> None:
    assert ShardRanges.parse(text).numbers(10) == found
    assert not found or ShardRanges.parse(ranges(found)).numbers(10) == found


def test_all_shares_are_all_shards() -> None:
    for count in (1, 7, 100):
        for of in (1, 3, 16, 150):
            shares = [ShardRanges(share=(number, of)).numbers(count) for number in range(of)]
            assert [number for share in shares for number in share] == list(range(count))


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1-", "3/3", "x/3", "1/0", "0-3;5", "1/2/3"])
def test_no_shards(text: str) -> None:
    with pytest.raises(PackError, match=r"--shards .*(0-99|0/16)"):
        ShardRanges.parse(text)


def test_a_range_that_begins_behind_the_last_shard() -> None:
    with pytest.raises(PackError, match="--shards 10-12: the plan has 10 shards; legal are 0 to 9"):
        ShardRanges.parse("0-3,10-12").numbers(10)


def test_killed_around_every_change_on_disk(tmp_path: Path) -> None:
    tree = class_tree(tmp_path / "source", classes=1, images=12)
    done = subprocess.run(
        [sys.executable, DRIVER, tree, tmp_path, "arrow", "shares"],
        capture_output=True, text=True, timeout=HANG, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["points"] >= 60
    assert (result["failures"], result["early"]) == ([], 0)


def test_several_at_once_killed_and_overlapping(tmp_path: Path, source: Path) -> None:
    expected, output, rng = whole(tmp_path, source), tmp_path / "shares" / "set", random.Random(0)
    wanted = ("0-6", "3-99", "0/1", "1/2")
    for _ in range(2):
        packs = [
            subprocess.Popen(
                command("pack", source, output, *CLI, "--shards", text), env=environment(),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for text in wanted
        ]  # fmt: skip
        time.sleep(rng.uniform(0.3, 1.2))
        for process in packs:
            process.kill()
            process.wait()
    packs = [
        subprocess.Popen(
            command("pack", source, output, *CLI, "--shards", text, "--json"), env=environment(),
            stdout=subprocess.PIPE, text=True,
        )
        for text in wanted
    ]  # fmt: skip
    written = [json.loads(process.communicate(timeout=HANG)[0])["share"] for process in packs]
    assert written[2]["finished"] == written[2]["shards"]
    done = run_cli("pack", source, output, *CLI, "--publish")
    assert done.returncode == 0, done.stderr
    assert snapshot(output) == expected


def test_no_shard_is_written_twice(tmp_path: Path, source: Path) -> None:
    output, written = tmp_path / "set", []
    plan_shares(source, output, options())
    packs = [
        threading.Thread(target=lambda: written.append(some(source, output, "0/1").written)) for _ in range(3)
    ]
    for thread in packs:
        thread.start()
    for thread in packs:
        thread.join()
    assert sum(written) == some(source, output, "0/1").shards


def test_who_dies_is_replaced(tmp_path: Path, source: Path) -> None:
    """A shard that another pack writes is waited for, and written here when that one has died."""
    output, reasons = tmp_path / "set", []
    shards = plan_shares(source, output, options()).shards
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys, time; from pathlib import Path\n"
         "from fastload.packing.files import claim\n"
         "held = claim(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)",
         part_path(output, f"set-00000-of-{shards:05d}.arrow").with_suffix(".lock")],
        env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    class Killing(Observer):
        def said(self, place: Place, reason: str) -> None:
            reasons.append(reason)
            holder.kill()

    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        share = pack_shares(source, output, ShardRanges.parse("0-3"), options(), Killing())
    finally:
        holder.kill()
        holder.communicate()
    assert share.written == 4
    assert len(reasons) == 1
    assert f"process {holder.pid} on " in reasons[0]
    assert "writes set-00000-of-" in reasons[0]


def test_the_source_is_listed_once(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, original = [], opening.planned_in
    monkeypatch.setattr(opening, "planned_in", lambda *a: made.append(1) or original(*a))  # type: ignore[func-returns-value]
    for text in ("0/2", "1/2"):
        some(source, tmp_path / "set", text)
    publish_shares(source, tmp_path / "set", options())
    assert made == [1]


def test_a_plan_in_the_making_is_waited_for(tmp_path: Path, source: Path) -> None:
    output, reasons = tmp_path / "set", []
    output.mkdir()
    held = claim(output / PLAN_LOCK_NAME)
    assert held is not None

    class Releasing(Observer):
        def said(self, place: Place, reason: str) -> None:
            reasons.append(reason)
            held.close()

    share = plan_shares(source, output, options(), Releasing())
    assert share.shards > 4
    assert len(reasons) == 1
    assert f"process {os.getpid()} on " in reasons[0]


def test_published_too_early(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "set"
    with pytest.raises(PackError, match="holds no pack that could be published"):
        publish_shares(source, output, options())
    share = some(source, output, "1-2,4")
    missing = f"0,3,5-{share.shards - 1}"
    with pytest.raises(PackError, match=rf"{share.shards - 3} missing \({missing}\).*--shards {missing}'"):
        publish_shares(source, output, options())
    (output / f"set-00001-of-{share.shards:05d}.arrow").unlink()
    with pytest.raises(PackError, match=r"missing \(0-1,3,"):
        publish_shares(source, output, options())


def test_shards_of_another_plan(tmp_path: Path, source: Path) -> None:
    """Brought together from two folders whose sources differ."""
    expected, output, other = whole(tmp_path, source), tmp_path / "a" / "set", tmp_path / "b" / "set"
    shards = some(source, output, "0/1").shards
    changed = class_tree(tmp_path / "changed")
    (changed / "class 3" / "zzz.jpg").write_bytes(encoded(5))
    assert some(changed, other, "0/1").shards == shards
    name = f"set-00001-of-{shards:05d}.arrow"
    for path in (Path(name), Path(WORK_NAME) / f"{name}.part"):
        (output / path).write_bytes((other / path).read_bytes())
    with pytest.raises(PackError, match=r"1 written by another plan \(1\).*--shards 1'"):
        publish_shares(source, output, options())
    assert some(source, output, "1").written == 1
    publish_shares(source, output, options())
    assert snapshot(output) == expected


def test_other_options_and_another_source(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "set"
    some(source, output, "0")
    for call in (
        lambda o: pack_shares(source, output, ShardRanges.parse("1"), o),
        lambda o: publish_shares(source, output, o),
    ):
        with pytest.raises(PackError, match="format was arrow, now lmdb"):
            call(options("lmdb"))
    os.utime(source / "class 0" / "000.jpeg")
    assert some(source, output, "0").written == 0
    file = source / "class 3" / "003.jpeg"
    file.write_bytes(encoded(78))
    with pytest.raises(
        PackError, match=r"source has changed.*class 3/.*had \d+ bytes.*--plan-only --restart"
    ):
        some(source, output, "0/1")
    (source / "class 4").mkdir()
    with pytest.raises(PackError, match="it had 4 classes, and has 5 now"):
        some(source, output, "0")
    (source / "class 4").rmdir()
    with pytest.raises(PackError, match="--restart with --shards would throw away what others pack"):
        some(source, output, "0", restart=True)
    plan_shares(source, output, options(restart=True))
    assert not list(output.glob("*.arrow"))
    assert some(source, output, "0/1").written > 4


def test_a_file_that_cannot_be_looked_at_has_not_changed(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "set"
    plan_shares(source, output, options())
    whole = os.stat

    def failing(path: Any, **options: Any) -> os.stat_result:
        if os.fsdecode(path).endswith("class 3/003.jpeg"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), os.fsdecode(path))
        return whole(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", failing)
        with pytest.raises(PackError, match=r"class 3/003\.jpeg cannot be read: Input/output error\.$"):
            some(source, output, "0/1")
    (source / "class 3" / "003.jpeg").rename(tmp_path / "away")
    with pytest.raises(PackError, match=r"had \d+ bytes, and is not there\. --plan-only --restart"):
        some(source, output, "0/1")
    (tmp_path / "away").rename(source / "class 3" / "003.jpeg")
    assert some(source, output, "0/1").written > 1


def test_one_pack_alone_and_shares_keep_out_of_each_others_way(tmp_path: Path, source: Path) -> None:
    expected, output = whole(tmp_path, source), tmp_path / "shares" / "set"
    some(source, output, "1/2")
    with folder_lock(output), pytest.raises(PackError, match=f"is being packed by process {os.getpid()} on"):
        some(source, output, "0")
    with share_lock(output):
        for call in (pack, publish_shares):
            with pytest.raises(PackError, match=f"is being packed by process {os.getpid()} on"):
                call(source, output, options())
        assert some(source, output, "0").written == 1
    assert (output / LOCK_NAME).exists()
    pack(source, output, options())  # alone, it goes on with what shares have left
    assert snapshot(output) == expected


def test_splits_are_counted_through(tmp_path: Path) -> None:
    class_tree(tmp_path / "source" / "train")
    source = class_tree(tmp_path / "source" / "val", classes=2).parent
    pack(source, tmp_path / "whole", options())
    output = tmp_path / "shares"
    total = plan_shares(source, output, options()).shards
    train = sum(path.suffix == ".arrow" for path in (tmp_path / "whole" / "train").iterdir())
    assert 0 < train < total
    some(source, output, f"0-{train}")
    assert len(list((output / "train").glob("*.arrow"))) == train
    assert len(list((output / "val").glob("*.arrow"))) == 1
    with pytest.raises(PackError, match=rf"shares cannot be published.*\({train + 1}"):
        publish_shares(source, output, options())
    assert not (output / "train" / "dataset.json").exists()
    some(source, output, f"{train + 1}-{total}")
    assert len(publish_shares(source, output, options())) == 2
    assert snapshot(output) == snapshot(tmp_path / "whole")


def test_skipped_files_and_a_shard_without_records(tmp_path: Path) -> None:
    files = {f"{i:02d}.jpg": encoded(i) if i > 8 or i == 2 else b"no image" * 2000 for i in range(30)}
    source = make_tree(tmp_path / "source", files)
    given = options(on_error="skip")
    expected = whole(tmp_path, source, given)
    assert b"no image" not in b"".join(expected.values())
    output = tmp_path / "shares" / "set"
    with pytest.raises(PackError, match="cannot be packed"):
        some(source, output, "0/1")
    for text in ("0/2", "1/2"):
        some(source, output, text, on_error="skip")
    publish_shares(source, output, given)
    assert snapshot(output) == expected


@pytest.mark.parametrize(("packed", "published"), [(None, 64), (0, 64), (64, 0), (64, None)])
def test_entry_points_that_are_not_as_wanted(
    tmp_path: Path, packed: int | None, published: int | None
) -> None:
    files = {f"{i:02d}.jpg": encoded(i, width=300, height=200) for i in range(6)}
    source = make_tree(tmp_path / "source", files)
    expected, output = whole(tmp_path, source, options(entries=published)), tmp_path / "shares" / "set"
    assert ("entries.fli" in expected) == (published is not None)
    some(source, output, "0/1", entries=packed)
    publish_shares(source, output, options(entries=published))
    assert snapshot(output) == expected


def test_entry_points_are_made_with_the_shards(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, output = whole(tmp_path, source), tmp_path / "shares" / "set"
    some(source, output, "0/1")
    monkeypatch.setattr("fastload.packing.target.entries_of", None)
    publish_shares(source, output, options())
    assert snapshot(output) == expected


def test_command_line(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "set"
    planned = run_cli("pack", source, output, *CLI, "--plan-only")
    assert planned.returncode == 0, planned.stderr
    assert "48 files" in planned.stdout
    assert "\n  all   0 of " in planned.stdout
    first = run_cli("pack", source, output, *CLI, "--shards", "0/2")
    assert "packed, 0 already there" in first.stdout
    early = run_cli("pack", source, output, *CLI, "--publish")
    assert early.returncode == 1
    assert "cannot be published" in early.stderr
    second = run_cli("pack", source, output, *CLI, "--shards", "1/2")
    assert "--publish in place of --shards" in second.stdout
    last = run_cli("pack", source, output, *CLI, "--publish", "--json")
    assert json.loads(last.stdout)["datasets"][0]["records"] == 48
    assert run_cli("pack", source, output, "--shards", "0", "--publish").returncode == 2
