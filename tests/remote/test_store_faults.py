"""What goes wrong out there: each failure is survived, or is an error that says what it was."""

from __future__ import annotations

import re
import threading
import time
from email.utils import formatdate

import pytest
from fault_server import Fault, FaultServer, Rule
from quick_stores import DATA, MakeStore, quick

from fastload._native import _C
from fastload.errors import ShardError, StateError

SIGNED = {"signing": "sigv4", "region": "us-east-1", "access_key": "key", "secret_key": "secret"}
PASSING = {
    "503": Fault(status=503),
    "429": Fault(status=429),
    "500": Fault(status=500),
    "reset before the body": Fault(reset_after=0),
    "reset in it": Fault(reset_after=5_000),
    "cut": Fault(close_after=5_000),
    "half of the range": Fault(half=True),
    "range ignored": Fault(ignore_range=True),
    "another range": Fault(headers={"Content-Range": "bytes 7-10006/1004000"}),
    "no range named": Fault(headers={"Content-Range": ""}),
    "longer": Fault(headers={"Content-Length": "20000"}, close_after=10_000),
    "shorter": Fault(headers={"Content-Length": "500"}),
    "stalled": Fault(stall_after=5_000),
    "never answered": Fault(hang=True),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_passes_is_survived(server: FaultServer, make_store: MakeStore, fault: Fault) -> None:
    stalls = fault.hang or fault.stall_after >= 0
    store = make_store(schedule=quick(stall=200) if stalls else quick())
    server.rules.append(Rule(fault, every=3))
    for at in range(0, 60_000, 10_000):
        assert store.get("object", at, at + 10_000) == DATA[at : at + 10_000]
    assert server.rules[0].done >= 2
    # On a busy machine an answer without a fault may take as long as one that never comes.
    assert store.counts()["retries"] >= server.rules[0].done
    assert stalls or store.counts()["retries"] == server.rules[0].done
    assert store.counts()["failed"] == 0


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_stays_is_an_error_that_says_all(
    server: FaultServer, make_store: MakeStore, fault: Fault
) -> None:
    stalls = fault.hang or fault.stall_after >= 0
    store = make_store(schedule=quick(patience=100, **({"stall": 50} if stalls else {})))
    server.rules.append(Rule(fault))
    tries = (
        r"s3://bucket/object, bytes 100-1000099 could not be read: .+ It was tried (\d+) times in \d+\.\d s"
    )
    with pytest.raises(ShardError, match=tries) as found:
        store.get("object", 100, 1_000_100)
    counted = int(re.search(r"tried (\d+) times", str(found.value)).group(1))
    assert counted >= 6
    assert stalls or counted <= len(server.requests)  # what stalls may be given up before it is sent


def test_what_came_before_a_reset_is_not_asked_for_again(server: FaultServer, make_store: MakeStore) -> None:
    server.rules.append(Rule(Fault(reset_after=64 << 10, linger=0.3), times=3))
    assert make_store().get("object", 0, 1_000_000) == DATA[:1_000_000]
    firsts = [int(r.headers["range"][6:].split("-")[0]) for r in server.requests]
    assert firsts == sorted(firsts)
    assert len(set(firsts)) > 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(status=403, body=b"<Code>AccessDenied</Code>"), r"403 Forbidden \(AccessDenied\).*tried once"),
        (Fault(status=404), "404 Not Found.*tried once.*Check the name"),
        (Fault(status=412), "412 Precondition Failed.*tried once"),
        (Fault(status=400, body=b"no such thing\nat all"), r"400 Bad Request \(no such thing\).*region"),
    ],
)
def test_what_is_final_ends_at_once(
    server: FaultServer, make_store: MakeStore, fault: Fault, message: str
) -> None:
    server.rules.append(Rule(fault))
    with pytest.raises(ShardError, match=message):
        make_store().get("object", 0, 10)
    assert len(server.requests) == 1


def test_retry_after_is_heard(server: FaultServer, make_store: MakeStore) -> None:
    server.rules.append(Rule(Fault(status=503, headers={"Retry-After": "1"}), times=1))
    assert make_store().get("object", 0, 10) == DATA[:10]
    first, second = server.requests
    assert second.time - first.time >= 1
    server.rules.append(Rule(Fault(status=503, headers={"Retry-After": "3600"}), times=1))
    with pytest.raises(ShardError, match="503 Service Unavailable.*tried once"):
        make_store().get("object", 0, 10)


def test_throttling_halves_what_is_in_flight(server: FaultServer, make_store: MakeStore) -> None:
    store = make_store()
    server.rules.append(Rule(Fault(status=503), times=1))
    store.get("object", 0, 10)
    assert store.counts()["limit"] == 32
    assert store.counts()["throttled"] == 1


def test_a_store_is_away_for_a_while(server: FaultServer, make_store: MakeStore) -> None:
    store = make_store()
    store.get("object", 0, 10)
    server.stop()
    back = threading.Timer(0.5, server.start)
    back.start()
    assert store.get("object", 10, 500_000) == DATA[10:500_000]
    back.join()
    assert store.counts()["failed"] == 0


def test_a_store_that_stays_away_is_not_stormed(server: FaultServer, make_store: MakeStore) -> None:
    """64 requests at once; when nobody answers one at a time tries, and all end in time."""
    store = make_store(schedule=quick(part=1000, patience=400, longest_pause=50))
    server.stop()
    with pytest.raises(
        ShardError, match=r"could not be read: .*[Cc]onnect.*Check that the store can be reached"
    ):
        store.get("object", 0, 200_000)
    counts = store.counts()
    assert counts["requests"] < 64 + 60  # and not 200 times the patience
    assert counts["failed"] == 200


def test_a_name_that_is_not_known() -> None:
    store = _C.RemoteStore(
        "http://no-such-host.invalid/b", "s3://b", signing="none", schedule=quick(patience=300)
    )
    with pytest.raises(ShardError, match="s3://b/object could not be read: .*no-such-host.invalid"):
        store.get("object")
    store.close()


def test_replaced_while_in_use(server: FaultServer, make_store: MakeStore) -> None:
    server.rules.append(Rule(Fault(headers={"ETag": '"other"'}), skip=1))
    store = make_store(schedule=quick(part=500_000, in_flight=1, least_in_flight=1, most_in_flight=1))
    with pytest.raises(
        ShardError, match='was replaced while it was in use: its ETag is "other", it was "f51'
    ):
        store.get("object", 0, 1_000_000)


def test_expired_credentials_are_renewed_once(server: FaultServer, make_store: MakeStore) -> None:
    asked: list[str] = []
    made: list[_C.RemoteStore] = []
    threads: list[int] = []

    def renew(path: str) -> None:
        asked.append(path)
        threads.append(threading.get_ident())
        made[0].set_credentials("new", "secret", "token")

    made.append(make_store(renew=renew, **SIGNED))
    expired = Fault(status=400, body=b"<Error><Code>ExpiredToken</Code></Error>")
    server.rules.append(Rule(expired, times=1))
    assert made[0].get("object", 0, 10) == DATA[:10]
    assert asked == ["object"]
    assert threads == [threading.get_ident()]
    assert "Credential=new/" in server.requests[-1].headers["authorization"]
    server.rules.append(Rule(Fault(status=403)))
    with pytest.raises(ShardError, match="403 Forbidden.*tried 2 times"):
        made[0].get("object", 0, 10)
    assert len(asked) == 2
    made.clear()


def test_a_renewal_that_fails_is_the_error(server: FaultServer, make_store: MakeStore) -> None:
    def renew(path: str) -> None:
        raise KeyError("no profile")

    server.rules.append(Rule(Fault(status=403)))
    with pytest.raises(ShardError, match="(?s)s3://bucket: other credentials could not be had.*no profile"):
        make_store(renew=renew, **SIGNED).get("object", 0, 10)


def test_a_wrong_clock_is_set_by_the_stores(server: FaultServer, make_store: MakeStore) -> None:
    date = formatdate(time.time() + 7200, usegmt=True)
    skewed = Fault(status=403, body=b"<Code>RequestTimeTooSkewed</Code>", headers={"Date": date})
    server.rules.append(Rule(skewed, times=1))
    assert make_store(**SIGNED).get("object", 0, 10) == DATA[:10]
    first, second = (r.headers["x-amz-date"] for r in server.requests)
    assert first[:11] + first[11:13] < second[:13]


def test_late_requests_are_sent_twice(server: FaultServer, make_store: MakeStore) -> None:
    """1% of the answers take 10 s: the second request is first, and 3% at most are sent.

    Few requests are in flight, and none is late before 300 ms: a busy machine has few others that are.
    """
    limits = {"in_flight": 8, "least_in_flight": 8, "most_in_flight": 8}
    store = make_store(schedule=quick(part=1000, hedge_floor=300, hedged_share=0.03, **limits))
    server.rules.append(Rule(Fault(delay=10.0), every=100, skip=150))
    for _ in range(2):
        assert store.get("object", 0, 400_000) == DATA[:400_000]
    counts = store.counts()
    assert counts["hedges_won"] >= 4
    assert counts["hedges"] <= 0.03 * counts["requests"]


def test_a_tenth_hangs(server: FaultServer, make_store: MakeStore) -> None:
    store = make_store(schedule=quick(part=5_000, stall=300, hedge_floor=50))
    server.rules.append(Rule(Fault(hang=True), every=10))
    assert store.get("object", 0, 1_000_000) == DATA[:1_000_000]
    assert store.counts()["stalled"] + store.counts()["hedges_won"] >= 15


def test_closing_ends_what_hangs(server: FaultServer, make_store: MakeStore) -> None:
    store = make_store()
    server.rules.append(Rule(Fault(hang=True)))
    found: list[BaseException] = []

    def read() -> None:
        try:
            store.get("object")
        except StateError as error:
            found.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(server.requests) < 8:
        time.sleep(0.01)
    store.close()
    for thread in threads:
        thread.join(100)
    assert len(found) == 8
    with pytest.raises(StateError, match="closed"):
        store.get("object")
