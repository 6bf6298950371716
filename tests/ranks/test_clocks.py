"""All ranks' clocks side by side: which rank is slow, and why, in words; nobody waits for anybody."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chromium import found_in
from launch import finish, forked, results, started
from page_checks import CHARTS
from verdicts import step_limits

from fastload import DataLoader, Ranks
from fastload import transforms as T
from fastload.diagnose import ranks as gathered
from fastload.diagnose import report
from fastload.diagnose.facts import Fix, Sentence, Verdict
from fastload.diagnose.ranks import (
    Gathered,
    RankClocks,
    clocks_between,
    gathered_of,
    gathered_stats,
    later,
    slow_ranks,
    why_words,
    with_ranks,
)
from fastload.errors import WorldError

CHAIN = T.RandomResizedCrop(8)


def rank(number: int, **more: Any) -> RankClocks:
    """A rank that keeps up: 100 batches of 0.1 s, of 16 samples of 100 KB, 5 ms of waiting for each."""
    usual = RankClocks(
        rank=number,
        host="a",
        at=1000.0,
        seconds=10.0,
        wait=0.5,
        batches=100,
        samples=1600,
        decoded=1600,
        read=0.8,
        decode=12.8,
        transform=3.2,
        threads=4,
        encoded_bytes=1.6e8,
        late=0,
        hits=1600,
        misses=0,
    )
    return replace(usual, **more)


def ranks(*all_of_them: RankClocks) -> dict[int, RankClocks]:
    return {each.rank: each for each in all_of_them}


def test_a_slow_decoder_is_named_with_its_host() -> None:
    found = ranks(rank(0), rank(1), rank(2, host="b", wait=4.1, decode=38.4), rank(3))
    assert slow_ranks(found) == [2]
    assert why_words(found) == (
        "Rank 2 (b) is slow: it waits 41.0 ms per batch (41% of the time); the others wait 5.0 ms (5.0%). "
        "Why: decoding a sample takes 24.0 ms of thread time there and 8.0 ms on the others, for samples of "
        "the same size: its CPUs are slower, or shared."
    )


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"threads": 1}, "Why: it has 1 thread, the others 4."),
        (
            {"encoded_bytes": 4e8, "decode": 30.0},
            "its samples average 250 KB, those of the others 100 KB; decoding a sample takes",
        ),
        ({"read": 16.0}, "reading a sample takes 10.0 ms of thread time there and 0.500 ms on the others."),
        (
            {"hits": 400, "misses": 1200},
            "Why: 25% of its records come from the node cache, 100% on the others.",
        ),
        ({"late": 800}, "Why: 50% of its records come late from storage, 0% on the others."),
        (
            {"transform": 16.0},
            "Why: transforming a sample takes 10.0 ms of thread time there and 2.0 ms on the others",
        ),
        ({}, "Its clocks show no reason"),
    ],
)
def test_reasons(more: dict[str, Any], reason: str) -> None:
    words = why_words(ranks(rank(0), rank(1, wait=4.0, **more), rank(2)))
    assert words.startswith("Rank 1 (a) is slow: ")
    assert reason in words


def test_a_host_all_of_whose_ranks_are_slow() -> None:
    found = ranks(*(rank(i) for i in range(5)), rank(5, host="b", wait=5.0), rank(6, host="b", wait=6.0))
    assert slow_ranks(found) == [6, 5]
    words = why_words(found)
    assert words.startswith("Ranks 5-6 (b) are slow: they wait 55.0 ms per batch")
    assert "They are all the ranks of b." in words


def test_nobody_is_blamed_without_a_reason_to() -> None:
    assert slow_ranks({}) == []
    assert why_words({}) == "No rank has had a batch yet."
    assert why_words(ranks(rank(0, batches=0, wait=0.0))) == "No rank has had a batch yet."
    keeping_up = ranks(rank(0, wait=0.1), rank(1, wait=0.4))
    assert slow_ranks(keeping_up) == []
    assert why_words(keeping_up) == "No rank waits for data: 4.0% of the time at most, on rank 1 (a)."
    alike = ranks(rank(0, wait=4.0), rank(1, wait=4.4), rank(2, wait=4.2))
    assert slow_ranks(alike) == []
    assert why_words(alike).startswith("All ranks wait for data alike, 40% to 44% of the time")
    assert why_words(ranks(rank(0, wait=4.0))) == "Rank 0 waits for data 40% of its time."


def test_clocks_of_a_loader(numbered: Path) -> None:
    with DataLoader(numbered, batch_size=4, transform=CHAIN, num_workers=2) as loader:
        batches = [None for _ in loader]
        before = loader.stats()
        whole = clocks_between(None, before, 0)
        assert (whole.batches, whole.samples, whole.threads) == (len(batches) - 1, 53, 2)
        assert whole.host == socket.gethostname()
        assert 0 <= whole.wait <= whole.seconds <= before["samples"] / before["images_per_second"]
        time.sleep(0.05)
        for _ in loader:
            time.sleep(0.002)
        part = clocks_between(before, loader.stats(), 0)
        assert (part.batches, part.samples) == (14, 53)
        assert part.seconds >= 0.05 + 13 * 0.002
        assert part.decode > 0
        assert part.encoded_bytes > 0
        alone = gathered_stats(loader)
    assert list(alone.clocks) == [0]
    assert alone.missing == ()
    assert not alone.silent


def test_three_ranks_find_the_slow_one(numbered: Path, tmp_path: Path) -> None:
    with started(forked("clocks", 3, numbered, tmp_path)) as process:
        finish(process)
    for found in results(tmp_path, 3):
        assert found["before"][0] == []
        assert found["before"][1].startswith("No rank has had a batch yet.")
        slow, words, known, missing, silent = found["after"]
        assert (slow, known, missing, silent) == ([2], [0, 1, 2], [], False)
        assert words.startswith("Rank 2 (")
        # On a busy machine its threads may be slower, too.
        assert "Its clocks show no reason" in words or "Why: " in words
        assert found["files"] == [[2], [0, 1, 2], []]
        assert found["samples"] == [36, 36, 36]


def test_the_doctor_says_on_each_rank_which_one_is_slow(numbered: Path, tmp_path: Path) -> None:
    with started(forked("doctor", 3, numbered, tmp_path)) as process:
        finish(process)
    for number, (limit, words) in enumerate(results(tmp_path, 3)):
        assert limit == "ranks"
        assert words.startswith("Rank 2 (")
        if number == 2:
            assert "This is rank 2, so what follows is about a slow one." in words
        else:
            assert words.endswith(
                f"Ask the doctor on rank 2: this is rank {number}, whose step waits for them."
            )


def local_verdict() -> Verdict:
    fix = Fix("threads", "num_workers=4", 300.0, 0.5, "tried")
    return Verdict("decode", 200.0, 250.0, 0.0, (Sentence("Decoding limits."),), (fix,), ())


def test_a_verdict_names_the_rank_that_is_waited_for() -> None:
    found = Gathered(ranks(rank(0), rank(1, host="b", wait=4.1, decode=38.4)), ())
    said = with_ranks(local_verdict(), found, 0)
    assert (said.limit, said.fixes) == ("ranks", ())
    first, second = said.sentences
    assert first.text.startswith("Rank 1 (b) is slow: it waits 41.0 ms per batch")
    assert "Why: decoding a sample takes" in first.text
    assert "rank 0 waits 5.0 ms per batch; rank 1 waits 41.0 ms per batch" in first.evidence
    assert second.text == "Ask the doctor on rank 1: this is rank 0, whose step waits for them."
    assert second.evidence == "Here the loop reached 200 images/s, and the loader could deliver 250."


def test_a_slow_rank_keeps_what_would_help_it() -> None:
    found = Gathered(ranks(rank(0), rank(1, host="b", wait=4.1, decode=38.4)), ())
    said = with_ranks(local_verdict(), found, 1)
    assert said.limit == "ranks"
    assert str(said).startswith("Rank 1 (b) is slow:")
    assert str(said).endswith("This is rank 1, so what follows is about a slow one. Decoding limits.")
    assert said.fixes == local_verdict().fixes


def test_ones_own_clocks_are_those_of_the_watched_loop() -> None:
    """Others may have written theirs down later; one's own went on while the loop was fed."""
    first = Gathered(ranks(rank(0)), (1, 2))
    found = Gathered(ranks(rank(0, seconds=900.0), rank(1, wait=4.1)), (2,))
    both = later(first, found, 0)
    assert both.clocks == ranks(rank(0), rank(1, wait=4.1))
    assert both.missing == (2,)
    assert later(first, None, 0) is first


def test_ranks_that_wait_alike_change_no_verdict() -> None:
    found = Gathered(ranks(rank(0, wait=4.0), rank(1, wait=4.1)), ())
    assert with_ranks(local_verdict(), found, 0) == local_verdict()


def test_one_rank_has_nobody_to_ask(numbered: Path) -> None:
    with DataLoader(numbered, batch_size=4, transform=CHAIN, num_workers=1) as loader:
        assert gathered_of(loader) is None
    with DataLoader(numbered, batch_size=4, transform=CHAIN, ranks=Ranks(1, 3), num_workers=1) as loader:
        assert gathered_of(loader) is None  # no process group
    assert gathered_of(torch.utils.data.DataLoader([1, 2])) is None  # type: ignore[arg-type]


def test_without_a_group_a_folder_is_asked_for(numbered: Path, tmp_path: Path) -> None:
    with DataLoader(
        numbered, batch_size=4, seed=0, transform=CHAIN, ranks=Ranks(1, 3), num_workers=1
    ) as loader:
        for _ in loader:
            pass
        with pytest.raises(WorldError, match=r"rank 1 of 3 has no process group .* Pass folder=, a folder"):
            gathered_stats(loader)
        found = gathered_stats(loader, folder=tmp_path)
        assert found.missing == (0, 2)
        assert str(found).endswith("Nothing is known of ranks 0, 2 so far.")
        (tmp_path / "clocks-0.json").write_text("damaged")
        damaged = gathered_stats(loader, folder=tmp_path)
        assert damaged.silent
        assert list(damaged.clocks) == [1]
        assert "The other ranks could not be asked" in str(damaged)
    assert list(tmp_path.glob("*.part")) == []


def test_what_is_old_is_not_of_now(numbered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DataLoader(
        numbered, batch_size=4, seed=0, transform=CHAIN, ranks=Ranks(0, 2), num_workers=1
    ) as loader:
        other = DataLoader(numbered, batch_size=4, seed=0, ranks=Ranks(1, 2), num_workers=1)
        gathered_stats(other, folder=tmp_path)
        assert gathered_stats(loader, folder=tmp_path).missing == ()
        now = time.time()
        monkeypatch.setattr(gathered.time, "time", lambda: now + 700)
        assert gathered_stats(loader, folder=tmp_path).missing == (1,)


def test_a_store_that_hangs_is_left(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "_PATIENCE", 0.05)

    answered = threading.Event()

    class Hanging:
        def set(self, key: str, value: str) -> None:
            answered.wait(60)

    monkeypatch.setattr(gathered, "membership", lambda world, group: (Hanging(), [0, 1], 0))
    with DataLoader(numbered, batch_size=4, seed=0, ranks=Ranks(0, 2), num_workers=1) as loader:
        found = gathered_stats(loader)
    answered.set()
    assert found.silent
    assert list(found.clocks) == [0]
    assert found.missing == (1,)


def test_words_of_what_is_missing() -> None:
    found = Gathered(ranks(rank(0), rank(1, wait=4.0)), (2, 3))
    assert str(found).startswith("Rank 1 (a) is slow")
    assert str(found).endswith("Nothing is known of ranks 2-3 so far.")


def test_a_report_of_the_ranks(tmp_path: Path) -> None:
    many = ranks(*(rank(i) for i in range(40)), rank(40, host="<b>", wait=4.0), rank(41, batches=0))
    path = report(verdict=step_limits(), ranks=Gathered(many, (42,))).save(tmp_path / "r.html")
    page = path.read_text()
    assert "Rank 40 (&lt;b&gt;) is slow" in page
    assert "Nothing is known of rank 42 so far." in page
    assert page.count("<svg") == 1
    assert found_in(path, CHARTS) == []
    empty = report(verdict=step_limits(), ranks=Gathered({}, (0,))).save(tmp_path / "e.html")
    assert "No rank has had a batch yet." in empty.read_text()
