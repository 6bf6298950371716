"""The reference of the command line, from its parsers: every verb, argument and option that there is."""

from __future__ import annotations

import argparse
import html
from collections.abc import Iterator

from fastload.cli.commands import build_parser

HEAD = """# Command line

`fastload VERB --help` says the same in the terminal. Interrupted, `pack`, `index`, `recode` and `warm` go on
where they were when the same command is given again.

| exit code | means |
|---|---|
| 0 | done |
| 1 | an error: one message says what and what to do |
| 2 | wrong usage |
| 130 | interrupted |

"""


def page() -> str:
    """The page's text."""
    return HEAD + "\n".join(section(name, verb, 2) for name, verb in verbs(build_parser()))


def verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """A parser's verbs by name, in order."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def section(name: str, parser: argparse.ArgumentParser, level: int) -> str:
    """A verb: what it does, how it is called, and a table of all it takes."""
    parts = [f"{'#' * level} {parser.prog}", cell(parser.description or ""), f"```text\n{usage(parser)}\n```"]
    rows = [
        f"| {called(action)} | {explained(action, parser)} |"
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    if rows:
        parts.append("\n".join(["| argument | what it says |", "|---|---|", *rows]))
    if parser.epilog:
        parts.append(cell(parser.epilog))
    parts += [section(inner, verb, level + 1) for inner, verb in verbs(parser)]
    return "\n\n".join(parts) + "\n"


def usage(parser: argparse.ArgumentParser) -> str:
    """The shortest way to call it: what must be given, and ``[options]``."""
    positional = [action for action in parser._actions if not action.option_strings]
    has_options = any(
        action.option_strings and not isinstance(action, argparse._HelpAction) for action in parser._actions
    )
    words = [parser.prog, *(shape(action) for action in positional), *(["[options]"] if has_options else [])]
    return " ".join(words)


def shape(action: argparse.Action) -> str:
    """An argument without a dash, as a usage line has it."""
    name = str(action.metavar or action.dest.upper())
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]", "...": "..."}.get(
        str(action.nargs), name
    )


def called(action: argparse.Action) -> str:
    """How an argument is written."""
    if not action.option_strings:
        return code(str(action.metavar or action.dest.upper()))
    value = ""
    if action.nargs != 0:
        value = str(action.metavar or "")
        if not value:
            value = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
        value = f" [{value}]" if action.nargs == "?" else f" {value}"
    return ", ".join(code(option + value) for option in action.option_strings)


def explained(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help text, with its defaults filled in, as in the terminal."""
    values = {**vars(action), "prog": parser.prog}
    return cell(action.help % values if action.help else "")


def code(text: str) -> str:
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


def cell(text: str) -> str:
    """Plain text as Markdown."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    for sign in "\\*_`[]|":
        escaped = escaped.replace(sign, f"&#{ord(sign)};")
    return escaped
