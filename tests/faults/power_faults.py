"""Cuts the power at every change that a verb makes, and looks at what the disk may hold then.

Run as a program with ``failing_calls.so`` preloaded: ``power_faults.py JSON``, with "verbs" (default: all
that are durable), a "folder" in memory, at how many "points" (0: at every change) and a "seed". The verb
runs once, its changes are recorded, and ``power_loss.Replay`` makes states of them. Each becomes a folder,
in which the set must be sound and the same command must give what it gives undisturbed. Behind the last
change everything must be there already: the verb has said that it is done. Prints one JSON object: states,
and what was bad.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from call_faults import CALLS, Lane, in_child
from power_loss import Replay, read_trace, snapshot_tree, write_tree
from verb_processes import tell
from verbs import VERBS

STATES = 6  # at one change


class PowerLane(Lane):
    """A lane whose states are made of a record."""

    def recorded(self) -> Replay:
        """Run once, undisturbed."""
        self.begin()
        before = snapshot_tree(self.place.work)
        trace = self.place.root / "trace"
        trace.unlink(missing_ok=True)

        def run() -> int:
            CALLS.trace(trace, f"{self.place.work}*")
            try:
                return self.verb.run(self.place)
            finally:
                CALLS.trace(None)

        done = in_child(run)
        assert done.get("code") == 0, done
        replay = Replay(self.place.work, before, read_trace(trace))
        after = replay.final_tree()
        there = {
            str(path.relative_to(self.place.work)): path.read_bytes() if path.is_file() else None
            for path in self.place.work.rglob("*")
        }
        differ = sorted(n for n in after.keys() | there.keys() if after.get(n) != there.get(n))
        assert not differ, f"the record does not give what is there: {differ}"
        return replay

    def state(self, tree: dict[str, bytes | None], ended: bool) -> str:
        """What is bad about a state, or nothing."""
        self.place.clear()
        write_tree(self.place.work, tree)
        bad = self.verb.sound(self.place)
        if not bad and ended and self.verb.durable:
            found = self.verb.final(self.place)
            lost = sorted(n for n in self.expected if found.get(n) != self.expected[n])
            bad = f"it was done, and these are lost: {lost}" if lost else ""
        return bad or self.again()


def cut_everywhere(lane: PowerLane, given: dict[str, Any]) -> tuple[int, list[Any]]:
    """States at every change, or at so many by the seed: how many there were, and what was bad."""
    random_ = random.Random(f"{given['seed']} {lane.verb.name}")
    replay = lane.recorded()
    end = len(replay.changes)
    cuts = list(range(end + 1))
    if given["points"] and given["points"] < len(cuts):
        cuts = sorted({end, *random_.sample(cuts, given["points"])})
    bad: list[Any] = []
    seen: set[tuple[int, bool]] = set()
    for cut in cuts:
        for words, tree in replay.states(cut, random_, STATES):
            key = hash(frozenset(tree.items())), cut == end
            if key in seen:
                continue
            seen.add(key)
            if found := lane.state(tree, cut == end):
                last = str(replay.changes[cut - 1]) if cut else "nothing"
                bad.append([f"{lane.verb.name}: {words}, behind {last}", found])
    return len(seen), bad


def main(given: dict[str, Any]) -> None:
    """Cut the power of the verbs that were named, or all that promise to be durable."""

    def attacked(name: str, root: Path) -> tuple[dict[str, int], list[Any]]:
        count, bad = cut_everywhere(PowerLane(VERBS[name], root), given)
        return {name: count}, bad

    durable = [verb.name for verb in VERBS.values() if verb.durable]
    tell("power_faults", given.get("verbs") or durable, attacked, given)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
