"""Random generators of a thread's own, behind the functions of torch, ``random`` and NumPy that draw from the
process's."""

from __future__ import annotations

import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fastload.machine.generators import Generators, own

# ---- The functions of modules ----
# Those of ``random`` and ``numpy.random`` are methods of one object each. A function in place of each calls
# that object's method, or the one of the thread's own generator. They stay for good: a thread that has none
# of its own draws as before. ``from random import random`` puts a function into another module: there, too.

_TORCHS = {  # functions of torch.random, and the methods of torch.Generator
    "manual_seed": "manual_seed",
    "seed": "seed",
    "initial_seed": "initial_seed",
    "get_rng_state": "get_state",
    "set_rng_state": "set_state",
}
_ALIASES = {"sample": "random_sample", "ranf": "random_sample"}  # of numpy.random, and its seed, no methods
_lock = threading.Lock()
_is_done = False


def _of_thread(name: str, original: Callable[..., Any], kind: str, method: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def drawn(*args: Any, **named: Any) -> Any:
        mine = own.now
        if mine is None:
            return original(*args, **named)
        return getattr(getattr(mine, kind), method)(*args, **named)

    drawn.__qualname__ = name  # pickle looks it up in its module
    return drawn


def _methods(module: ModuleType, of: object, kind: str) -> dict[int, Callable[..., Any]]:
    """Return what replaces the functions of ``module`` that are methods of ``of``, by their ids."""
    found = {}
    for name in dir(module):
        value = getattr(module, name)
        if getattr(value, "__self__", None) is of and not name.startswith("_"):
            found[id(value)] = _of_thread(name, value, kind, name)
    return found


def give_way() -> None:
    """Put a function that looks for the thread's own generator in place of each that draws from the
    process's, in every module that has it. Once for the process; later calls do nothing."""
    global _is_done
    with _lock:
        if _is_done:
            return
        _is_done = True
        changed = _methods(random, random._inst, "random")  # type: ignore[attr-defined]
        changed |= _methods(np.random, np.random.mtrand._rand, "numpy")
        for name in ("seed", *_ALIASES):
            value = getattr(np.random, name)
            changed[id(value)] = _of_thread(name, value, "numpy", _ALIASES.get(name, name))
        for name, method in _TORCHS.items():
            value = getattr(torch.random, name)
            changed[id(value)] = _of_thread(name, value, "torch", method)
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            for name, value in list(names.items()):
                if id(value) in changed:
                    names[name] = changed[id(value)]


# ---- torch's operations ----


class _Drawing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives each operation of torch that draws a generator, where it would take the process's.

    torch itself says which operations draw (``torch.Tag.nondeterministic_seeded``), however they are reached.

    Args:
        generator: what they get.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        run = _drawn_by(func)
        return func(*args, **named) if run is None else run(self._generator, args, named)


@functools.cache
def _drawn_by(func: Any) -> Callable[[torch.Generator, tuple[Any, ...], dict[str, Any]], Any] | None:
    """Return what runs an operation with a generator, its arguments by place and by name; None: it does not
    draw."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return None
    with_one = _with_generator(func)
    if with_one is not None:
        names = [argument.name for argument in with_one._schema.arguments]
        place = names.index("generator")

        def run(generator: torch.Generator, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            given = args[place] if len(args) > place else named.get("generator")
            if given is not None:
                return func(*args, **named)
            return with_one(*args[:place], **{**named, "generator": generator})

        return run
    like = _LIKE.get(func.overloadpacket.__name__)
    if like is not None:
        return like
    raise RuntimeError(
        f"{func} draws from torch's generator of the process and takes no other, so it cannot run in a "
        "thread beside the training loop. Draw with a function that takes generator= (torch.rand, "
        "Tensor.bernoulli_), or pass multiprocessing_context='fork' to the DataLoader: then worker processes "
        "run its Python callables."
    )


def _with_generator(func: Any) -> Any:
    """Return the overload of an operation that takes a generator, and else the same; None: there is none."""
    names = [argument.name for argument in func._schema.arguments]
    if "generator" in names:
        return func
    packet = func.overloadpacket
    for overload in packet.overloads():
        other = getattr(packet, overload)
        if sorted(argument.name for argument in other._schema.arguments) == sorted([*names, "generator"]):
            return other
    return None


def _like(fill: Callable[..., torch.Tensor], numbers: int) -> Callable[..., torch.Tensor]:
    """Return what runs rand_like and its kin as torch does: memory, which ``fill`` fills; ``numbers``: how
    many of the arguments behind the tensor are for ``fill``."""

    def run(generator: torch.Generator, args: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor:
        tensor, *rest = args
        return fill(torch.empty_like(tensor, **named), *rest[:numbers], generator=generator)

    return run


def _filled_to(tensor: torch.Tensor, *bounds: int, generator: torch.Generator) -> torch.Tensor:
    low, high = (0, *bounds)[-2:]
    return tensor.random_(low, high, generator=generator)


_LIKE: dict[str, Callable[..., torch.Tensor]] = {
    "rand_like": _like(torch.Tensor.uniform_, 0),
    "randn_like": _like(torch.Tensor.normal_, 0),
    "randint_like": _like(_filled_to, 2),
}

# ---- Both, for a block ----


class _Mine(threading.local):
    """What the current thread keeps from one block to the next."""

    kept: tuple[Generators, _Drawing] | None = None


_mine = _Mine()


@contextmanager
def own_generators() -> Iterator[None]:
    """Let the current thread draw from generators of its own in the block, whatever other threads do.

    ``fastload.machine.generators.set_generators`` sets them. :func:`give_way` must have been called. A
    function that was kept elsewhere than in a module before that, or a ``Generator`` that the program made,
    draws as ever.

    Raises:
        RuntimeError: in the block: an operation of torch draws and takes no generator.
    """
    if _mine.kept is None:
        mine = Generators(torch.Generator(), random.Random(), np.random.RandomState())
        _mine.kept = mine, _Drawing(mine.torch)
    mine, drawing = _mine.kept
    own.now = mine
    try:
        with drawing:
            yield
    finally:
        own.now = None
