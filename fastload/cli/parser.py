"""The parser of command lines, and how it says what is wrong."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import NoReturn

_UNITED = {"shuffle": "plan FOLDER --shuffle block"}  # former verbs, and what replaces them


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong, and suggests the option or verb that was meant.

    Verbs' parsers are of this class, too.
    """

    def error(self, message: str) -> NoReturn:
        wrong = re.findall(r"(?<![^ ])--?[\w-]+", message.partition("unrecognized arguments:")[2])
        known = [option for parser in (self, *self._verbs()) for option in parser._option_string_actions]
        chosen = re.search(r"invalid choice: '([^']+)' \(choose from (.+)\)", message)
        if chosen:
            wrong, known = [chosen[1]], re.findall(r"[\w-]+", chosen[2])
        close = [near for word in wrong for near in difflib.get_close_matches(word, known, 1)]
        meant = [_UNITED[word] for word in wrong if chosen and word in _UNITED] or close
        end = "" if message.endswith((".", "?")) else "."
        advice = f"Did you mean {', '.join(meant)}?" if meant else f"See '{self.prog} --help'."
        self.exit(2, f"{self.prog}: error: {message}{end} {advice}\n")

    def _verbs(self) -> list[argparse.ArgumentParser]:
        groups = self._subparsers._group_actions if self._subparsers is not None else []
        return [parser for group in groups for parser in (group.choices or {}).values()]  # type: ignore[attr-defined,union-attr]
