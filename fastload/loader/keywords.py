"""The error for keyword arguments that a DataLoader does not have, which names the one that was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any


def refuse_unknown(init: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise TypeError, as a call of ``init`` would, for a keyword that it does not take, and suggest one that
    is close, as Python does from 3.13 on.

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
        import difflib

        plain = {name.replace("_", ""): name for name in names}
        close = difflib.get_close_matches(unknown.lower().replace("_", ""), plain, 1)
        meant = f". Did you mean '{plain[close[0]]}'?" if close else ""
        raise TypeError(f"{init.__qualname__}() got an unexpected keyword argument '{unknown}'{meant}")
