"""The project's own source files, and what they import and include: for the tests of the house rules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "fastload"
CORE = ROOT / "csrc" / "core"
BINDINGS = ROOT / "csrc" / "bindings"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def python_files(*folders: str) -> list[Path]:
    """All .py files below these folders of the project."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def cpp_files(*folders: str) -> list[Path]:
    """All C++ files below these folders of the project."""
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".h", ".cpp"}
    )


def name_of(path: Path) -> str:
    """The path as messages show it."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path, root: Path = ROOT) -> str:
    """``fastload/shard/index.py`` -> ``fastload.shard.index``; a package is named by its folder."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_type_checking(node: ast.AST) -> bool:
    """Whether ``node`` is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(path: Path, root: Path = ROOT) -> Iterator[tuple[str, bool]]:
    """Every absolute module name that the file imports, with True where that happens on import.

    ``from a import b`` gives both ``a`` and ``a.b``, as b may be a module. Imports for type checkers only
    count, too: they tie modules together as much.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_import = set(top_level(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in at_import
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, module_name(path, root), path.name == "__init__.py")
            yield base, node in at_import
            for alias in node.names:
                yield f"{base}.{alias.name}", node in at_import


def top_level(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements that run when the module is imported: not those of functions or for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_type_checking(node):
            continue
        yield node
        yield from top_level(node)


def absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The absolute name of what ``from ... import`` names."""
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def includes(path: Path) -> list[tuple[str, str]]:
    """All #includes as (``<`` or ``"``, path)."""
    return INCLUDE.findall(path.read_text(encoding="utf-8"))
