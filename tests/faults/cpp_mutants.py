"""Mutants of a C++ file, by its text: the same small errors as python_mutants makes.

What clang-format writes is regular enough for that: binary operators stand between spaces, template brackets
and pointers do not. Comments, strings, assembler, ``throw``, static assertions and what this machine does not
compile are left as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

__all__ = ["CoreMutant", "core_mutants_of"]

_SWAPPED = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "*",
    "%": "/",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "^": "|",
    "&&": "||",
    "||": "&&",
    "+=": "-=",
    "-=": "+=",
    "|=": "&=",
    "&=": "|=",
    "<<=": ">>=",
    ">>=": "<<=",
}
_WORDS = {
    "true": "false",
    "false": "true",
    "std::min": "std::max",
    "std::max": "std::min",
    "break;": "continue;",
    "continue;": "break;",
    "++": "--",
    "--": "++",
}
_OPERATOR = re.compile(r"(?<= )(?:[<>=!+\-*/%&|^]|<<|>>|&&|\|\||<<=|>>=|[<>=!+\-|&]=)(?=[ \n])")
_WORD = re.compile(r"\b(?:true|false|std::min|std::max|break;|continue;)(?!\w)|\+\+|--(?!>)")
_NUMBER = re.compile(r"(?<![\w.])(0x[0-9A-Fa-f]+|\d+)(?=u?\b)(?!\.)")
_DENIAL = re.compile(r"!(?=[\w(])")
_CONDITION = re.compile(r"\b(?:if|while) \(")
_STEP = re.compile(r"(?:\+\+|--)\w|\*?[\w.:\->]+(?:\[[^=;]*\])* (?:[+\-|&^]|<<|>>)?= ")
_NO_CALLS = (
    "return",
    "if",
    "for",
    "while",
    "static_assert",
    "asm",
    "damaged(",
    "bad_table(",
    "bad_entries(",
    "lost(",
)
_COMMENT, _STRING, _DIRECTIVE = r"//[^\n]*", r'"(?:\\.|[^"\\\n])*"', r"(?m)^#[^\n]*$"
_NOT_MUTATED = (
    r"'(?:\\.|[^'\\\n])+'",
    r"\basm(?: volatile)?\([^;]*\);",
    r"\b(?:static_assert|static_cast<void>|__builtin_expect)\([^;]*[;{]",
    r"\[\[[^\]]*\]\]",
    r"\bthrow [^;]*;",
    r"\b(?:damaged|bad_table|bad_entries)\([^;]*;",  # these throw
    r"\btemplate <[^>]*>",
    r"\balignas\(\d+\)",
)


@dataclass(frozen=True)
class CoreMutant:
    """One change of a C++ file."""

    file: str  # relative to the repository
    line: int
    before: str  # the text's lines, in one
    after: str
    begin: int
    end: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before}  ->  {self.after}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is called, wherever it stands in the file."""
        return self.file, self.before, self.after

    def applied(self, source: str) -> str:
        """The mutated file."""
        return source[: self.begin] + self.text + source[self.end :]


def core_mutants_of(file: str, source: str) -> list[CoreMutant]:
    """All mutants of a file, in its order."""
    code = _code(source)
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for begin, end, text in sorted({*_small(code), *_conditions(source, code), *_left_out(source, code)}):
        first = bisect_right(starts, begin) - 1
        line_begin, line_end = starts[first], starts[bisect_right(starts, max(begin, end - 1))]
        before = " ".join(source[line_begin:line_end].split())
        after = " ".join((source[line_begin:begin] + text + source[end:line_end]).split())
        seen[before, after] += 1
        number = seen[before, after]
        after = after if number == 1 else f"{after}  #{number}"
        found.append(CoreMutant(file, first + 1, before, after, begin, end, text))
    return found


def _code(source: str) -> str:
    """The source, with all blanked that is not mutated."""
    code = _without_other_machines(re.sub(_STRING, _blank, re.sub(_COMMENT, _blank, source)))
    for pattern in (_DIRECTIVE, *_NOT_MUTATED):
        code = re.sub(pattern, _blank, code)
    return code


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _without_other_machines(code: str) -> str:
    """Blanks the branches of ``#if`` that are for another processor than x86-64."""
    out, other = [], False
    for line in code.splitlines(keepends=True):
        if line.startswith(("#elif", "#else")):
            other = True
        elif line.startswith(("#if", "#endif")):
            other = "__aarch64__" in line
        out.append(re.sub(r"[^\n]", " ", line) if other and not line.startswith("#") else line)
    return "".join(out)


def _small(code: str) -> Iterator[tuple[int, int, str]]:
    for match in _OPERATOR.finditer(code):
        if match.group() in _SWAPPED:
            yield *match.span(), _SWAPPED[match.group()]
    for match in _WORD.finditer(code):
        yield *match.span(), _WORDS[match.group()]
    for match in _DENIAL.finditer(code):
        yield *match.span(), ""
    for match in _NUMBER.finditer(code):
        value = int(match.group(), 0)
        for other in (value + 1, value - 1):
            if other >= 0:
                yield *match.span(), str(other)


def _conditions(source: str, code: str) -> Iterator[tuple[int, int, str]]:
    clean = re.sub(_STRING, _blank, re.sub(_COMMENT, _blank, source))
    for match in _CONDITION.finditer(code):
        begin = match.end()
        depth, end = 1, begin
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(clean[end], 0)
            end += 1
        inside = code[begin : end - 1]
        has_opposite = inside.startswith("!") or re.fullmatch(r"[^&|]* [=!]= [^&|]*", inside) is not None
        if ";" not in inside and inside.strip() and not has_opposite:
            yield begin, end - 1, f"!({source[begin : end - 1]})"


def _left_out(source: str, code: str) -> Iterator[tuple[int, int, str]]:
    """Statements that may be missing: assignments, calls, steps, and what throws."""
    for match in re.finditer(r"(?m)^ +(\S[^;{}]*;)$", source):
        text = match.group(1)
        is_call = re.match(r"[\w:.\->]+\(", text) and not text.startswith(_NO_CALLS)
        if code[match.start(1)].strip() and (is_call or _STEP.match(text)):
            yield match.start(1), match.end(1), ";"
    for match in re.finditer(
        r"(?<=[ \n])(?:(?:damaged|bad_table|bad_entries|lost)\(|throw )[^;{}]*;", source
    ):
        if source[source.rfind("\n", 0, match.start()) + 1 :].lstrip()[:2] not in ("//", "[["):
            yield *match.span(), ";"
