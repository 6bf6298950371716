"""Mutants of a Python file: copies with one small error each, as a programmer might make it.

Operators are swapped for their neighbours, conditions negated, numbers moved by one, keys misspelt,
results and statements left out, slices opened, keyword arguments and defaults changed. What nothing depends
on is left as it is: annotations, docstrings, decorators, ``assert``, ``__all__`` and the texts of messages.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

__all__ = ["Mutant", "mutants_of"]

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPPOSITE = {ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_DEFAULTS = {"dtype=np.int64", "dtype=np.float64"}  # NumPy's own on Linux, named to be clear
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """One change of a file."""

    file: str  # relative to the repository
    where: str  # qualified name of the function or class; "": the module
    before: str  # the statement's text, in one line
    after: str
    lines: range  # of the statement, as far as it runs with it
    function: tuple[str, int] | None  # name and first line of the outermost function; None: runs at import
    begin: int  # bytes of the source that ``text`` takes the place of
    end: int
    text: bytes

    def __str__(self) -> str:
        return f"{self.file}:{self.lines.start} {self.where}: {self.before}  ->  {self.after}"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is called, wherever it stands in the file."""
        return self.file, self.where, self.before, self.after

    def applied(self, source: bytes) -> bytes:
        """The mutated file, with as many lines."""
        return source[: self.begin] + self.text + source[self.end :]


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """All mutants of a file, in its order."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    found: dict[tuple[str, ...], Mutant] = {}
    for mutant in sorted(finder.found, key=lambda one: (one.begin, one.end, one.text)):
        number, key = 1, mutant.key
        while key in found and found[key].begin != mutant.begin:  # the same words again
            number += 1
            key = (*mutant.key[:3], f"{mutant.after}  #{number}")
        if key not in found:
            found[key] = mutant if number == 1 else _renamed(mutant, key[3])
    return list(found.values())


def _renamed(mutant: Mutant, after: str) -> Mutant:
    return Mutant(**{**vars(mutant), "after": after})


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._file, self._source = file, source
        self._starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
        self._scopes: list[str] = []
        self._function: tuple[str, int] | None = None
        self._statement: ast.stmt = ast.Pass()

    def visit(self, node: ast.AST) -> None:
        outer = self._statement
        if isinstance(node, ast.stmt):
            self._statement = node
        if isinstance(node, ast.expr):
            for new in _other_expressions(node):
                text = ast.unparse(new)
                self._replace(node, text if isinstance(new, ast.Call | ast.Constant) else f"({text})")
        super().visit(node)
        self._statement = outer

    # What is not mutated.
    def visit_Assert(self, node: ast.Assert) -> None:
        """The type checker's."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text; nodes in it have no places of their own before Python 3.12."""

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")  # but not the message

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scoped(node.name, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        outer = self._function
        if outer is None:
            self._function = node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])
        self._scoped(node.name, node.body)
        self._function = outer

    def _scoped(self, name: str, body: list[ast.stmt]) -> None:
        self._scopes.append(name)
        for statement in body:
            self.visit(statement)
        self._scopes.pop()

    # Statements.
    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace(node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                self._replace(node.value, "None")
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        other = _COMPUTED.get(type(node.op))
        if other is not None and not _is_text(node.value):
            self._replace(node, ast.unparse(ast.AugAssign(node.target, other(), node.value)))
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if ast.unparse(node.targets[0]) == "__all__":
            return
        places = all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
        if places and self._scopes[-1:] != ["__init__"]:
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in ("lower", "upper"):
            if getattr(node, bound) is not None:
                new = copy.copy(node)
                setattr(new, bound, None)
                self._replace(node, ast.unparse(new))
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        """But what has its opposite among other mutants: ``not x``, ``x == y``."""
        is_denial = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        is_yes_or_no = isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITE
        if not is_denial and not is_yes_or_no:
            self._replace(test, f"(not ({ast.unparse(test)}))")

    def _replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        lines = "\n" * self._source.count(b"\n", begin, end)
        padded = text[:-1] + lines + text[-1] if text.endswith(")") else text + lines
        statement = _own_lines(self._statement)
        first, last = self._starts[statement.start - 1], self._starts[statement.stop - 1]
        before = self._source[first:last]
        after = self._source[first:begin] + padded.encode() + self._source[end : max(last, end)]
        self.found.append(
            Mutant(
                file=self._file,
                where=".".join(self._scopes),
                before=" ".join(before.decode().split()),
                after=" ".join(after.decode().split()),
                lines=statement,
                function=self._function,
                begin=begin,
                end=end,
                text=padded.encode(),
            )
        )


def _own_lines(statement: ast.stmt) -> range:
    """The lines of a statement without those of the statements in it."""
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno
    return range(statement.lineno, max(statement.lineno, last or 0) + 1)


def _is_text(node: ast.expr) -> bool:
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in ast.walk(node)
    )


def _other_expressions(node: ast.expr) -> Iterator[ast.expr]:
    """What may stand in place of an expression, whose parts stay as they are."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield ast.Compare(
                node.left, [*node.ops[:i], _COMPARED[type(op)](), *node.ops[i + 1 :]], node.comparators
            )
    elif isinstance(node, ast.BinOp):
        if type(node.op) in _COMPUTED and not _is_text(node.left) and not _is_text(node.right):
            yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from map(ast.Constant, _other_values(node.value))
    elif isinstance(node, ast.Call):
        yield from _other_calls(node)


def _other_values(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
        if value > 0:
            yield value - 1
    elif isinstance(value, str | bytes) and len(value.split()) == 1:  # a key; more words are a message
        yield value + value[:1]


def _other_calls(node: ast.Call) -> Iterator[ast.expr]:
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None and ast.unparse(keyword) not in _DEFAULTS:
            yield ast.Call(node.func, node.args, [*node.keywords[:i], *node.keywords[i + 1 :]])
    if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        yield ast.Call(ast.Name(_CALLED[node.func.id]), node.args, node.keywords)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _CALLED:
        other = ast.Attribute(node.func.value, _CALLED[node.func.attr])
        yield ast.Call(other, node.args, node.keywords)
