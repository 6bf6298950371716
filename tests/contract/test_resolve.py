"""All of the DataLoader's arguments are checked before anything opens; settings may come as values."""

from __future__ import annotations

import functools
import inspect
import pickle
import typing
from pathlib import Path
from typing import Any

import pytest
from cache_folder import memory_folder
from epochs import all_batches, same

import fastload
from fastload import Block, Cache, CacheSetting, Dali, DataLoader
from fastload import transforms as T
from fastload._native import _C
from fastload.errors import WorldError
from fastload.loader.options import _MODES, resolve

CROP = T.RandomResizedCrop(16)
DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(DataLoader.__init__).parameters.items()
    if name != "self"
}


def resolved(**given: Any) -> dict[str, Any]:
    return resolve({**DEFAULTS, "dataset": "nowhere", "num_workers": None, **given})


# For each argument that can be wrong by itself, or with another, what is refused before anything opens.
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dataset": 5}, TypeError, "dataset must be a folder"),
    ({"batch_size": 0}, ValueError, "batch_size must be >= 1"),
    ({"shuffle": "all"}, ValueError, "shuffle must be True, False or 'block'"),
    ({"shuffle_block": 5}, ValueError, "shuffle_block is for shuffle='block'"),
    ({"shuffle": "block", "shuffle_window": 0}, ValueError, "shuffle_window must be >= 1"),
    ({"sampler": 5}, TypeError, "sampler must be an iterable"),
    ({"batch_sampler": [[0]], "shuffle": True}, ValueError, "batch_sampler excludes"),
    ({"num_workers": -1}, ValueError, "num_workers must be >= 0"),
    ({"collate_fn": 5}, TypeError, "collate_fn must be callable"),
    ({"pin_memory": 5}, TypeError, "pin_memory must be True or False"),
    ({"drop_last": 5}, TypeError, "drop_last must be True or False"),
    ({"timeout": -1}, ValueError, "timeout must be >= 0"),
    ({"worker_init_fn": 5}, TypeError, "worker_init_fn must be callable"),
    ({"generator": 5}, TypeError, "generator must be a torch.Generator"),
    ({"prefetch_factor": 0}, ValueError, "prefetch_factor must be >= 1"),
    ({"persistent_workers": 5}, TypeError, "persistent_workers must be True or False"),
    ({"in_order": 5}, TypeError, "in_order must be True or False"),
    ({"transform": 5}, TypeError, "A transform must be one of"),
    (
        {"transform": T.Compose([T.Normalize([0.5] * 3, [0.5] * 3), T.CenterCrop(3)])},
        ValueError,
        "out of order",
    ),
    ({"seed": -1}, ValueError, r"seed must be in"),
    ({"rank": 1}, WorldError, "Pass both rank and world_size"),
    ({"rank": 2, "world_size": 2}, WorldError, "rank"),
    ({"on_error": "ignore"}, ValueError, "on_error must be one of raise, skip, replace"),
    ({"padding": "x"}, ValueError, "padding must be one of mark, repeat, end"),
    ({"drop_padding": 5}, TypeError, "drop_padding must be True or False"),
    ({"max_pixels": 0}, ValueError, "max_pixels must be >= 1"),
    ({"fields": "image"}, TypeError, "fields must be a list of names"),
    ({"fields": ["image", "image"]}, ValueError, "each once"),
    ({"sizes": "largest"}, ValueError, "sizes must be 'stack', 'pad', 'list', or"),
    ({"sizes": (0, 5)}, ValueError, "sizes must be"),
    ({"sizes": 5}, TypeError, "sizes must be"),
    ({"handshake": "x"}, ValueError, "handshake must be one of warn, raise, off"),
    ({"device": "tpu"}, ValueError, "device must be None"),
    ({"device_memory": "x"}, ValueError, "device_memory must be one of fresh, reuse, poison"),
    ({"batch_transform": 5}, TypeError, "batch_transform takes"),
    ({"autotune": 5}, TypeError, "autotune must be True or False"),
    ({"cache": "much"}, ValueError, "cache='much' is not understood"),
    ({"backend": "x"}, ValueError, "backend must be one of native, dali"),
    ({"decode_share": 0.5}, ValueError, "are for backend='dali'"),
    ({"backend": "dali", "decode_share": 2}, ValueError, "decode_share must be <= 1"),
    ({"backend": "dali", "gpu_memory_limit": 0}, ValueError, "gpu_memory_limit must be >= 1"),
    ({"cache_decoded": 0}, ValueError, "cache_decoded must be 1 to 65500"),
    ({"cache_format": "raw"}, ValueError, "cache_format must be one of jpeg, coefficients, auto"),
    ({"text": ["caption"]}, TypeError, "text must be a dict of callables"),
    ({"text": {"caption": 5}}, TypeError, "text must be a dict of callables"),
    ({"text": {"caption": len}, "batch_size": None}, ValueError, "samples one by one"),
    ({"text_threads": 0}, ValueError, "text_threads must be >= 1"),
    ({"storage_options": {"key": "a"}}, ValueError, "storage_options are for URLs of stores"),
    ({"collate": "rows"}, ValueError, r"collate must be one of .*stack, pad, or a callable\. Found: 'rows'"),
    ({"collate": 5}, TypeError, "collate must be one of"),
    ({"collate": "pad", "collate_fn": list}, ValueError, "exclude each other"),
    ({"collate": "pad", "sizes": "list"}, ValueError, "collate='pad' and sizes='list' contradict"),
    ({"collate": "stack", "sizes": (5, 5)}, ValueError, "contradict"),
    ({"collate": list, "batch_size": None}, ValueError, "one by one"),
    ({"masks": "drawn"}, ValueError, "masks must be one of packed, dense"),
    ({"objects": ["boxes"]}, TypeError, "objects must be a dict of lists of names"),
    ({"objects": {"boxes": "labels"}}, TypeError, "objects must be a dict of lists of names"),
    ({"objects": {"boxes": ["a"], "points": ["a"]}}, ValueError, "objects: 'a' follows two others"),
    ({"storage_options": 5}, TypeError, "storage_options must be a dict"),
]
# What can be anything, as far as can be said without a dataset.
FREE = {
    "worker_init_fn", "multiprocessing_context", "pin_memory_device", "snapshot_every_n_steps", "error_log",
    "process_group", "world_size",
}  # fmt: skip


@pytest.mark.parametrize(("given", "error", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_refused_before_anything_opens(
    given: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The folder does not exist, which would be another error."""
    with pytest.raises(error, match=message):
        DataLoader(**{"dataset": "no/such/folder", **given})


def test_every_argument_is_here() -> None:
    named = {name for given, _, _ in REFUSED for name in given}
    assert len(DEFAULTS) > 37
    assert set(DEFAULTS) - FREE <= named


def test_modes_are_those_that_the_types_name() -> None:
    hints = typing.get_type_hints(DataLoader.__init__)
    for name, modes in _MODES.items():
        literals = [part for part in (hints[name], *typing.get_args(hints[name])) if _is_literal(part)]
        assert tuple(typing.get_args(literals[0])) == modes, name


def _is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Literal


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ({"shuffle": Block()}, {"shuffle": "block"}),
        (
            {"shuffle": Block(4, window=8)},
            {"shuffle": "block", "shuffle_block": 4, "shuffle_window": 8},
        ),
        ({"backend": Dali()}, {"backend": "dali"}),
        (
            {"backend": Dali("auto", memory_limit=9)},
            {"backend": "dali", "decode_share": "auto", "gpu_memory_limit": 9},
        ),
        ({"cache": Cache(decoded=64)}, {"cache": CacheSetting(), "cache_decoded": 64}),
        ({"cache": Cache(format="auto")}, {"cache": CacheSetting(), "cache_format": "auto"}),
        ({"cache": Cache("64GB")}, {"cache": CacheSetting("on", limit=64 * 10**9)}),
        ({"cache": Cache("50%")}, {"cache": CacheSetting("on", share=0.5)}),
        (
            {"cache": Cache(1000, folder="/dev/shm")},
            {"cache": CacheSetting("on", limit=1000, root=Path("/dev/shm"))},
        ),
        ({"cache": Cache(folder="/dev/shm")}, {"cache": CacheSetting("on", root=Path("/dev/shm"))}),
    ],
)
def test_a_value_means_what_its_arguments_mean(value: dict[str, Any], short: dict[str, Any]) -> None:
    assert resolved(**value) == resolved(**short)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Block(0), ValueError, "Block.size must be >= 1. Found: 0"),
        (lambda: Block(window=1.5), TypeError, "Block.window must be an integer. Found: 1.5"),
        (lambda: Dali(2), ValueError, "Dali.decode_share must be <= 1. Found: 2"),
        (lambda: Dali("all"), ValueError, "Dali.decode_share must be 'auto' or a number"),
        (lambda: Dali(memory_limit=0), ValueError, "Dali.memory_limit must be >= 1. Found: 0"),
        (lambda: Cache("off"), ValueError, r"Cache.size must be bytes, a size .*Found: 'off'"),
        (lambda: Cache("/dev/shm"), ValueError, r"Cache.size must be bytes, a size"),
        (lambda: Cache("much"), ValueError, "cache='much' is not understood"),
        (lambda: Cache(0), ValueError, "Cache.size must be >= 1. Found: 0"),
        (lambda: Cache(decoded=0), ValueError, "cache_decoded must be 1 to 65500"),
        (
            lambda: resolved(shuffle=Block(4), shuffle_block=4),
            ValueError,
            r"shuffle=Block\(size=4, window=None\) and shuffle_block=4 both set its size. Leave shuffle",
        ),
        (lambda: resolved(backend=Dali(), decode_share=0.5), ValueError, "both set its decode_share"),
        (lambda: resolved(cache=Cache(), cache_decoded=9), ValueError, "both set its decoded"),
    ],
)
def test_values_say_what_is_wrong(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_batches_are_those_of_the_shorthand(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 8, "transform": CROP, "seed": 3, "cache": "off"}
    short = all_batches(DataLoader(folder, shuffle="block", shuffle_block=3, shuffle_window=9, **options))
    loader = DataLoader(folder, shuffle=Block(3, 9), **options)
    assert same(all_batches(loader), short)
    again = pickle.loads(pickle.dumps(DataLoader(folder, shuffle=Block(3, 9), **options)))
    assert same(all_batches(again), short)
    with memory_folder(tmp_path) as memory:
        if not _C.file_system(str(memory.path))["in_memory"]:
            pytest.skip("no file system in memory has room")
        cache = Cache(folder=memory.path, decoded="full")
        full = all_batches(DataLoader(folder, **{**options, "cache": cache}))
    assert same(full, all_batches(DataLoader(folder, **options)))


def test_values_are_public_and_light() -> None:
    assert {"Block", "Cache", "Dali"} <= set(fastload.__all__)
    assert Block(2) == Block(2, None)
    assert hash(Dali(0.5)) == hash(Dali(0.5))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("batchsize", "batch_size"),
        ("batchSize", "batch_size"),
        ("num_worker", "num_workers"),
        ("numworkers", "num_workers"),
        ("shufle", "shuffle"),
        ("transforms", "transform"),
        ("prefetch", "prefetch_factor"),
        ("droplast", "drop_last"),
        ("something_else", ""),
    ],
)
def test_an_unknown_keyword_names_the_one_that_was_meant(folder: Path, given: str, meant: str) -> None:
    words = rf"DataLoader.__init__\(\) got an unexpected keyword argument '{given}'"
    with pytest.raises(TypeError, match=words + (f". Did you mean '{meant}'" if meant else "$")):
        DataLoader(folder, **{given: 4})


@pytest.mark.parametrize("says", [True, False])
def test_a_function_that_somebody_put_around_the_constructor(
    folder: Path, says: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lightning does while it asks for loaders. Such a function may have keywords of its own."""
    init, noted = DataLoader.__init__, []

    def around(self: Any, *args: Any, note: str = "", **kwargs: Any) -> None:
        noted.append(note)
        init(self, *args, **kwargs)

    monkeypatch.setattr(DataLoader, "__init__", functools.wraps(init)(around) if says else around)
    assert DataLoader(folder, batch_size=4, shuffle=True, note="mine").batch_size == 4
    assert noted == ["mine"]
    with pytest.raises(TypeError, match="'batchsize'"):
        DataLoader(folder, batchsize=4)


def test_a_constructor_that_is_no_function(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init = DataLoader.__init__
    monkeypatch.setattr(DataLoader, "__init__", functools.partialmethod(init, shuffle=True))
    assert DataLoader(folder, batch_size=4).batch_size == 4
    with pytest.raises(TypeError, match="'batchsize'"):
        DataLoader(folder, batchsize=4)


def test_a_subclass_has_keywords_of_its_own(folder: Path) -> None:
    class Mine(DataLoader):
        def __init__(self, dataset: Any, *, batchsize: int) -> None:
            super().__init__(dataset, batch_size=batchsize)

    assert Mine(folder, batchsize=4).batch_size == 4
