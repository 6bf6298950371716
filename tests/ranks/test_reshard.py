"""loader.reshard(): worlds that change between two steps, drawn at random, beside a run without changes."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launch import finish, forked, results, started
from long_forms import SEED, as_drawn, how_many
from torch.utils.data import Dataset, DistributedSampler, IterableDataset

import fastload
from fastload import DataLoader, PackingSampler, Ranks
from fastload import transforms as T
from fastload.errors import StateError, WorldError

pytestmark = pytest.mark.filterwarnings("ignore:The epoch's last batch:fastload.errors.RankWarning")
SAMPLES = 53  # those of the fixture
MOST = 5  # ranks
LENGTHS = np.random.default_rng(5).integers(5, 60, SAMPLES)
CROP = T.RandomResizedCrop(16)

FILLED = ("repeated", "a user's batches")  # from the beginning, at the end of an epoch
EACH = ("shuffled", "in order", "blocks", "mosaics", "packs", "Python callables")  # each sample once

Item = tuple[int, str]


class Mapped(Dataset[tuple[torch.Tensor, int]]):
    """A torch Dataset, which torch's own code reads."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(index)), index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9))


def drawn(seed: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(SAMPLES) for _ in range(80)]


def batches() -> list[list[int]]:
    chance = random.Random(3)
    return [[chance.randrange(SAMPLES) for _ in range(chance.randrange(1, 5))] for _ in range(30)]


FORMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "shuffled": lambda path: {"shuffle": True, "transform": CROP},
    "in order": lambda path: {"transform": CROP},
    "drop_last": lambda path: {"shuffle": True, "transform": CROP, "drop_last": True},
    "blocks": lambda path: {"shuffle": fastload.Block(4, 16), "transform": CROP},
    "weighted": lambda path: {
        "sampler": fastload.WeightedSampler(range(1, SAMPLES + 1), 70),
        "transform": CROP,
    },
    "repeated": lambda path: {"sampler": fastload.RepeatedSampler(num_repeats=3), "transform": CROP},
    "mixed": lambda path: {
        "dataset": fastload.mix([path, path], weights=[1, 3], num_samples=90),
        "shuffle": True,
        "transform": CROP,
    },
    "drawn by a user's sampler": lambda path: {"sampler": drawn(4), "transform": CROP},
    "a user's batches": lambda path: {"batch_sampler": batches(), "transform": CROP, "batch_size": 1},
    "packs": lambda path: {"sampler": PackingSampler(LENGTHS, 100), "transform": CROP},
    "mosaics": lambda path: {
        "shuffle": True,
        "transform": T.Compose([T.Mosaic(16), T.RandomHorizontalFlip()]),
    },
    "Python callables": lambda path: {"shuffle": True, "transform": T.Compose([CROP, negative])},
    "a torch Dataset": lambda path: {
        "dataset": Mapped(),
        "shuffle": True,
        "num_workers": 0,
        "drop_last": True,
    },
}


def negative(picture: Any) -> Any:
    from PIL import ImageOps

    return np.array(ImageOps.invert(picture))


def load(path: Path, form: str, **more: Any) -> DataLoader:
    options: dict[str, Any] = {
        "dataset": path,
        "batch_size": 2,
        "seed": 9,
        "num_workers": 1,
        "padding": "mark",
    }
    options |= FORMS[form](path)
    return DataLoader(**{**options, **more})


def items_of(batch: Any) -> list[Item]:
    """The samples of a batch: their labels, and digests of their pixels."""
    images, labels = (batch["image"], batch["label"]) if isinstance(batch, dict) else batch
    digests = [hashlib.sha256(np.asarray(image).tobytes()).hexdigest()[:12] for image in images]
    return [item for item in zip(labels.tolist(), digests, strict=True) if item[0] >= 0]


def whole_run(path: Path, form: str, epochs: int) -> list[list[Counter[Item]]]:
    """For each epoch, what each position has: samples, or packs or batches of them."""
    with load(
        path, form, ranks=Ranks(0, 1), **({} if form == "a user's batches" else {"batch_size": 1})
    ) as one:
        return [[Counter(items_of(batch)) for batch in one] for _ in range(epochs)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("turn", range(how_many(2, 40)))
def test_any_sequence_of_worlds_gives_what_one_rank_gives(numbered: Path, form: str, turn: int) -> None:
    case = f"{form}, turn {turn}"
    chance = random.Random(f"{SEED} {case}")
    epochs, world = 3, chance.randint(1, MOST)
    mosaics = form == "mosaics"  # combined by the global batch that began the epoch
    expected = [] if mosaics else whole_run(numbered, form, epochs)
    loaders = [load(numbered, form, ranks=Ranks(rank % world, world)) for rank in range(MOST)]
    iterators: list[Any] = [None] * MOST
    members = list(range(world))  # the loaders that are in, by rank
    seen: dict[int, list[Counter[Item]]] = {epoch: [] for epoch in range(epochs)}
    epoch, changes = 0, 0
    while epoch < epochs:
        place = loaders[members[0]].state_dict()
        step: Counter[Item] = Counter()
        ended = []
        for member in members:
            if iterators[member] is None:
                iterators[member] = iter(loaders[member])
            batch = next(iterators[member], None)
            ended.append(batch is None)
            step.update([] if batch is None else items_of(batch))
        assert len(set(ended)) == 1
        if ended[0]:
            epoch, iterators = epoch + 1, [None] * MOST
        else:
            assert place["epoch"] == epoch
            seen[epoch].append(step)
            if not mosaics:
                size = 2 * len(members) if form != "a user's batches" else len(members)
                first = place["position"]
                there = expected[epoch][first : first + size]
                wanted = sum(there, Counter())
                if len(there) < size and form in FILLED:
                    assert step >= wanted, as_drawn(case)
                else:
                    assert step == wanted, as_drawn(case)
        if chance.random() < 0.4:
            # Some stay, with any new rank; others join, and go on where rank 0 of the old world is.
            state = json.loads(json.dumps(loaders[members[0]].state_dict()))
            new = chance.sample(range(MOST), chance.randint(1, MOST))
            for rank, member in enumerate(new):
                if member in members:
                    loaders[member].reshard(rank, len(new))
                else:
                    iterators[member] = None if iterators[members[0]] is None else iterators[member]
                    loaders[member].reshard(rank, len(new), state=state)
            members, changes = new, changes + 1
    assert changes or world
    for epoch in range(epochs):
        got = sum(seen[epoch], Counter())
        if form in EACH:
            assert sorted(label for label, _ in got.elements()) == list(range(SAMPLES))
    for loader in loaders:
        loader.close()


def test_what_is_due_again_is_not_decoded_again(numbered: Path) -> None:
    with load(numbered, "shuffled", ranks=Ranks(0, 4), prefetch_factor=4) as loader:
        iterator = iter(loader)
        next(iterator)
        feeder = loader.__fastload_view__().backends[0].feeder
        while feeder.complete < 4:
            pass
        before = loader.stats()["stages"]["decode"]["count"]
        loader.reshard(0, 3)  # rank 0's next batch is the same
        next(iterator)
        kept = [key.step for key in feeder._kept] + [one.key.step for one in feeder._queue]
        assert loader.stats()["world"] == {"rank": 0, "size": 3, "changes": 1}
        assert before == 10
        assert kept[0] == 1
        rest = [items_of(batch) for batch in iterator]
    with load(numbered, "shuffled", ranks=Ranks(0, 3)) as other:
        other.load_state_dict({**loader.state_dict(), "epoch": 0, "position": 8})
        assert [items_of(batch) for batch in other][1:] == rest


def test_between_two_epochs_and_before_the_first(numbered: Path) -> None:
    expected = whole_run(numbered, "shuffled", 3)
    with load(numbered, "shuffled", ranks=Ranks(0, 4)) as loader:
        loader.reshard(1, 2)  # before the first batch
        for epoch, world in enumerate((2, 3, 1)):
            loader.reshard(world - 1, world)
            assert len(loader) == -(-SAMPLES // (2 * world))
            for step, batch in enumerate(loader):
                first = 2 * world * step + 2 * (world - 1)
                if 2 * world * (step + 1) <= SAMPLES:
                    assert items_of(batch) == [*sum(expected[epoch][first : first + 2], Counter())]
        assert loader.stats()["world"]["changes"] == 4
        assert "rank 0 of 1" in repr(loader)


def test_two_iterations_go_on_each_at_its_place(numbered: Path) -> None:
    expected = whole_run(numbered, "shuffled", 2)
    with load(numbered, "shuffled", ranks=Ranks(0, 1)) as loader:
        first, second = iter(loader), iter(loader)
        for _ in range(4):
            next(first)
        next(second)
        loader.reshard(1, 2)
        for iterator, epoch, at in ((first, 0, 8), (second, 1, 2), (first, 0, 12)):
            assert items_of(next(iterator)) == [*sum(expected[epoch][at + 2 : at + 4], Counter())]


def test_an_iteration_whose_first_batch_failed_goes_on_at_the_state(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world that breaks up before its first batch has begun an iteration all the same."""
    expected = whole_run(numbered, "shuffled", 1)[0]
    with load(numbered, "shuffled", ranks=Ranks(0, 4)) as loader, monkeypatch.context() as broken:

        def meet(*place: int) -> None:
            raise WorldError("the store is gone")

        broken.setattr("fastload.ranks.handshake.Handshake.meet", meet)
        iterator = iter(loader)
        with pytest.raises(WorldError, match="the store is gone"):
            next(iterator)
        broken.undo()
        loader.reshard(1, 2, state={**loader.state_dict(), "position": 20})
        assert items_of(next(iterator)) == [*sum(expected[22:24], Counter())]
        assert loader.state_dict()["position"] == 24


def test_ctrl_c_waits_until_the_change_is_whole(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole_run(numbered, "shuffled", 1)[0]
    with load(numbered, "shuffled", ranks=Ranks(0, 4)) as loader:
        iterator = iter(loader)
        next(iterator)
        divided = type(loader._sampler).divided

        def interrupted(sampler: Any) -> None:
            divided(sampler)
            signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(type(loader._sampler), "divided", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loader.reshard(1, 2)
        assert loader.state_dict()["position"] == 8
        assert items_of(next(iterator)) == [*sum(expected[10:12], Counter())]


def test_an_epoch_that_ends_with_the_new_world(numbered: Path) -> None:
    with load(numbered, "shuffled", ranks=Ranks(0, 1), batch_size=50) as loader:
        iterator = iter(loader)
        next(iterator)
        loader.reshard(0, 4)  # three samples are left for four ranks
        batch = next(iterator)
        assert items_of(batch) == []
        assert next(iterator, None) is None
        assert loader.state_dict()["epoch"] == 1


def test_buckets_change_only_between_epochs(numbered: Path) -> None:
    opened = fastload.PackedDataset(numbered)
    sampler = fastload.BucketSampler(opened, [(16, 16)])
    with DataLoader(numbered, 2, sampler=sampler, transform=T.RandomResizedCrop(16), seed=1) as loader:
        loader.reshard(0, 2)
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(
            StateError, match=r"cut for 4 samples over all ranks, and 4 samples .* go on with 6"
        ):
            loader.reshard(0, 3)
        next(iterator)
        loader.reshard(1, 2)  # the same global batch
        assert loader.state_dict()["position"] == 8
        for _ in iterator:
            pass
        loader.reshard(2, 3)
        seen = [label for batch in loader for label, _ in items_of(batch)]
        assert 0 < len(seen) < SAMPLES
        assert len(seen) == len(set(seen))


def test_a_pickled_copy_has_the_new_world(numbered: Path) -> None:
    import pickle

    with load(numbered, "shuffled", ranks=Ranks(0, 4)) as loader:
        next(iter(loader))
        loader.reshard(2, 3)
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert "rank 2 of 3" in repr(copy)


def test_refusals_change_nothing(numbered: Path) -> None:
    with load(numbered, "shuffled", ranks=Ranks(1, 3)) as loader:
        iterator = iter(loader)
        next(iterator)
        before = loader.state_dict()
        wrong: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
            ((3, 3), {}, WorldError, "rank must be in"),
            ((0,), {}, WorldError, "rank and world_size"),
            ((None, 3), {}, WorldError, "rank and world_size"),
            (("0", 3), {}, TypeError, "integer"),
            ((0, 2), {"state": {**before, "position": 54}}, StateError, "at most 53"),
            ((0, 2), {"state": {**before, "seed": 10}}, StateError, "seed was 10, is 9"),
            ((0, 2), {"state": {}}, StateError, "Not a loader state"),
        ]
        for arguments, named, kind, message in wrong:
            with pytest.raises(kind, match=message):
                loader.reshard(*arguments, **named)
        assert loader.state_dict() == before
        assert loader.stats()["world"] == {"rank": 1, "size": 3, "changes": 0}
        with load(numbered, "shuffled", ranks=Ranks(1, 3)) as other:
            assert items_of(next(itertools.islice(other, 1, None))) == items_of(next(iterator))
    opened = fastload.PackedDataset(numbered)
    own = DistributedSampler(opened, num_replicas=2, rank=0)
    for whole in (
        DataLoader(opened, 2, transform=CROP, num_workers=1),
        DataLoader(opened, 2, transform=CROP, num_workers=1, sampler=own),
    ):
        with whole, pytest.raises(WorldError, match="whose ranks divide the samples"):
            whole.reshard(0, 2)
    divided: dict[str, Any] = {"transform": CROP, "num_workers": 1, "sampler": own, "seed": 1}
    with DataLoader(opened, 2, ranks=Ranks(0, 2), **divided) as doubled:
        next(iter(doubled))
        with pytest.raises(WorldError, match="DistributedSampler divides the samples itself"):
            doubled.reshard(0, 3)
    with (
        DataLoader(Stream(), 2, ranks=Ranks(0, 2)) as stream,
        pytest.raises(WorldError, match="IterableDataset"),
    ):
        stream.reshard(0, 3)


def test_a_rank_outside_of_the_group_is_told_so(numbered: Path, tmp_path: Path) -> None:
    with started(forked("outside", 2, numbered, tmp_path)) as process:
        finish(process)
    told = results(tmp_path, 2)
    assert told[0] == ""
    assert "does not include this process, global rank 1" in told[1]


def test_a_state_of_another_run_does_not_end_an_iteration(numbered: Path) -> None:
    """Its seed was drawn otherwise: the loader says so, and stays as it is."""
    with (
        load(numbered, "shuffled", ranks=Ranks(0, 2, handshake="off"), seed=None) as loader,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # no process group to agree on a seed
        iterator = iter(loader)
        next(iterator)
        before = loader.state_dict()
        with pytest.raises(StateError, match="another seed, generation or mix"):
            loader.reshard(0, 1, state={**before, "seed": before["seed"] + 1, "position": 20})
        assert loader.state_dict() == before
        assert loader.stats()["world"]["size"] == 2
        assert len(items_of(next(iterator))) == 2


def test_from_within_next_and_from_a_frameworks_pass(numbered: Path) -> None:
    asked: list[Exception] = []

    def collate(samples: Any) -> Any:
        try:
            loader.reshard(0, 2)
        except StateError as error:
            asked.append(error)
        return samples

    loader = load(numbered, "shuffled", ranks=Ranks(0, 1), collate_fn=collate, num_workers=0)
    with loader:
        next(iter(loader))
        assert "within next()" in str(asked[0])
    with load(numbered, "shuffled", ranks=Ranks(0, 1)) as plain:
        rebuilt = torch.utils.data.DataLoader(
            plain.dataset, batch_sampler=plain.batch_sampler, collate_fn=plain.collate_fn
        )
        passing = iter(rebuilt)
        next(passing)
        with pytest.raises(StateError, match="between two epochs"):
            plain.reshard(0, 2)


def test_another_thread_waits_for_the_change(numbered: Path) -> None:
    """Threads share an iterator: each batch goes to one of them, whatever the world is by then."""
    expected = whole_run(numbered, "shuffled", 1)[0]
    with load(numbered, "shuffled", ranks=Ranks(0, 2)) as loader:
        iterator, got = iter(loader), []
        got.append(items_of(next(iterator)))

        def take() -> None:
            for batch in iterator:
                got.append(items_of(batch))

        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        place = None
        while any(thread.is_alive() for thread in threads):
            loader.reshard(0, 1)
            place = place or loader.state_dict()
            loader.reshard(0, 1)
        for thread in threads:
            thread.join()
    labels = [label for items in got for label, _ in items]
    assert len(labels) == len(set(labels))
    everything = {label for counter in expected for label, _ in counter}
    assert set(labels) <= everything


@pytest.mark.parametrize("handshake", ["raise", "off"])
def test_eight_processes_that_join_and_leave(numbered: Path, tmp_path: Path, handshake: str) -> None:
    changes = 200 if handshake == "raise" else how_many(20, 1000)
    command = forked("reshards", 8, numbered, tmp_path, changes, handshake)
    with started(command) as process:
        finish(process)
    epochs = {}
    for seen, seconds in results(tmp_path, 8):
        assert len(seconds) >= changes // 5
        for epoch, position, rank, labels in seen:
            epochs.setdefault(epoch, {}).setdefault(position, {})[rank] = labels
    with load(numbered, "shuffled", transform=T.Resize((8, 8)), ranks=Ranks(0, 1)) as one:
        whole = {
            epoch: [label for batch in one for label, _ in items_of(batch)] for epoch in range(max(epochs))
        }
    assert len(whole) > changes // 20
    for epoch, wanted in whole.items():
        steps = epochs[epoch]
        found = [label for at in sorted(steps) for rank in sorted(steps[at]) for label in steps[at][rank]]
        assert found == wanted, f"epoch {epoch}"


def test_ranks_at_different_places_are_told(numbered: Path, tmp_path: Path) -> None:
    with started(forked("apart", 2, numbered, tmp_path)) as process:
        finish(process)
    for told in results(tmp_path, 2):
        assert "position is 4 on rank 0 and 6 on rank 1" in told
