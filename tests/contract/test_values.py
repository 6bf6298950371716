"""Settings that belong together come as one value, ``ranks=Ranks(0, 2)``: it checks itself."""

from __future__ import annotations

import dataclasses
import pickle
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fastload
from fastload import Block, Cache, Captions, Dali, Detection, Device, Fields, OnError, Pad, Ranks, Tokenizers
from fastload.backends.values import check_collate
from fastload.errors import WorldError

# One of each, with as many settings as go together.
VALUES = {
    "Block": Block(3, window=9),
    "Cache": Cache("64GB", decoded=384),
    "Dali": Dali("auto", memory_limit=1 << 30),
    "Device": Device("cuda:1", memory="reuse"),
    "Fields": Fields(("image", "boxes"), masks="dense"),
    "OnError": OnError("skip", log="bad.jsonl", max_pixels=10**6),
    "Pad": Pad(64, 96, then=list),
    "Ranks": Ranks(1, 4, handshake="off"),
    "Tokenizers": Tokenizers({"caption": len}, threads=2),
}
WORDS = [  # of each setting that is one of several words
    (kind, field.name, typing.get_args(part))
    for kind in map(type, VALUES.values())
    for field in dataclasses.fields(kind)
    for hint in [typing.get_type_hints(kind)[field.name]]
    for part in (hint, *typing.get_args(hint))
    if typing.get_origin(part) is typing.Literal and len(typing.get_args(part)) > 1
]


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_public_and_prints_as_it_is_typed(name: str) -> None:
    value = VALUES[name]
    assert type(value) is getattr(fastload, name)
    assert name in fastload.__all__
    known = {**vars(fastload), name: type(value), "list": list}
    text = repr(value).replace(repr(list), "list").replace(repr(len), "len")
    assert eval(text, known) == value


@pytest.mark.parametrize("name", VALUES)
def test_a_value_compares_hashes_and_pickles(name: str) -> None:
    value = VALUES[name]
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert type(value)(**({"by_field": {"caption": str}} if name == "Tokenizers" else {})) != value
    if name != "Tokenizers":  # it holds a dict
        assert hash(again) == hash(value)
    field = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, None)


def test_the_words_of_settings() -> None:
    assert {(kind.__name__, name) for kind, name, _ in WORDS} == {
        ("Cache", "format"),
        ("Device", "memory"),
        ("Fields", "masks"),
        ("OnError", "action"),
        ("Ranks", "handshake"),
    }
    for kind, name, words in WORDS:
        for word in words:
            assert getattr(kind(**{name: word}), name) == word
        one_of = rf"must be one of {', '.join(words)}\. Found: 'x'"
        with pytest.raises(ValueError, match=one_of):
            kind(**{name: "x"})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Block(nodes=0), ValueError, "Block.nodes must be >= 1. Found: 0"),
        (lambda: Block(nodes=None), TypeError, "Block.nodes must be an integer. Found: None"),
        (lambda: Block(0), ValueError, "Block.size must be >= 1. Found: 0"),
        (lambda: Block(window=1.5), TypeError, "Block.window must be an integer. Found: 1.5"),
        (lambda: Cache("/dev/shm"), ValueError, r"Cache.size must be bytes, a size"),
        (lambda: Cache("much"), ValueError, "cache='much' is not understood"),
        (lambda: Cache(0), ValueError, "Cache.size must be >= 1. Found: 0"),
        (lambda: Cache(["64GB"]), TypeError, r"Cache.size must be bytes, a size .*Found: \['64GB'\]"),
        (lambda: Cache(folder=3), TypeError, "Cache.folder must be a path or None. Found: 3"),
        (lambda: Cache(decoded=0), ValueError, "Cache.decoded must be 1 to 65500"),
        (lambda: Cache(decoded="half"), TypeError, "Cache.decoded must be a number of pixels"),
        (lambda: Cache(disk="64GB"), ValueError, "Cache.disk must be a folder and a size"),
        (lambda: Cache(decoded=64, format="auto"), ValueError, "exclude each other"),
        (lambda: Dali(2), ValueError, "Dali.decode_share must be <= 1. Found: 2"),
        (lambda: Dali(-0.1), ValueError, "Dali.decode_share must be >= 0. Found: -0.1"),
        (lambda: Dali(float("nan")), ValueError, "Dali.decode_share must be >= 0. Found: nan"),
        (lambda: Dali("all"), ValueError, "Dali.decode_share must be 'auto' or a number"),
        (lambda: Dali(memory_limit=0), ValueError, "Dali.memory_limit must be >= 1. Found: 0"),
        (lambda: Device("tpu"), ValueError, "must be .*Found: 'tpu'"),
        (lambda: Fields("image"), TypeError, "must be a list of names. Found: 'image'"),
        (lambda: Fields([]), ValueError, "must name some fields, each once"),
        (lambda: Fields(["image", "image"]), ValueError, "must name some fields, each once"),
        (lambda: Fields(rows_of=["boxes"]), TypeError, "rows_of must be a dict of lists of names"),
        (lambda: Fields(rows_of={"boxes": "labels"}), TypeError, "rows_of must be a dict of lists of names"),
        (lambda: Fields(rows_of={"a": ["b"], "c": ["b"]}), ValueError, "rows_of: 'b' follows two others"),
        (lambda: OnError(log=5), TypeError, "OnError.log must be"),
        (lambda: OnError(max_pixels=0), ValueError, "OnError.max_pixels must be >= 1. Found: 0"),
        (lambda: OnError(max_pixels=1.5), TypeError, "OnError.max_pixels must be an integer. Found: 1.5"),
        (lambda: OnError(max_pixels=2**63), ValueError, r"OnError.max_pixels must be < 2\*\*63"),
        (lambda: Pad(0, 5), ValueError, "Pad.height"),
        (lambda: Pad(5, 0), ValueError, "Pad.*width"),
        (lambda: Pad(5), TypeError, r"both height and width, or neither. Found: Pad\(height=5\)"),
        (lambda: Pad(1.5, 2), TypeError, "Pad.height"),
        (lambda: Pad(then=5), TypeError, "Pad.then must be"),
        (lambda: Pad(then="stack"), ValueError, "Pad.then must be"),
        (lambda: Ranks(1), WorldError, "both rank and world_size, or neither"),
        (lambda: Ranks(world_size=2), WorldError, "both rank and world_size, or neither"),
        (lambda: Ranks(2, 2), WorldError, r"rank must be in \[0, world_size\). Found: rank=2, world_size=2"),
        (lambda: Ranks(0, 2, group=object()), WorldError, "not both"),
        (lambda: Ranks(0.5, 2), TypeError, "rank must be an integer. Found: 0.5"),
        (lambda: Ranks(True, 2), TypeError, "rank must be an integer. Found: True"),
        (lambda: Ranks.of({"rank": 0}), TypeError, "ranks must be .*Found: {'rank': 0}"),
        (lambda: Ranks.of(Ranks), TypeError, "ranks must be .*Found: <class"),
        (lambda: Ranks.of(np.int64(0)), TypeError, r"ranks must be .*Found: np.int64\(0\)"),
        (lambda: Ranks.of((0, 2)), TypeError, r"ranks must be .*Found: \(0, 2\)"),
        (lambda: check_collate("collate", Pad), TypeError, r"Write fastload.Pad\(...\)"),
        (lambda: check_collate("collate", Detection), TypeError, r"Write fastload.Detection\("),
        (lambda: Tokenizers(["caption"]), TypeError, "must be a dict of callables"),
        (lambda: Tokenizers({"caption": 5}), TypeError, "must be a dict of callables"),
        (lambda: Tokenizers({"caption": len}, threads=0), ValueError, "Tokenizers.threads must be >= 1"),
    ],
)
def test_values_say_what_is_wrong(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_what_values_may_hold() -> None:
    """What reads like a mistake, and is none."""
    assert Cache("off", decoded="full").decoded == "full"
    assert Device("cpu").memory == Device().memory == "fresh"
    assert Ranks().rank is None
    assert Pad(then=Detection("detr")).height is None
    assert Tokenizers({"caption": Captions()}).threads == 1
    assert Fields(["image"]) == Fields(("image",))
    assert Ranks(np.int64(0), np.int32(2)) == Ranks(0, 2)
    assert Dali(np.float32(0.5), memory_limit=np.int64(4)) == Dali(0.5, memory_limit=4)
    assert Tokenizers.of({}) is Tokenizers.of(Tokenizers()) is None
    outside = torch.distributed.GroupMember.NON_GROUP_MEMBER  # the loader says it, when it looks
    assert Ranks.of(outside).group == outside
