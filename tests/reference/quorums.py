"""A stand-in for torchft: managers of replica groups, and the lighthouse that forms their quorums.

Only what a loader sees of it, without a network: who takes part in a step, who recovers from whom and when,
and whose step is committed. As in torchft 0.2 (``Manager._async_quorum``, ``compute_quorum_results`` of its
server).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Lighthouse:
    """Forms quorums of the replica groups that it is told are alive."""

    is_async: bool = False  # use_async_quorum
    init_sync: bool = False
    spares_above: int | None = None  # WorldSizeMode.FIXED_WITH_SPARES: so many take part
    members: dict[int, list[StandIn]] = field(default_factory=dict)  # replica groups: a manager for each rank
    sent: dict[tuple[int, int], dict[str, Any]] = field(
        default_factory=dict
    )  # their states, as a step begins
    steps: dict[int, int] = field(default_factory=dict)

    def form(self, members: dict[int, list[StandIn]]) -> None:
        """Begin a step of these replica groups."""
        self.members = dict(sorted(members.items()))
        self.steps = {number: group[0].step for number, group in self.members.items()}
        self.sent = {
            (number, rank): copy.deepcopy({key: give() for key, (_, give) in manager.states.items()})
            for number, group in self.members.items()
            for rank, manager in enumerate(group)
        }


class StandIn:
    """A ``torchft.Manager`` of one rank of one replica group."""

    def __init__(self, lighthouse: Lighthouse, number: int, rank: int) -> None:
        self._lighthouse, self._number, self._own = lighthouse, number, rank
        self.states: dict[str, tuple[Callable[[Any], None], Callable[[], Any]]] = {}
        self.step = self.committed = 0
        self.recoveries = 0
        self.errored = False
        self._place: tuple[int | None, int] = (None, 0)
        self._pending: dict[str, Any] | None = None

    def register_state_dict_fn(
        self, key: str, load_state_dict: Callable[[Any], None], state_dict: Callable[[], Any]
    ) -> None:
        assert key not in self.states
        self.states[key] = load_state_dict, state_dict

    def start_quorum(self) -> None:
        """Look up the place in the quorum that :meth:`Lighthouse.form` made."""
        house, self.errored, self._pending = self._lighthouse, False, None
        newest = max(house.steps.values())
        healthy = [number for number, step in house.steps.items() if step == newest]
        ranked = healthy if house.is_async else list(house.steps)
        rank = ranked.index(self._number) if self._number in ranked else None
        size = len(ranked)
        if house.spares_above is not None:
            size = min(size, house.spares_above)
            rank = rank if rank is not None and rank < house.spares_above else None
        self._place = rank, size
        source = healthy[self._own % len(healthy)]
        if self.step != newest or (house.init_sync and newest == 0 and self._number != source):
            self._pending = house.sent[source, self._own]
            self.step = newest
        if not house.is_async:
            self._recover()

    def _recover(self) -> None:
        found, self._pending = self._pending, None
        self.recoveries += found is not None
        for key, (load, _) in self.states.items() if found is not None else ():
            load(copy.deepcopy(found[key]))

    def participating_rank(self) -> int | None:
        return self._place[0]

    def num_participants(self) -> int:
        return self._place[1]

    def is_participating(self) -> bool:
        return self._place[0] is not None and self._pending is None

    def current_step(self) -> int:
        return self.step

    def batches_committed(self) -> int:
        return self.committed

    def report_error(self, error: Exception) -> None:
        self.errored = True

    def should_commit(self) -> bool:
        self._recover()
        if self.errored:
            return False
        self.step += 1
        self.committed += self._place[1]
        return True

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step, "batches_committed": self.committed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step, self.committed = state["step"], state["batches_committed"]
