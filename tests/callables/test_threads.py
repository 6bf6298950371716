"""Python callables in threads, as a Python without the GIL runs them: the same batches as in the consumer's
thread, and nothing of the process's random generators. Here threads are asked for, whatever the Python is."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import random as random_by_name
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from epochs import all_batches, same
from long_forms import SEED, as_drawn, how_many
from numpy.random import rand as rand_by_name
from PIL import Image

from fastload import DataLoader
from fastload import transforms as T
from fastload.backends import batch_form
from fastload.errors import NotDelivered, SampleError
from fastload.machine.generators import kept, set_generators
from fastload.machine.thread_generators import give_way, own_generators
from fastload.machine.threads import run_at_once

CROP = T.RandomResizedCrop(16)
ZEROS = torch.zeros(5)

#: Draws from the generators of the process, as users' functions make them.
DRAWS: dict[str, Callable[[], Any]] = {
    "rand": lambda: torch.rand(3),
    "rand of a dtype": lambda: torch.rand(2, 2, dtype=torch.float64),
    "randn": lambda: torch.randn(3),
    "randint": lambda: torch.randint(10, (4,)),
    "randint between": lambda: torch.randint(2, 9, (4,)),
    "randperm": lambda: torch.randperm(6),
    "rand_like": lambda: torch.rand_like(ZEROS),
    "randn_like": lambda: torch.randn_like(ZEROS, dtype=torch.float64),
    "randint_like": lambda: torch.randint_like(ZEROS, 7),
    "randint_like between": lambda: torch.randint_like(ZEROS, 2, 7),
    "uniform_": lambda: torch.empty(3).uniform_(1, 2),
    "normal_": lambda: torch.empty(3).normal_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((6,), 0.5)),
    "bernoulli_": lambda: torch.empty(6).bernoulli_(0.3),
    "multinomial": lambda: torch.multinomial(torch.ones(5), 2),
    "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "normal about": lambda: torch.normal(ZEROS, 1.0),
    "poisson": lambda: torch.poisson(torch.full((4,), 5.0)),
    "exponential_": lambda: torch.empty(3).exponential_(),
    "random_": lambda: torch.empty(4).random_(),
    "Beta": lambda: torch.distributions.Beta(1.0, 2.0).sample((2,)),
    "gumbel_softmax": lambda: F.gumbel_softmax(ZEROS),
    "dropout": lambda: F.dropout(torch.ones(6)),
    "manual_seed": lambda: torch.manual_seed(random.randrange(99)) and torch.rand(2),
    "get_rng_state": lambda: torch.get_rng_state().sum(),
    "random": lambda: random.random(),
    "random by its name": lambda: random_by_name(),
    "gauss": lambda: random.gauss(0, 1),
    "choice": lambda: random.choice(range(100)),
    "shuffle": lambda: random.sample(range(50), 50),
    "random.seed": lambda: random.seed(5) or random.uniform(0, 1),
    "np.random.rand": lambda: np.random.rand(),
    "np.random.rand by its name": lambda: rand_by_name(2),
    "np.random.randn": lambda: np.random.randn(),
    "np.random.sample": lambda: np.random.sample(2),
    "np.random.permutation": lambda: np.random.permutation(9),
    "np.random.seed": lambda: np.random.seed(3) or np.random.normal(),
}


def made(names: list[str], words: list[int]) -> list[torch.Tensor]:
    """What the draws of these names give after the generators were set."""
    set_generators(words)
    return [torch.as_tensor(DRAWS[name]()) for name in names]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def states() -> list[Any]:
    of_numpy = np.random.get_state()[1]
    return [torch.get_rng_state().tolist(), random.getstate(), np.asarray(of_numpy).tolist()]


# ---- Generators of a thread's own -------------------------------------------------------------------


@pytest.mark.parametrize("name", list(DRAWS))
def test_a_thread_draws_the_same_and_nothing_of_the_process(name: str) -> None:
    with kept():
        alone = made([name, name], [1, 2, 3, 4])
    give_way()
    before = states()

    def drawn() -> list[torch.Tensor]:
        with own_generators():
            return made([name, name], [1, 2, 3, 4])

    with ThreadPoolExecutor(1) as pool:
        assert equal(pool.submit(drawn).result(), alone)
    assert states() == before


def test_drawn_programs_in_threads_at_once() -> None:
    """Programs of draws, made at random, by four threads at once, while this one draws, too."""
    give_way()
    rng = random.Random(SEED)
    cases = []
    for _ in range(how_many(40, 4_000)):
        cases.append((rng.choices(list(DRAWS), k=8), [rng.getrandbits(32) for _ in range(4)]))
    assert cases

    def drawn(case: tuple[list[str], list[int]]) -> list[torch.Tensor]:
        with own_generators():
            return made(*case)

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(drawn, case) for case in cases]
        for case, one in zip(cases, running, strict=True):
            with kept():
                assert equal(one.result(), made(*case)), as_drawn(case)


def test_a_draw_that_takes_no_generator_is_an_error() -> None:
    give_way()
    with own_generators(), pytest.raises(RuntimeError, match=r"native_dropout.* takes no other, .*'fork'"):
        torch.ops.aten.native_dropout(torch.ones(4), 0.5, True)


def test_a_generator_of_the_users_own_is_used() -> None:
    give_way()
    mine = torch.Generator().manual_seed(5)
    alone = torch.rand(3, generator=torch.Generator().manual_seed(5))
    with own_generators():
        assert torch.equal(torch.rand(3, generator=mine), alone)


def test_whether_threads_run_at_once() -> None:
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)
    assert run_at_once() is not has_gil()


# ---- The loader -------------------------------------------------------------------------------------


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader takes threads for callables."""
    monkeypatch.setattr(batch_form, "run_at_once", lambda: True)


def drawn(image: Image.Image) -> torch.Tensor:
    """A draw of each of the three, and the picture's first value."""
    draws = torch.rand(()).item(), random.random(), float(np.random.rand())
    return torch.tensor([*draws, float(np.array(image).ravel()[0])], dtype=torch.float64)


def noisy(image: torch.Tensor) -> torch.Tensor:
    return image + torch.randn_like(image) * random.random()


def mixed(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.stack([sample for sample, _ in samples])
    return values.roll(int(torch.randint(8, ()))), torch.tensor([label for _, label in samples])


KINDS: dict[str, dict[str, Any]] = {
    "pictures": {"transform": T.Compose([CROP, drawn])},
    "tensors": {"transform": T.Compose([CROP, T.ToDtype("float32", scale=True), noisy])},
    "different sizes": {"transform": T.Compose([T.Resize(20), drawn])},
    "collate_fn": {"transform": T.Compose([CROP, drawn]), "collate_fn": mixed},
}


def load(folder: Path, workers: int, transform: Any = None, **options: Any) -> DataLoader:
    transform = T.Compose([CROP, drawn]) if transform is None else transform
    return DataLoader(folder, 8, True, seed=3, num_workers=workers, transform=transform, **options)


@pytest.mark.parametrize("kind", list(KINDS))
def test_batches_are_those_of_the_consumers_thread(folder: Path, threads: None, kind: str) -> None:
    alone = load(folder, 0, **KINDS[kind])
    epochs = all_batches(alone), all_batches(alone)
    assert len(epochs[0]) == 7
    assert not same(*epochs)
    for workers, persistent in ((1, False), (3, True)):
        before = states()
        with load(folder, workers, **KINDS[kind], persistent_workers=persistent) as loader:
            assert same(all_batches(loader), epochs[0])
            assert same(all_batches(loader), epochs[1])
            for _, _ in zip(loader, range(2), strict=False):  # an epoch that is left
                pass
        assert states() == before


def whose(image: Any) -> torch.Tensor:
    time.sleep(0.001)
    return torch.tensor([os.getpid(), threading.get_ident()])


def test_who_runs_them(folder: Path, threads: None) -> None:
    transform = T.Compose([CROP, whose])
    with load(folder, 2, transform) as loader:
        assert "Python, in 2 threads" in str(loader.explain())
        rows = {tuple(row) for values, _ in loader for row in values.tolist()}
    assert {pid for pid, _ in rows} == {os.getpid()}
    assert len({thread for _, thread in rows} - {threading.get_ident()}) == 2


@pytest.mark.parametrize("asks", [{"multiprocessing_context": "fork"}, {"worker_init_fn": print}])
def test_what_is_about_processes_gets_processes(folder: Path, threads: None, asks: dict[str, Any]) -> None:
    with load(folder, 2, T.Compose([CROP, whose]), **asks) as loader:
        assert os.getpid() not in {int(row[0]) for values, _ in loader for row in values}


class Counting:
    """A callable that changes itself."""

    def __init__(self) -> None:
        self.calls = 0
        self.offset = 0

    def __call__(self, image: Any) -> torch.Tensor:
        self.calls += 1
        return torch.tensor([self.offset])


@pytest.mark.parametrize("persistent", [False, True])
def test_threads_have_copies_of_the_callables(folder: Path, threads: None, persistent: bool) -> None:
    counting = Counting()
    with load(folder, 2, T.Compose([CROP, counting]), persistent_workers=persistent) as loader:
        for offset in (0, 5):
            counting.offset = offset
            found = {int(row) for values, _ in loader for row in values}
            assert found == {0 if persistent else offset}
    assert counting.calls == 0


class Uncopied:
    """A callable with a lock, which cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, image: Any) -> torch.Tensor:
        return torch.zeros(1)


def test_a_callable_that_cannot_be_copied(folder: Path, threads: None) -> None:
    wanted = pytest.raises(TypeError, match=r"cannot be copied: .*multiprocessing_context='fork'")
    with load(folder, 2, T.Compose([CROP, Uncopied()])) as loader, wanted:
        next(iter(loader))


def failing(image: Any) -> torch.Tensor:
    if random.random() < 0.1:
        raise KeyError("no such thing")
    return torch.zeros(1)


def test_an_error_names_its_sample(folder: Path, threads: None) -> None:
    def words(workers: int) -> list[str]:
        with load(folder, workers, T.Compose([CROP, failing])) as loader:
            with pytest.raises(SampleError, match=r"raised KeyError: 'no such thing'") as caught:
                all_batches(loader)
            assert isinstance(caught.value.__cause__, KeyError)
            return str(caught.value).splitlines()

    assert words(2) == words(0)


def slow(image: Any) -> torch.Tensor:
    time.sleep(0.5)
    return torch.zeros(1)


def test_a_timeout(folder: Path, threads: None) -> None:
    wanted = pytest.raises(NotDelivered, match=r"DataLoader timed out after 0\.1 seconds")
    with load(folder, 1, T.Compose([CROP, slow]), timeout=0.1) as loader, wanted:
        next(iter(loader))


def test_threads_end_with_the_loader(folder: Path, threads: None) -> None:
    before = threading.active_count()
    for _ in range(2):
        with load(folder, 2) as loader:
            next(iter(loader))
            assert threading.active_count() > before
        assert threading.active_count() == before
