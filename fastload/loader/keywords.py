"""Keyword arguments that a DataLoader does not have: the error names the one that was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["refuse_unknown"]


def refuse_unknown(init: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise TypeError, as a call of ``init`` would, for a keyword that it does not take. Python says which
    one is close to it from 3.13 on."""
    while hasattr(init, "__wrapped__"):  # Lightning puts a function around each loader's
        init = init.__wrapped__
    code = init.__code__  # type: ignore[attr-defined]
    if code.co_flags & inspect.CO_VARKEYWORDS:  # somebody's, who passes on what there is
        return
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        import difflib

        plain = {name.replace("_", ""): name for name in names}
        close = difflib.get_close_matches(unknown.lower().replace("_", ""), plain, 1)
        meant = f". Did you mean '{plain[close[0]]}'?" if close else ""
        raise TypeError(f"{init.__qualname__}() got an unexpected keyword argument '{unknown}'{meant}")
