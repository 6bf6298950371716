"""All of the DataLoader's arguments are checked before anything opens, be they short forms or values."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
import typing
from pathlib import Path
from typing import Any

import pytest
from cache_folder import memory_folder
from epochs import all_batches, same

from fastload import (
    Block,
    Cache,
    Dali,
    DataLoader,
    Device,
    Fields,
    OnError,
    PackingSampler,
    Pad,
    Ranks,
    Tokenizers,
)
from fastload import transforms as T
from fastload._native import _C
from fastload.cache.settings import CacheSetting
from fastload.loader.arguments import Arguments
from fastload.loader.options import resolve

CROP = T.RandomResizedCrop(16)
DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(DataLoader.__init__).parameters.items()
    if name != "self"
}


def resolved(**given: Any) -> Any:
    return resolve(Arguments("nowhere", **given))


PACKS: dict[str, Any] = {"sampler": PackingSampler([5, 6], 9), "batch_size": 2}

# For each argument that can be wrong by itself, or with another, what is refused before anything opens.
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dataset": 5}, TypeError, "dataset must be a folder"),
    ({"batch_size": 0}, ValueError, "batch_size must be >= 1"),
    ({"shuffle": "all"}, ValueError, "shuffle must be True, False, 'block' or fastload.Block"),
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
    ({"ranks": 5}, TypeError, "ranks must be"),
    ({"on_error": "ignore"}, ValueError, "on_error must be one of raise, skip, replace"),
    ({"padding": "x"}, ValueError, "padding must be one of mark, repeat, end, drop"),
    ({"batch_sampler": [[0]], "padding": "drop"}, ValueError, "batch_sampler excludes padding='drop'"),
    ({"fields": "image"}, TypeError, "fields must be a list of names"),
    ({"fields": ["image", "image"]}, ValueError, "each once"),
    ({"device": "tpu"}, ValueError, "device must be None"),
    ({"batch_transform": 5}, TypeError, "batch_transform takes"),
    ({"autotune": 5}, TypeError, "autotune must be True or False"),
    ({"cache": "much"}, ValueError, "cache='much' is not understood"),
    ({"backend": "x"}, ValueError, "backend must be one of native, dali"),
    ({"backend": "dali", "autotune": True}, ValueError, "DALI's number is fixed"),
    ({"backend": "dali", "cache": Cache(decoded=64)}, ValueError, "is for backend='native'"),
    ({"text": ["caption"]}, TypeError, "text must be a dict of callables"),
    ({"text": {"caption": 5}}, TypeError, "text must be a dict of callables"),
    ({"text": {"caption": len}, "batch_size": None}, ValueError, "samples one by one"),
    ({"text": {"caption": len}, "collate": "list"}, ValueError, "which have no texts"),
    ({"storage_options": {"key": "a"}}, ValueError, "storage_options are for URLs of stores"),
    ({"collate": "rows"}, ValueError, r"collate must be one of .*stack, pad, ragged.*Found: 'rows'"),
    ({"collate": 5}, TypeError, "collate must be"),
    ({"collate": (64, 96)}, TypeError, r"collate must be .*fastload.Pad.*Found: \(64, 96\)"),
    ({"collate": "pad", "collate_fn": list}, ValueError, "exclude each other"),
    ({"collate": list, "batch_size": None}, ValueError, "one by one"),
    ({**PACKS, "batch_size": None}, ValueError, "PackingSampler and batch_size=None exclude .* counts packs"),
    ({**PACKS, "backend": "dali"}, ValueError, "PackingSampler and backend='dali' exclude each other"),
    ({**PACKS, "collate_fn": list}, ValueError, "it gets samples, .* Pass a callable as collate"),
    (
        {**PACKS, "collate": "detr"},
        ValueError,
        "collate='detr' exclude .* its targets have no packs",
    ),
    ({**PACKS, "on_error": "replace"}, ValueError, "on_error='replace' .* another sample has another length"),
    ({**PACKS, "shuffle": True}, ValueError, "shuffle=True and a sampler exclude each other"),
    ({"storage_options": 5}, TypeError, "storage_options must be a dict"),
]
# What can be anything, as far as can be said without a dataset.
FREE = {
    "multiprocessing_context",
    "pin_memory_device",
    "snapshot_every_n_steps",
}


@pytest.mark.parametrize(("given", "error", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_refused_before_anything_opens(
    given: dict[str, Any], error: type[Exception], message: str
) -> None:
    """The folder does not exist, which would be another error."""
    with pytest.raises(error, match=message):
        DataLoader(**{"dataset": "no/such/folder", **given})


def test_every_argument_is_here() -> None:
    named = {name for given, _, _ in REFUSED for name in given}
    assert len(DEFAULTS) == 32
    assert set(DEFAULTS) - FREE <= named


def test_arguments_are_the_parameters() -> None:
    """Names, order, defaults and types are written twice: for callers, and for what is kept of a call."""
    kept = {one.name: one.default for one in dataclasses.fields(Arguments) if one.name != "dataset"}
    assert list(kept.items()) == list(DEFAULTS.items())[1:]
    written, hints = DataLoader.__init__.__annotations__, Arguments.__annotations__
    assert {name: written[name] for name in hints} == hints
    assert Arguments("a").changed(seed=1).as_keywords() == {**DEFAULTS, "dataset": "a", "seed": 1}
    with pytest.raises(TypeError, match="sede"):
        Arguments("a").changed(sede=1)


def test_the_docstring_can_be_read_at_once() -> None:
    """Two screens: what is longer belongs to a value's own docstring."""
    words = inspect.getdoc(DataLoader)
    assert words is not None
    assert len(words.splitlines()) <= 90
    parameters = words[words.index("Args:") : words.index("It passes")]
    begun = re.split(r"\n    (?=\w)", parameters)[1:]
    assert {name for one in begun for name in one.partition(":")[0].split(", ")} == set(DEFAULTS)
    assert max(len(one.strip().splitlines()) for one in begun) <= 5


def test_words_are_those_that_the_types_name() -> None:
    hints = typing.get_type_hints(DataLoader.__init__)
    for name in ("on_error", "padding", "backend"):
        literals = [part for part in typing.get_args(hints[name]) if _is_literal(part)]
        words = typing.get_args(literals[0])
        for word in words:
            resolved(**{name: word})
        with pytest.raises(ValueError, match=rf"{name} must be one of {', '.join(words)}\. Found: 'x'"):
            resolved(**{name: "x"})


def _is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Literal


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ({"shuffle": Block()}, {"shuffle": "block"}),
        ({"ranks": Ranks()}, {}),
        ({"on_error": OnError("skip")}, {"on_error": "skip"}),
        ({"device": Device("cpu")}, {"device": "cpu"}),
        ({"backend": Dali()}, {"backend": "dali"}),
        ({"cache": Cache()}, {}),
        ({"cache": Cache("off")}, {"cache": "off"}),
        ({"cache": Cache("64GB")}, {"cache": "64GB"}),
        ({"cache": Cache("50%")}, {"cache": CacheSetting("on", share=0.5)}),
        (
            {"cache": Cache(1000, folder="/dev/shm")},
            {"cache": CacheSetting("on", limit=1000, root=Path("/dev/shm"))},
        ),
        ({"cache": Cache(folder="/dev/shm")}, {"cache": "/dev/shm"}),
        ({"fields": Fields(["image"])}, {"fields": ["image"]}),
        ({"collate": Pad()}, {"collate": "pad"}),
        ({"text": Tokenizers({"caption": len})}, {"text": {"caption": len}}),
    ],
    ids=str,
)
def test_a_value_means_what_its_short_form_means(value: dict[str, Any], short: dict[str, Any]) -> None:
    assert resolved(**value) == resolved(**short)


def test_batches_are_those_of_the_shorthand(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 8, "transform": CROP, "seed": 3, "cache": "off"}
    assert same(
        all_batches(DataLoader(folder, shuffle=Block(), **options)),
        all_batches(DataLoader(folder, shuffle="block", **options)),
    )
    blocks = all_batches(DataLoader(folder, shuffle=Block(3, 9), **options))
    again = pickle.loads(pickle.dumps(DataLoader(folder, shuffle=Block(3, 9), **options)))
    assert same(all_batches(again), blocks)
    with memory_folder(tmp_path) as memory:
        if not _C.file_system(str(memory.path))["in_memory"]:
            pytest.skip("no file system in memory has room")
        cache = Cache(folder=memory.path, decoded="full")
        full = all_batches(DataLoader(folder, **{**options, "cache": cache}))
    assert same(full, all_batches(DataLoader(folder, **options)))
