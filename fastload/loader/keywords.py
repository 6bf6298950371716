"""The error for keyword arguments that a DataLoader does not have, which names the one that was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

# What was a parameter of its own before 0.1, and where it is now.
_NOW = {
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


def refuse_unknown(init: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise TypeError, as a call of ``init`` would, for a keyword that it does not take. Say what a former
    name is now, or suggest a name that is close, as Python does from 3.13 on.

    If ``init`` is wrapped, as by Lightning while it asks for loaders, the wrapper's keywords are accepted,
    too. Nothing is refused if a wrapper does not say what it wraps.
    """
    names: list[str] = []
    around: Any = init
    while around is not None:
        code = getattr(around, "__code__", None)
        inner = getattr(around, "__wrapped__", None)
        if code is None or (inner is None and code.co_flags & inspect.CO_VARKEYWORDS):
            return
        names += code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        around = inner
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        unexpected = f"{init.__qualname__}() got an unexpected keyword argument '{unknown}'"
        raise TypeError(unexpected + _meant(unknown, names))


def _meant(unknown: str, names: Iterable[str]) -> str:
    if unknown in _NOW:
        return f". Pass {_NOW[unknown]}."
    import difflib

    plain = {name.replace("_", ""): name for name in names}
    close = difflib.get_close_matches(unknown.lower().replace("_", ""), plain, 1)
    return f". Did you mean '{plain[close[0]]}'?" if close else ""
