"""Rules that keep the code small, safe and described: sizes, forbidden calls, the tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import update_tree
from house_sources import ROOT, cpp_files, name_of, python_files

MAX_FILE_LINES = 900
MAX_FUNCTION_LINES = 60
MAX_REGISTER_LINES = 100  # of a binding: a list of declarations, not code
PYTHON_FOLDERS = ("fastload", "tools", "benchmarks", "tests")
CPP_FOLDERS = ("csrc", "tests")
FORBIDDEN_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "os.system", "os.popen", "torch.load"}
DECIDING = ("cache", "packing", "remote", "shard")  # by what lies somewhere
FORBIDDEN_FOLDERS = {"utils", "util", "helpers", "common", "misc"}


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of each function's body, without its signature and docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                yield node.name, node.end_lineno - body[0].lineno + 1


def blank(match: re.Match[str]) -> str:
    """The text with all but its line ends blanked."""
    return re.sub(r"[^\n]", " ", match.group())


def without_comments_and_strings(text: str) -> str:
    """C++ with comments and literals blanked, so that braces can be counted."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def cpp_blocks(path: Path) -> Iterator[tuple[int, int]]:
    """First line and number of lines of each outermost function body.

    By braces: clang-format writes a space before a body's brace and none before an initialiser's. The braces
    of namespaces, types and enums are stepped into.
    """
    text = without_comments_and_strings(path.read_text(encoding="utf-8"))
    inside: list[tuple[str, int]] = []  # kind ("body", "scope", "value") and first line of each open brace
    head_start = 0
    for position, char in enumerate(text):
        line = text.count("\n", 0, position) + 1 if char in "{}" else 0
        if char == "{":
            inside.append((brace_kind(text[head_start:position], "body" in dict(inside)), line))
        elif char == "}" and inside:
            kind, begin = inside.pop()
            if kind == "body":
                yield begin, line + 1 - begin
            if kind == "value":
                continue
        if char in "{};" and (not inside or inside[-1][0] != "value"):
            head_start = position + 1


def brace_kind(head: str, in_body: bool) -> str:
    """What a brace opens, by the text before it: a function's "body", a "value", or another "scope"."""
    if head and not head[-1].isspace():
        return "value"
    if in_body or re.search(r"\b(namespace|class|struct|enum|union|extern)\b[^()]*$", head):
        return "scope"
    return "body" if ")" in head and not head.rstrip().endswith("=") else "scope"


def is_registration(path: Path, line: int) -> bool:
    """Whether the function is a binding's list of declarations."""
    return "void register_" in path.read_text(encoding="utf-8").splitlines()[line - 1]


def long_files(paths: list[Path]) -> list[str]:
    """Files over the limit."""
    counts = [(name_of(path), path.read_text(encoding="utf-8").count("\n")) for path in paths]
    return [f"{name}: {lines} lines" for name, lines in counts if lines > MAX_FILE_LINES]


def test_files_are_short() -> None:
    assert long_files(python_files(*PYTHON_FOLDERS) + cpp_files(*CPP_FOLDERS)) == []


def test_only_public_modules_list_their_names() -> None:
    """A private name begins with an underscore; ``_C``, the extension, is what _native is for."""
    lists = {name_of(p) for p in python_files("fastload") if re.search(r"^__all__\b", p.read_text(), re.M)}
    modules = {name for name in lists if not name.endswith("__init__.py")}
    assert modules == {"fastload/_native.py", "fastload/errors.py", "fastload/transforms/batch.py"}
    assert "fastload/__init__.py" in lists


def test_python_functions_are_short() -> None:
    found = [
        f"{name_of(path)}: {name} has {lines} lines"
        for path in python_files(*PYTHON_FOLDERS)
        for name, lines in python_functions(path)
        if lines > MAX_FUNCTION_LINES
    ]
    assert found == []


def test_cpp_functions_are_short() -> None:
    found = [
        f"{name_of(path)}:{line}: {lines} lines"
        for path in cpp_files("csrc")
        for line, lines in cpp_blocks(path)
        if lines > (MAX_REGISTER_LINES if is_registration(path, line) else MAX_FUNCTION_LINES)
    ]
    assert found == []


def test_the_size_check_sees_functions(tmp_path: Path) -> None:
    source = tmp_path / "x.cpp"
    body = '  x("}"); // {\n' * 70
    source.write_text(
        "namespace a {\nclass B {\n public:\n  B() : x_{1} {\n" + body + "  }\n};\n"
        "int f(int i) const noexcept {\n  if (i) {\n    return '}';\n  }\n}\n}\n"
    )
    assert sorted(lines for _, lines in cpp_blocks(source)) == [5, 72]


def test_no_folder_has_a_name_that_says_nothing() -> None:
    folders = {
        p.name
        for top in ("fastload", "csrc", "tests", "tools")
        for p in (ROOT / top).rglob("*")
        if p.is_dir()
    }
    assert folders & FORBIDDEN_FOLDERS == set()


def dangerous(path: Path) -> Iterator[str]:
    """Modules and calls that could run what a file on disk says."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in FORBIDDEN_CALLS or any(k.arg == "shell" for k in node.keywords):
                yield name
            if any(k.arg == "allow_pickle" for k in node.keywords):
                yield "allow_pickle"


def test_the_package_never_runs_what_a_file_says() -> None:
    """But the script that the user gives the doctor to be run."""
    found = [f"{name_of(path)}: {what}" for path in python_files("fastload") for what in dangerous(path)]
    assert found == ["fastload/diagnose/script_child.py: exec"]


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "eval(x)",
        "os.system(x)",
        "torch.load(x)",
        "run(x, shell=True)",
    ],
)
def test_the_danger_check_finds(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.py").write_text(line)
    assert len(list(dangerous(tmp_path / "x.py"))) == 1


def hidden_failures(path: Path) -> Iterator[str]:
    """Questions that take whatever the system answers for no; machine/paths.py has those that do not."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = ast.unparse(node.func)
        of_pathlib = node.func.attr in ("exists", "is_dir", "is_file", "is_symlink") and not node.args
        # os.scandir's own answers raise.
        if (of_pathlib and not name.startswith("entry.")) or re.fullmatch(
            r"os\.path\.(exists|lexists|isdir|isfile|islink|ismount)", name
        ):
            yield name


def test_what_decides_what_lies_somewhere_hears_of_failures() -> None:
    paths = [path for room in DECIDING for path in python_files(f"fastload/{room}")]
    assert [f"{name_of(path)}: {what}" for path in paths for what in hidden_failures(path)] == []


@pytest.mark.parametrize("line", ["(a / b).exists()", "path.is_dir()", "os.path.isfile(x)"])
def test_the_check_of_failures_finds(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.py").write_text(f"{line}\nis_dir(path); entry.is_dir(); column.exists(x)")
    assert len(list(hidden_failures(tmp_path / "x.py"))) == 1


def started_threads(path: Path) -> list[str]:
    """Places that start a thread by other means than base/thread.h's function."""
    text = without_comments_and_strings(path.read_text(encoding="utf-8"))
    return re.findall(r"std::jthread|std::async|pthread_create\(|std::thread(?: \w+)?[({]", text)


def test_the_core_starts_threads_in_one_place() -> None:
    paths = [path for path in cpp_files("csrc") if path.stem != "thread"]
    assert [f"{name_of(path)}: {what}" for path in paths for what in started_threads(path)] == []


@pytest.mark.parametrize("line", ["t = std::thread([] {});", "std::thread t{f};", "std::async(f);"])
def test_the_check_of_threads_finds(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.cpp").write_text(f"{line}\nstd::thread thread_; // std::thread(f)\nstd::thread& a = b;")
    assert len(started_threads(tmp_path / "x.cpp")) == 1


def test_temporary_folders_are_made_in_one_place() -> None:
    """Those that a killed process leaves are removed by the next one; files without a name need nobody."""
    made = re.compile(r"tempfile\.(mkdtemp|TemporaryDirectory|NamedTemporaryFile)\(")
    found = {name_of(path) for path in python_files("fastload") if made.search(path.read_text("utf-8"))}
    assert found == {"fastload/machine/temporary.py"}


def test_the_tree_is_of_these_files() -> None:
    assert update_tree.DOCUMENT.read_text(encoding="utf-8") == update_tree.page(), "run tools/update_tree.py"
    wanted = update_tree.modules()
    assert len(wanted) > 100
    assert {"fastload/__init__.py", "csrc/core/base/crc32c", "tools/setup.sh"} <= set(wanted)
    assert all(update_tree.description(path) for path in wanted.values())


def test_architecture_describes_exactly_the_folders() -> None:
    listed, wanted = set(update_tree.described()), update_tree.folders()
    assert sorted(wanted - listed) == [], "exist, but ARCHITECTURE.md has no line for them"
    assert sorted(listed - wanted) == [], "have a line in ARCHITECTURE.md, but do not exist"
    assert len(wanted) > 40


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("short", "short"),
        ("word " * 40, "word " * 20 + "word..."),
        ("a file that all of them may map: " + "for all " * 20, "a file that all of them may map"),
    ],
)
def test_the_tree_shortens(words: str, line: str) -> None:
    assert update_tree.shortened(words) == line
