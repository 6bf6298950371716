"""Saved states of loaders that somebody else has written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_rules import Rule, attack, honest
from hostile_index import entries, index_bytes, write_dataset
from uses import BLOBS

from fastload import DataLoader

KIND = "loader state"
RULE = Rule(
    "SECURITY.md", "What is trusted", "may make a job fail with an error; it must not crash the process"
)
BOUND = Rule("SECURITY.md", "What is trusted", "take memory without a bound")


def resumed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Callable[[], Any]:
    """Load a changed state and read the rest of the epoch."""
    write_dataset(folder, BLOBS, index_bytes(entries(BLOBS), [b"%d" % i for i in range(5)]))

    def use() -> int:
        from fastload import transforms

        with DataLoader(
            folder, 2, shuffle=True, seed=3, num_workers=1, transform=transforms.Resize((8, 8))
        ) as loader:
            state = change(loader.state_dict())
            loader.load_state_dict(state)
            return sum(len(batch[0]) for batch in loader)

    return use


@honest(KIND)
def a_state_that_is_ours(folder: Path) -> Callable[[], Any]:
    return resumed(folder, dict)


@attack(KIND, RULE, "state")
def a_state_that_is_a_list(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: list(state.items()))


@attack(KIND, RULE, "Not a loader state")
def keys_of_several_types(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {7: 1, None: 2})


@attack(KIND, RULE, "epoch|position")
def an_epoch_of_2_to_the_200(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"epoch": 2**200})


@attack(KIND, RULE, "epoch|position")
def an_epoch_of_2_to_the_63(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"epoch": 2**63})


@attack(KIND, RULE, "position")
def a_position_of_2_to_the_64(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"position": 2**64})


@attack(KIND, RULE, "position")
def a_position_behind_the_epoch(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"position": 6})


@attack(KIND, RULE, "position")
def a_position_that_is_true(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"position": True})


@attack(KIND, RULE, "epoch")
def an_epoch_that_is_nan(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: json.loads(json.dumps(state | {"epoch": float("nan")})))


@attack(KIND, RULE, "seed")
def a_seed_of_2_to_the_200(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"seed": 2**200})


@attack(KIND, RULE, "dataset")
def a_dataset_that_is_a_list_of_lists(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"dataset": [[["x"]]]})


@attack(KIND, BOUND, "state")
def a_version_of_ten_million_letters(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"version": "x" * 10**7})


@attack(KIND, BOUND, "shuffle|state")
def an_order_of_blocks_without_bound(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"shuffle": "block:1:" + "9" * 10**6})


@attack(KIND, RULE, "global_batch|state")
def a_global_batch_of_2_to_the_200(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"global_batch": 2**200, "position": 2})


@attack(KIND, RULE, "length|state")
def a_length_of_2_to_the_200(folder: Path) -> Callable[[], Any]:
    return resumed(folder, lambda state: state | {"length": 2**200})
