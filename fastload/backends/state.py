"""The state to resume from: what a loader has delivered, and what a torch Dataset knows of its own place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from torch.utils.data.dataset import IterableDataset

from fastload.errors import StateError
from fastload.extras import words

# ---- A torch Dataset's own place, as torchdata's know it --------------------------------------------


def keeps_state(dataset: Any) -> bool:
    """Whether a torch Dataset, or an iterator of it, may know its own place and can be asked for it."""
    if isinstance(dataset, IterableDataset):
        return stateful_loader() is not None
    return has_state(dataset)


def check_kept(dataset: Any, kept: Mapping[str, Any]) -> None:
    """Raise if the state has torchdata parts that nothing here can restore.

    Raises:
        StateError: torchdata is needed for it.
    """
    if kept and not (keeps_state(dataset) and stateful_loader() is not None):
        raise StateError(
            f"The state has that of a dataset and its workers ({', '.join(sorted(kept))}), saved with "
            f"torchdata's loader inside. {words('torchdata', 'Going on with it')}."
        )


@lru_cache(maxsize=1)
def stateful_loader() -> Any:
    """Return torchdata's StatefulDataLoader; None if torchdata is not installed."""
    try:
        # Import it from its module: a program may put our DataLoader into its package.
        from torchdata.stateful_dataloader.stateful_dataloader import StatefulDataLoader
    except ImportError:
        return None
    return StatefulDataLoader


def has_state(value: Any) -> bool:
    """Whether ``value`` knows its own place, as torchdata's ``Stateful`` does."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


# ---- A loader's state -------------------------------------------------------------------------------

VERSION = 1
_NUMBERS = ("global_batch", "rank")
_OPTIONAL = (*_NUMBERS, "mixture", "then")
_MOST = dict.fromkeys(("length", "epoch", "position", *_NUMBERS), 2**63) | {"seed": 2**64}


@dataclass(frozen=True)
class LoaderState:
    """The consumer's place, by what it has received: a few integers, valid for any number of ranks.

    A resumed loader goes on with position ``position`` of epoch ``epoch``; at the same global batch size
    its batches are those that the stopped run would have seen.
    """

    dataset: str  # dataset id; "" for a torch Dataset
    length: int  # samples in the dataset
    seed: int | None  # None: not drawn yet
    shuffle: bool | str  # "block:BLOCK:WINDOW" for the block shuffle, with ":NODES" if nodes keep blocks
    epoch: int
    position: int  # samples of the epoch received over all ranks (batches, for a batch_sampler)
    version: int = VERSION
    # Global batch size of the run that began the epoch, if samples are combined by it (mosaics).
    global_batch: int | None = None
    rank: int | None = None  # the saving rank, if the ranks do not divide the samples: orders differ then
    # Where a mix began, if not with the run (fastload.sampler.schedule.MixtureStart).
    mixture: str | None = None
    then: str | None = None  # the id of the set's generation that the epochs after this one have

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict, under 1 kB, whose keys depend only on the transform."""
        state = asdict(self)
        return {name: value for name, value in state.items() if value is not None or name not in _OPTIONAL}

    @classmethod
    def divided(cls, state: Any) -> tuple[Any, dict[str, Any]]:
        """Split a torch Dataset's state into this class's part and the rest, which is torchdata's."""
        if not isinstance(state, Mapping):
            return state, {}
        names = {field.name for field in fields(cls)}
        own = {name: value for name, value in state.items() if name in names}
        return own, {name: value for name, value in state.items() if name not in names}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LoaderState:
        """Make a state from the dict of :meth:`to_dict`.

        Raises:
            StateError: it is not such a dict, or of another version.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(state, Mapping):
            raise StateError(
                f"A loader state is a dict, as state_dict() gives it. Found: {state!r:.200}, of type "
                f"{type(state).__name__}."
            )
        if {*state, *_OPTIONAL} != names:
            wanted = sorted(names - {*_OPTIONAL})
            found = f"{sorted(map(str, state))}"
            inner = [
                name for name, value in state.items() if isinstance(value, Mapping) and {*value} >= {*wanted}
            ]
            advice = f"It is in state[{inner[0]!r}]." if inner else "Pass what loader.state_dict() returned."
            raise StateError(f"Not a loader state: expected the keys {wanted}. Found: {found:.400}. {advice}")
        if state["version"] != VERSION:
            raise StateError(
                f"Loader state version must be {VERSION}. Found: {state['version']!r:.80}. Upgrade "
                "fastload, or begin the epoch anew."
            )
        for name, most in _MOST.items():
            value, least = state.get(name), int(name == "global_batch")
            if value is None and name in ("seed", *_OPTIONAL):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value < most:
                raise StateError(
                    f"{name} of a loader state must be an integer >= {least} and < "
                    f"2**{most.bit_length() - 1}. Found: {value!r:.80}."
                )
        if not isinstance(state.get("then", ""), str):
            raise StateError(f"then of a loader state must be a dataset id. Found: {state['then']!r:.80}.")
        return cls(**state)

    def check_fits(
        self, other: LoaderState, same_as: Sequence[str] = (), order_differs: str | None = None
    ) -> None:
        """Refuse a state (``other``) that was saved with another dataset, seed or order.

        Args:
            same_as: ids of other datasets with the same samples and pixels, in the same order.
            order_differs: how the order differs, if there is more to say than what it was and is; "": it does
                not.

        Raises:
            StateError: they differ; the message has every difference.
        """
        names = ("dataset", "length", "seed", "shuffle")
        differences = [
            order_differs
            if name == "shuffle" and order_differs
            else f"{name} was {getattr(other, name)!r:.200}, is {getattr(self, name)!r}"
            for name in names
            if getattr(self, name) != getattr(other, name)
            and (name != "seed" or other.seed is not None)
            and (name != "dataset" or other.dataset not in same_as)
            and (name != "shuffle" or order_differs != "")
        ]
        if differences:
            raise StateError(
                f"The state does not fit this loader: {'; '.join(differences)}. Resume with the dataset "
                "and the options it was saved with, or start without it."
            )
