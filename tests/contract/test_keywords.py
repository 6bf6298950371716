"""Keywords that a DataLoader does not have: the error names the one that was meant."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from fastload import DataLoader

OLD = {
    "shuffle_block": "shuffle=fastload.Block(size=...)",
    "shuffle_window": "shuffle=fastload.Block(window=...)",
    "rank": "ranks=fastload.Ranks(rank, world_size)",
    "world_size": "ranks=fastload.Ranks(rank, world_size)",
    "process_group": "ranks=group",
    "handshake": "ranks=fastload.Ranks(handshake=...)",
    "error_log": "on_error=fastload.OnError(log=...)",
    "max_pixels": "on_error=fastload.OnError(max_pixels=...)",
    "drop_padding": 'padding="drop"',
    "device_memory": "device=fastload.Device(memory=...)",
    "cache_decoded": "cache=fastload.Cache(decoded=...)",
    "cache_format": "cache=fastload.Cache(format=...)",
    "decode_share": "backend=fastload.Dali(decode_share=...)",
    "gpu_memory_limit": "backend=fastload.Dali(memory_limit=...)",
    "masks": "fields=fastload.Fields(masks=...)",
    "objects": "fields=fastload.Fields(rows_of=...)",
    "sizes": 'collate="pad", "ragged" or fastload.Pad(height, width)',
    "text_threads": "text=fastload.Tokenizers({...}, threads=...)",
}


@pytest.mark.parametrize("old", OLD)
def test_an_old_name_says_what_to_write(folder: Path, old: str) -> None:
    with pytest.raises(TypeError, match=rf"'{old}'\. Pass {re.escape(OLD[old])}\.$"):
        DataLoader(folder, **{old: 4})


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
