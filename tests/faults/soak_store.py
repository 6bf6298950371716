"""The store of a soak: the sets by HTTP, from a process of its own, on a good day or a bad one by turns."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

from fault_server import Fault, FaultServer, Rule
from soak_sets import forked

#: Weathers, by name: rules; "away": the server does not listen for a while.
WEATHERS = {
    "calm": [],
    "overloaded": [Rule(Fault(status=503, body=b"busy"), every=4)],
    "slow": [Rule(Fault(delay=0.3), every=3)],
    "reset": [Rule(Fault(reset_after=700), every=5)],
    "cut": [Rule(Fault(close_after=500), every=5)],
    "stalls": [Rule(Fault(stall_after=300), every=25)],
    "halves": [Rule(Fault(half=True), every=4)],
    "damages": [Rule(Fault(damage=True), path=".arrow", every=6)],
    "away": [],
}


def serve(folder: Path, told: Path, seed: str, turn: float) -> int:
    """Serve until SIGTERM; ``told`` gets the port first, then how often each weather came."""
    chance, ended, came = random.Random(seed), [], dict.fromkeys(WEATHERS, 0)
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    requests = 0
    with FaultServer(folder=folder) as server:
        while not ended:
            weather = chance.choice(list(WEATHERS))
            came[weather] += 1
            server.rules[:] = [Rule(rule.fault, rule.path, every=rule.every) for rule in WEATHERS[weather]]
            if weather == "away":
                server.stop()
            requests += len(server.requests)
            server.requests.clear()
            part = told.with_suffix(".part")
            part.write_text(json.dumps({"port": server.port, "weathers": came, "requests": requests}))
            os.replace(part, told)
            time.sleep(chance.uniform(0.3, 1.0) * turn)
            if weather == "away":
                server.start()
    return 0


class Store:
    """The process; ``url`` is where the sets are."""

    def __init__(self, folder: Path, told: Path, log: Path, seed: str, turn: float) -> None:
        self.told = told
        self.pid = forked(lambda: serve(folder, told, seed, turn), log)
        end = time.monotonic() + 60
        while not told.exists():
            if time.monotonic() > end:
                raise RuntimeError(f"The store does not start: {log.read_text()}")
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{self.counts()['port']}"

    def counts(self) -> dict[str, object]:
        return dict(json.loads(self.told.read_text()))

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)
