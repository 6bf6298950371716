"""Finds tests that may pass without having checked anything, by their source.

A test checks for certain if an assertion (or ``pytest.raises``, ``pytest.warns``, a call of a function of the
tests' own that checks for certain) is neither inside a loop that may have no turn nor inside one branch of an
``if``. A loop has a turn for certain if what it goes over is written down: a literal, ``range`` of numbers, a
constant in capitals, or one of those in ``zip(..., strict=True)``, ``enumerate`` and the like.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

__all__ = ["Checks", "cases_of"]

_THROUGH = {
    "enumerate",
    "list",
    "reversed",
    "sorted",
    "tuple",
    "set",
    "product",
    "permutations",
    "combinations",
}
_CHECKING_FIXTURES = {"no_leaks"}  # which assert when the test has ended
_RAISES = {"raises", "warns", "deprecated_call", "RaisesGroup"}


def cases_of(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The test functions of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node


class Checks:
    """Which functions of these modules check something for certain: a test module, and what it may import.

    Args:
        trees: the modules.
        names: functions that are known to check.
    """

    def __init__(self, trees: Iterable[ast.Module], names: Iterable[str] = ()) -> None:
        functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self.names = set(names)
        self._sure: dict[ast.FunctionDef, set[str]] = {}
        found = -1
        while found != len(self.names):  # a function that calls a checking one checks, too
            found = len(self.names)
            self.names |= {node.name for node in functions if node.name not in self.names and self.has(node)}

    def has(self, function: ast.FunctionDef) -> bool:
        """Whether the function checks for certain."""
        fixtures = {argument.arg for argument in function.args.args}
        marked = " ".join(ast.unparse(decorator) for decorator in function.decorator_list)
        fixtures |= {name for name in _CHECKING_FIXTURES if f"usefixtures('{name}')" in marked}
        if function not in self._sure:
            self._sure[function] = _sure_names(function)
        return bool(fixtures & _CHECKING_FIXTURES) or self._any(function.body, self._sure[function])

    def _any(self, body: list[ast.stmt], sure: set[str]) -> bool:
        return any(self._one(statement, sure) for statement in body)

    def _one(self, node: ast.stmt, sure: set[str]) -> bool:
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.With):
            outside = any(self._calls(item.context_expr) for item in node.items)
            return outside or self._any(node.body, sure)
        if isinstance(node, ast.For):
            return (_has_turn(node.iter, sure) and self._any(node.body, sure)) or self._calls(node.iter)
        if isinstance(node, ast.While):
            return self._any(node.orelse, sure)
        if isinstance(node, ast.If):
            return self._any(node.body, sure) and self._any(node.orelse, sure)
        if isinstance(node, ast.Try):
            return self._any([*node.body, *node.finalbody], sure)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return False
        return self._calls(node)

    def _calls(self, node: ast.AST) -> bool:
        """Whether a checking function is called in the expression or simple statement."""
        calls = [found.func for found in ast.walk(node) if isinstance(found, ast.Call)]
        names = {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in calls}
        return any(name in self.names or name in _RAISES or name.startswith("assert_") for name in names)


def _sure_names(function: ast.FunctionDef) -> set[str]:
    """Local names that are given something written down, and nothing else."""
    sure: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            sure = sure | {name} if _has_turn(node.value, sure) else sure - {name}
    return sure


def _has_turn(node: ast.expr, sure: set[str]) -> bool:
    """Whether a loop over ``node`` has a turn for certain."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(not isinstance(each, ast.Starred) or _has_turn(each.value, sure) for each in node.elts)
    if isinstance(node, ast.Dict):
        return bool(node.keys)
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.Name):
        return node.id.isupper() or node.id in sure
    if isinstance(node, ast.ListComp):
        inner = node.generators
        return all(_has_turn(part.iter, sure) and not part.ifs for part in inner)
    if isinstance(node, ast.IfExp):
        return _has_turn(node.body, sure) and _has_turn(node.orelse, sure)
    if isinstance(node, ast.BinOp):  # lists joined or repeated
        return _has_turn(node.left, sure) or _has_turn(node.right, sure)
    return isinstance(node, ast.Call) and _call_has_turn(node, sure)


def _call_has_turn(node: ast.Call, sure: set[str]) -> bool:
    function, arguments = node.func, node.args
    if isinstance(function, ast.Attribute):
        name, inside = function.attr, function.value
        if name in ("items", "values", "keys", "split", "splitlines") and not arguments:
            return _has_turn(inside, sure)
    else:
        name = getattr(function, "id", "")
    if name == "range":
        return _is_long(arguments)
    if name == "zip":
        turns = [_has_turn(each, sure) for each in arguments]
        strict = any(word.arg == "strict" and ast.unparse(word.value) == "True" for word in node.keywords)
        return any(turns) if strict else all(turns)
    return name in _THROUGH and bool(arguments) and all(_has_turn(each, sure) for each in arguments[:1])


def _is_long(arguments: list[ast.expr]) -> bool:
    """Whether ``range`` of these has a number; a constant in capitals is taken for a positive one."""
    words = [ast.unparse(each) for each in arguments]
    if all(word.lstrip("-").isdigit() for word in words):
        return len(range(*map(int, words))) > 0
    return all(word.lstrip("-").isdigit() or word.isupper() for word in words)
