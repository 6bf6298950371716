"""Room under made-up limits, and what is decided about it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastload.cache.policy
from fastload.cache.policy import Candidate, Room, decide, find_room, is_large_enough
from fastload.cache.settings import CacheSetting, parse_setting
from fastload.errors import CacheError

MB, GB = 10**6, 10**9
STAT = "active_file 0\ninactive_file 0\ntotal_active_file 0\ntotal_inactive_file 0\n"


def machine(root: Path, available: int, own: str = "0::/", **limits: tuple[int | str, int]) -> str:
    """A fake root; ``limits``: by folder below /sys/fs/cgroup, limit and usage; v1 where it begins so."""
    files = {"proc/meminfo": f"MemAvailable: {available >> 10} kB\n", "proc/self/cgroup": own + "\n"}
    for folder, (most, used) in limits.items():
        v1 = folder.startswith("memory")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if v1 else ("memory.max", "memory.current")
        texts = (str(most), str(used), STAT)
        for name, text in zip((*names, "memory.stat"), texts, strict=True):
            files[f"sys/fs/cgroup/{folder.replace('__', '/').removeprefix('top')}/{name}"] = text
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def file_system(monkeypatch: pytest.MonkeyPatch, size: int, free: int) -> None:
    found = SimpleNamespace(f_frsize=1000, f_blocks=size // 1000, f_bavail=free // 1000)
    monkeypatch.setattr(
        fastload.cache.policy, "os", SimpleNamespace(statvfs=lambda _: found, fspath=os.fspath)
    )


def test_a_small_tmpfs_is_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_system(monkeypatch, 64 * MB, 60 * MB)
    room = find_room(Path("/dev/shm"), machine(tmp_path, 100 * GB))
    assert room.free == 60 * MB
    assert room.to_spare == 30 * MB  # NCCL needs some of it
    assert "/dev/shm (64.0 MB in all)" in room.limit
    assert "--shm-size" in room.advice
    assert find_room(Path("/dev/shm"), str(tmp_path), returned=MB).free == 61 * MB


@pytest.mark.parametrize(
    ("own", "limits", "name"),
    [
        ("0::/", {"top": (2 * GB, GB)}, "memory.max"),
        ("0::/job/step", {"job__step": ("max", GB), "job": (2 * GB, GB)}, "job/memory.max"),
        (
            "4:memory:/job",
            {"memory__job": (2 * GB, GB), "memory": (2**63 - 1, GB)},
            "job/memory.limit_in_bytes",
        ),
    ],
)
def test_a_cgroup_is_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, limits: dict[str, tuple[int, int]], name: str
) -> None:
    """Pages of a tmpfs are memory of the group: it would be killed, not told."""
    file_system(monkeypatch, 500 * GB, 500 * GB)
    room = find_room(Path("/dev/shm"), machine(tmp_path, 400 * GB, own, **limits))
    assert room.available == GB
    assert room.free == room.to_spare == GB - (256 << 20)  # 5% would be less
    assert name in room.limit
    assert "--memory" in room.advice


def test_the_machine_is_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_system(monkeypatch, 0, 0)  # a tmpfs without a size
    room = find_room(Path("/dev/shm"), machine(tmp_path, 100 * GB, top=("max", GB)))
    assert room.available == pytest.approx(100 * GB, abs=1024)
    assert room.free == room.available - room.available // 20
    assert "the machine's memory" in room.limit
    assert "Free memory" in room.advice
    assert room.to_spare == room.free  # nobody else needs room of such a file system


def test_a_cgroup_that_may_have_more_than_there_is_is_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_system(monkeypatch, 500 * GB, 500 * GB)
    room = find_room(Path("/dev/shm"), machine(tmp_path, 100 * GB, top=(400 * GB, GB)))
    assert room.available == pytest.approx(100 * GB, abs=1024)
    assert "the machine's memory" in room.limit


@pytest.mark.parametrize(
    ("size", "free", "to_spare"),
    [
        (2 * GB, 2 * GB, 2 * GB - (256 << 20)),
        (100 * GB, 60 * GB, 55 * GB),  # 5% of its size
        (100 * GB, 6 * GB, 3 * GB),  # but not more than half of what is free
    ],
)
def test_something_of_a_file_system_is_left_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, free: int, to_spare: int
) -> None:
    file_system(monkeypatch, size, free)
    room = find_room(Path("/dev/shm"), machine(tmp_path, 400 * GB))
    assert (room.free, room.to_spare) == (free, to_spare)


def test_files_that_will_be_replaced_give_their_memory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_system(monkeypatch, 500 * GB, 500 * GB)
    root = machine(tmp_path, 400 * GB, top=(4 * GB, 4 * GB))
    assert find_room(Path("/dev/shm"), root).available == 0
    assert find_room(Path("/dev/shm"), root, returned=2 * GB).available == 2 * GB
    assert find_room(Path("/dev/shm"), root, returned=-GB).available == 0


def test_a_full_file_system_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_system(monkeypatch, 500 * GB, 0)
    for returned in (0, -GB):
        room = find_room(Path("/dev/shm"), machine(tmp_path, 400 * GB), returned)
        assert (room.free, room.to_spare) == (0, 0)


def test_what_is_left_is_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_system(monkeypatch, 0, 0)
    assert find_room(Path("/dev/shm"), machine(tmp_path, 200 * MB)).free == 0


ROOM = Room(free=95 * GB, to_spare=94 * GB, available=100 * GB, limit="the limit", advice="Raise it")


def auto(*parts: Candidate) -> list[int]:
    return [decision.limit for decision in decide(parts, CacheSetting(), ROOM)]


def test_auto() -> None:
    assert auto(Candidate("x", 75 * GB)) == [0]  # the page cache holds it
    assert auto(Candidate("x", 76 * GB)) == [50 * GB]
    assert auto(Candidate("x", 10 * GB, remote=True)) == [10 * GB]
    assert auto(Candidate("x", 76 * GB, remote=True)) == [50 * GB]
    assert auto(Candidate("x", 10 * GB, in_memory=True)) == [0]
    assert auto(Candidate("x", 1000 * GB)) == [50 * GB]
    assert auto(Candidate("x", 1001 * GB)) == [0]  # less than 5% of it
    assert auto(Candidate("x", 10 * GB, tier="decoded-256")) == [10 * GB]


def test_auto_says_why() -> None:
    reasons = [
        decide([part], CacheSetting(), ROOM)[0].reason
        for part in (
            Candidate("x", 5 * GB),
            Candidate("x", 5 * GB, in_memory=True),
            Candidate("x", 5 * GB, remote=True),
            Candidate("x", 90 * GB),
            Candidate("x", 9000 * GB),
        )
    ]
    for reason, word in zip(
        reasons, ["page cache", "memory already", "network", "larger", "5%"], strict=True
    ):
        assert word in reason
        assert "\n" not in reason


def test_auto_says_how_much_of_the_set_and_as_what() -> None:
    def reason(need: int, tier: str) -> str:
        return decide([Candidate("x", need, remote=True, tier=tier)], CacheSetting(), ROOM)[0].reason

    assert "for all of the set (5.0 GB): it is on a network" in reason(5 * GB, "encoded")
    assert "for 50% of the set (100.0 GB): it is on a network" in reason(100 * GB, "encoded")
    assert "coefficients" in reason(5 * GB, "coefficients")
    assert "decoded" in reason(5 * GB, "decoded-256")


def test_auto_says_where_records_are_as_near() -> None:
    parts = [Candidate("x", 5 * GB), Candidate("x", 5 * GB, in_memory=True), Candidate("x", GB, remote=True)]
    assert [decide([part], CacheSetting(), ROOM)[0].nearer for part in parts] == ["page cache", "memory", ""]


def test_auto_looks_at_all_parts_of_a_mix() -> None:
    """Each would fit into the page cache, both do not."""
    assert auto(Candidate("x", 40 * GB), Candidate("y", 60 * GB)) == [20 * GB, 30 * GB]


def test_what_the_page_cache_does_not_hold_takes_nothing_of_it() -> None:
    for other in (Candidate("y", 60 * GB, remote=True), Candidate("y", 60 * GB, in_memory=True)):
        assert auto(Candidate("x", 40 * GB), other)[0] == 0


def test_a_set_of_no_bytes_needs_no_cache() -> None:
    assert auto(Candidate("x", 0)) == [0]


def test_switched_off() -> None:
    parts = [Candidate("x", 90 * GB), Candidate("y", 90 * GB, remote=True)]
    decisions = decide(parts, parse_setting("off"), ROOM)
    assert [decision.limit for decision in decisions] == [0, 0]
    assert all("off" in decision.reason for decision in decisions)


def test_what_is_asked_for() -> None:
    part = Candidate("/data/x", 20 * GB)
    assert [d.limit for d in decide([part], parse_setting("8GB"), ROOM)] == [8 * GB]
    assert [d.limit for d in decide([part], parse_setting("10%"), ROOM)] == [10 * GB]
    assert [d.limit for d in decide([part], parse_setting("90%"), ROOM)] == [20 * GB]
    assert [d.limit for d in decide([part], parse_setting("/dev/shm"), ROOM)] == [20 * GB]
    assert [d.limit for d in decide([Candidate("x", 200 * GB)], parse_setting("/dev/shm"), ROOM)] == [94 * GB]
    assert [d.limit for d in decide([part, Candidate("y", 60 * GB)], parse_setting("8GB"), ROOM)] == [
        2 * GB,
        6 * GB,
    ]
    # All of the room can be had.
    assert [d.limit for d in decide([Candidate("x", 200 * GB)], parse_setting("95GB"), ROOM)] == [95 * GB]
    # What is not needed is not asked for.
    assert [d.limit for d in decide([part], parse_setting("2TB"), ROOM)] == [20 * GB]


def test_what_was_asked_for_says_how_much_of_the_set_it_holds() -> None:
    part = Candidate("/data/x", 20 * GB)
    assert "all of 20.0 GB" in decide([part], parse_setting("2TB"), ROOM)[0].reason
    assert "40% of 20.0 GB" in decide([part], parse_setting("8GB"), ROOM)[0].reason


def test_an_error_names_all_parts() -> None:
    with pytest.raises(CacheError, match="for x, y "):
        decide([Candidate("x", 90 * GB), Candidate("y", 90 * GB)], parse_setting("96GB"), ROOM)


@pytest.mark.parametrize("text", ["96GB", "2TB", "99%"])
def test_what_cannot_be_had_is_an_error_with_numbers(text: str) -> None:
    with pytest.raises(CacheError) as caught:
        decide([Candidate("/data/x", 200 * GB)], parse_setting(text), ROOM)
    message = str(caught.value)
    for word in (
        text,
        "/data/x",
        "200.0 GB",
        "the limit",
        "95.0 GB",
        "Raise it",
        'cache="95000MB"',
        'cache="off"',
    ):
        assert word in message


def test_no_room_at_all_is_an_error_unless_auto() -> None:
    none = Room(0, 0, 100 * MB, "the limit", "Raise it")
    for text in ("1GB", "50%", "/dev/shm"):
        with pytest.raises(CacheError, match="the limit"):
            decide([Candidate("x", GB)], parse_setting(text), none)
    assert decide([Candidate("x", GB, remote=True)], CacheSetting(), none)[0].limit == 0


@given(
    st.lists(st.integers(1, 10**13), min_size=1, max_size=4),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.booleans(),
)
def test_never_more_than_there_is(needs: list[int], free: int, reserve: int, remote: bool) -> None:
    room = Room(free, free // 2, free + reserve, "", "")
    parts = [Candidate("x", need, remote=remote) for need in needs]
    for setting in (CacheSetting(), parse_setting("/dev/shm"), parse_setting("1TB"), parse_setting("50%")):
        try:
            limits = [decision.limit for decision in decide(parts, setting, room)]
        except CacheError:
            assert setting.mode == "on"
            continue
        assert sum(limits) <= free
        assert all(0 <= limit <= need for limit, need in zip(limits, needs, strict=True))


@given(
    st.lists(st.integers(1, 10**13), min_size=1, max_size=4),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.one_of(
        st.integers(1, 10**13).map(lambda limit: CacheSetting("on", limit=limit)),
        st.sampled_from(["/dev/shm", "0.1%", "7%", "50%", "100%", "auto"]).map(parse_setting),
    ),
)
def test_a_file_made_with_a_setting_will_do_for_it(
    needs: list[int], free: int, to_spare: int, reserve: int, setting: CacheSetting
) -> None:
    room = Room(free, min(free, to_spare), free + reserve, "", "")
    parts = [Candidate("x", need, remote=True) for need in needs]
    try:
        decisions = decide(parts, setting, room)
    except CacheError:
        assert setting.mode == "on"
        return
    assert len(decisions) == len(parts)
    for part, decision in zip(parts, decisions, strict=True):
        assert is_large_enough(decision.limit, setting, part, sum(needs), room)


def test_a_file_that_is_there_is_replaced_if_more_is_asked_for() -> None:
    part = Candidate("x", 20 * GB)

    def will_do(allowed: int, text: str) -> bool:
        return is_large_enough(allowed, parse_setting(text), part, 20 * GB, ROOM)

    assert will_do(GB, "auto")
    assert will_do(8 * GB, "8GB")
    assert will_do(7600 * MB, "8GB")  # 95% of it is near enough
    assert not will_do(7600 * MB - 1, "8GB")
    assert not will_do(7 * GB, "8GB")
    assert will_do(20 * GB, "2TB")
    assert not will_do(18 * GB, "/dev/shm")
