"""What a loader's state is, what is refused as one, and what of it must fit the loader that takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastload import DataLoader
from fastload.backends.state import LoaderState
from fastload.errors import StateError

STATE: dict[str, Any] = {
    "dataset": "a" * 32,
    "length": 52,
    "seed": 7,
    "shuffle": True,
    "epoch": 3,
    "position": 16,
    "version": 1,
}


def state(**changes: Any) -> LoaderState:
    """``STATE`` with changes."""
    return LoaderState(**{**STATE, **changes})


def test_a_state_is_these_keys_and_comes_back() -> None:
    assert state().to_dict() == STATE
    assert LoaderState.from_dict(STATE) == state()
    assert LoaderState(*list(STATE.values())[:6]).to_dict() == STATE  # of the version that is written


def test_a_state_of_batches_that_others_are_put_into_has_one_more() -> None:
    assert state(global_batch=16).to_dict() == {**STATE, "global_batch": 16}
    assert LoaderState.from_dict({**STATE, "global_batch": 16}).global_batch == 16
    assert LoaderState.from_dict({**STATE, "global_batch": 1}).global_batch == 1
    assert LoaderState.from_dict({**STATE, "global_batch": None}).to_dict() == STATE


def test_a_state_survives_json() -> None:
    for shuffle in (True, False, "block:8:64"):
        before = state(shuffle=shuffle, seed=None, dataset="")
        assert LoaderState.from_dict(json.loads(json.dumps(before.to_dict()))) == before


@pytest.mark.parametrize("name", sorted(STATE))
def test_no_key_may_be_missing(name: str) -> None:
    with pytest.raises(StateError, match="Not a loader state: expected the keys") as caught:
        LoaderState.from_dict({key: value for key, value in STATE.items() if key != name})
    assert str(sorted(STATE)) in str(caught.value)  # without the one that most states do not have


def test_no_other_key_may_be_there() -> None:
    with pytest.raises(StateError, match="Not a loader state: .* Found: .*'more'"):
        LoaderState.from_dict({**STATE, "more": 1})


@pytest.mark.parametrize("wrong", [None, 3, [("version", 1)], "state"])
def test_a_state_is_a_dict(wrong: Any) -> None:
    with pytest.raises(StateError, match=f"A loader state is a dict.* of type {type(wrong).__name__}"):
        LoaderState.from_dict(wrong)


@pytest.mark.parametrize("version", [0, 2, None])
def test_another_version_is_refused(version: Any) -> None:
    with pytest.raises(StateError, match=f"version must be 1. Found: {version}"):
        LoaderState.from_dict({**STATE, "version": version})


@pytest.mark.parametrize("name", ["length", "seed", "epoch", "position"])
@pytest.mark.parametrize("value", [-1, 1.0, "1", None])
def test_numbers_are_whole_and_not_negative(name: str, value: Any) -> None:
    if name == "seed" and value is None:  # not drawn yet
        assert LoaderState.from_dict({**STATE, name: value}).seed is None
        return
    with pytest.raises(StateError, match=f"{name} of a loader state must be an integer >= 0") as caught:
        LoaderState.from_dict({**STATE, name: value})
    assert f"Found: {value!r}." in str(caught.value)


@pytest.mark.parametrize("name", ["epoch", "position"])
def test_a_seed_that_is_not_drawn_yet_excuses_no_other_number(name: str) -> None:
    with pytest.raises(StateError, match=f"{name} of a loader state must be an integer >= 0"):
        LoaderState.from_dict({**STATE, "seed": None, name: -1})


@pytest.mark.parametrize("name", ["length", "seed", "epoch", "position"])
def test_zero_is_a_number(name: str) -> None:
    assert LoaderState.from_dict({**STATE, name: 0}) == state(**{name: 0})


@pytest.mark.parametrize("size", [0, -1, 1.5, "16"])
def test_a_global_batch_has_a_sample(size: Any) -> None:
    with pytest.raises(StateError, match=r"an integer >= 1 and < 2\*\*63. Found: "):
        LoaderState.from_dict({**STATE, "global_batch": size})


@pytest.mark.parametrize(
    ("name", "value"), [("dataset", "b" * 32), ("length", 53), ("seed", 8), ("shuffle", False)]
)
def test_what_must_be_the_same(name: str, value: Any) -> None:
    with pytest.raises(StateError, match="The state does not fit this loader") as caught:
        state().check_fits(state(**{name: value}))
    assert f"{name} was {value!r}, is {STATE[name]!r}" in str(caught.value)
    assert str(caught.value).count(", is ") == 1


def test_every_difference_is_named() -> None:
    with pytest.raises(StateError, match="length was 53, is 52; seed was 8, is 7"):
        state().check_fits(state(length=53, seed=8))


def test_what_may_differ() -> None:
    state().check_fits(state(epoch=9, position=0, global_batch=4))
    state().check_fits(state(seed=None))  # of before the first iteration
    state().check_fits(state(dataset="b" * 32), same_as=("c" * 32, "b" * 32))
    with pytest.raises(StateError, match="seed was 7, is None"):
        state(seed=None).check_fits(state())
    with pytest.raises(StateError, match="dataset was"):
        state().check_fits(state(dataset="d" * 32), same_as=("c" * 32, "b" * 32))


def test_the_rest_of_a_torch_datasets_state_is_torchdatas() -> None:
    assert LoaderState.divided({**STATE, "workers": {"0": 1}}) == (STATE, {"workers": {"0": 1}})
    assert LoaderState.divided({**STATE, "global_batch": 2}) == ({**STATE, "global_batch": 2}, {})
    assert LoaderState.divided(5) == (5, {})


def test_a_packed_sets_loader_takes_its_own_keys_alone(folder: Path) -> None:
    with DataLoader(folder, batch_size=8, num_workers=1) as loader:
        saved = loader.state_dict()
        loader.load_state_dict(saved)
        with pytest.raises(StateError, match="Not a loader state"):
            loader.load_state_dict({**saved, "workers": {}})


def test_a_position_behind_the_epochs_end_is_refused(folder: Path) -> None:
    with DataLoader(folder, batch_size=8, num_workers=1) as loader:
        saved = loader.state_dict()
        loader.load_state_dict({**saved, "position": 52})
        with pytest.raises(
            StateError, match="position of a loader state must be at most 52, the end of epoch 0"
        ):
            loader.load_state_dict({**saved, "position": 53})
