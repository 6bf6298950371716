"""What became of mutants, and how a program that tried some tells it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

__all__ = ["LEAST_KILLED", "main", "row_of", "say", "share_killed", "told"]

LEAST_KILLED = 0.9
_ENDS = ("killed", "by time", "equivalent", "survived")


def row_of(ends: Mapping[str, int]) -> dict[str, int]:
    """How many met each end."""
    return {end: ends.get(end, 0) for end in _ENDS}


def share_killed(row: Mapping[str, int]) -> float:
    """Of those that can be killed."""
    return (row["killed"] + row["by time"]) / max(1, sum(row.values()) - row["equivalent"])


def told(name: str, seed: int, rows: Mapping[str, Mapping[str, int]], bad: list[Any]) -> dict[str, Any]:
    """The result of an instrument, of the rows of its modules; those of which too few were killed are bad."""
    say("".join(f"{head:>12}" for head in ("", *_ENDS, "killed of")))
    for module, row in rows.items():
        counts = "".join(f"{count:>12}" for count in row.values())
        say(f"{module:>12}{counts}{share_killed(row):>12.1%}")
    few = [
        [module, f"{share_killed(row):.1%} killed"]
        for module, row in rows.items()
        if share_killed(row) < LEAST_KILLED
    ]
    points = {f"{module}: {end}": count for module, row in rows.items() for end, count in row.items()}
    return {"instrument": name, "seed": seed, "points": points, "bad": few + bad}


def say(text: str) -> None:
    """A line for who waits for the end."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(run: Callable[[Mapping[str, Any]], dict[str, Any]]) -> NoReturn:
    """The program: its result as its last line."""
    result = run(json.loads(sys.argv[1]))
    say(json.dumps(result))
    sys.exit(1 if result["bad"] else 0)
