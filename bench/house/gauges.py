"""The house as numbers: lines in reach of a module, core files that name an event type, places that do one engine's work.

`python -m bench.house` prints them; tests/test_house.py holds each one to a bound that only falls.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from ledger import homes

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("ledger", "marin")
PLUGINS = PROJECT / "marin" / "plugins"
FILES = tuple(sorted(file for package in PACKAGES for file in (PROJECT / package).rglob("*.py")))

VERIFICATION = ("marin.verify.verification",)
STAGE = ("marin.cli.running.stage",)
README = (*STAGE, "marin.cli.verifying.verify", "marin.cli.models.sample", "marin.cli.init")
UI = ("marin.plugins.mlflow.commands.ui",)
"""README's fifth command is a plugin's."""

PLUGIN = re.compile(r"marin\.plugins\.(\w+)")
DOTTED = re.compile(r"(?:marin|ledger)(?:\.\w+)+(?::\w+)?\Z")


@cache
def parsed(file: Path) -> ast.Module:
    """The tree of a file."""
    return ast.parse(file.read_text("utf-8"))


@cache
def module_file(name: str) -> Path | None:
    """The file of a module of the project."""
    path = PROJECT.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def home_of(package: str) -> dict[str, str]:
    """The module of each name that a package imports when it is first used: these two have such a table."""
    if package == "ledger":
        return homes()
    tree = parsed(PROJECT / "marin" / "__init__.py")
    (table,) = (
        statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "_PLACES"
    )
    found: dict[str, str] = ast.literal_eval(table)
    return found


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, without what only type checkers read and without tables of commands, which are loaded by name when
    somebody calls one."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [parsed(file)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
        elif not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Lazy"):
            found.append(node)
            waiting.extend(ast.iter_child_nodes(node))
    return tuple(found)


def names_in(file: Path) -> Iterator[str]:
    """Modules that a file imports, at its top, in functions, or by a text that is a module's name."""
    package = file.relative_to(PROJECT).parent.as_posix().replace("/", ".")
    lazy = file in (PROJECT / "ledger" / "__init__.py", PROJECT / "marin" / "__init__.py")
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                known = home_of(base).get(alias.name) if base in PACKAGES else None
                yield known if known is not None else base
                yield f"{base}.{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in PACKAGES:
            yield from filter(None, [home_of(node.value.id).get(node.attr)])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not lazy and DOTTED.match(node.value):
            yield node.value.partition(":")[0]


@cache
def imports(file: Path) -> frozenset[Path]:
    """Files of the project that a file imports, with the packages above them."""
    found = set()
    for name in names_in(file):
        if name.partition(".")[0] not in PACKAGES or module_file(name) is None:
            continue
        parts = name.split(".")
        found |= {path for count in range(1, len(parts) + 1) if (path := module_file(".".join(parts[:count])))}
    return frozenset(found)


def reach(modules: Iterable[str], without: Iterable[Path] = ()) -> frozenset[Path]:
    """Files that somebody has in front of them who reads what these modules import, and so on. ``without``: not entered."""
    blocked, found = frozenset(without), set[Path]()
    waiting = [file for name in modules if (file := module_file(name)) is not None]
    while waiting:
        file = waiting.pop()
        if file not in found and file not in blocked:
            found.add(file)
            waiting.extend(imports(file))
    return frozenset(found)


def lines(files: Iterable[Path]) -> int:
    """Lines of these files."""
    return sum(file.read_bytes().count(b"\n") for file in files)


def core() -> tuple[Path, ...]:
    """Files of the product outside its plugins."""
    return tuple(file for file in FILES if not file.is_relative_to(PLUGINS))


@cache
def absent() -> list[str]:
    """Plugins of pyproject.toml whose folder is not in this tree: then it is smaller than the whole house."""
    table = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    named = {match[1] for group in table.values() for value in group.values() if (match := PLUGIN.match(value))}
    return sorted(name for name in named if not (PLUGINS / name).is_dir())


def needed(plugin: str) -> frozenset[str]:
    """The plugins that files of this one name, itself among them."""
    files = (PLUGINS / plugin).rglob("*.py")
    return frozenset({plugin, *(name for file in files for name in PLUGIN.findall(file.read_text("utf-8")))})


@cache
def lacking() -> frozenset[str]:
    """Plugins that are not in this tree, and those that import one of them."""
    found = {*absent()}
    while more := {name for name in _plugins() - found if needed(name) & found}:
        found |= more
    return frozenset(found)


def _plugins() -> set[str]:
    return {path.name for path in PLUGINS.iterdir() if path.is_dir() and path.name != "__pycache__"}


def event_types() -> dict[str, str]:
    """The type of each event of the core by the constant that names it in the file of its family."""
    return {
        target.id: statement.value.value
        for file in sorted((PROJECT / "marin" / "kinds" / "families").glob("*.py"))
        for statement in parsed(file).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        and re.fullmatch(r"[a-z_]+(?:\.[a-z_]+)+/v\d+", statement.value.value)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def files_naming(constants: dict[str, str]) -> dict[str, tuple[Path, ...]]:
    """For each event type the core files that name it, by its constant or its text."""
    found: dict[str, list[Path]] = {kind: [] for kind in constants.values()}
    for file in core():
        used = set()
        for node in nodes(file):
            if isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)
        for constant, kind in constants.items():
            if constant in used or kind in used:
                found[kind].append(file)
    return {kind: tuple(files) for kind, files in found.items()}


def functions(pattern: str) -> list[str]:
    """Where a core file has a function whose head, as text, matches: ``file:name``."""
    wanted = re.compile(pattern)
    return [
        f"{file.relative_to(PROJECT).as_posix()}:{node.name}"
        for file in core()
        for node in nodes(file)
        if isinstance(node, ast.FunctionDef)
        and wanted.match(f"{ast.unparse(node.args)} -> {ast.unparse(node.returns) if node.returns else ''}")
    ]


def calls(name: str) -> list[str]:
    """Where a core file makes a value of this class: ``file:line``."""
    return [
        f"{file.relative_to(PROJECT).as_posix()}:{node.lineno}"
        for file in core()
        for node in nodes(file)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    ]


def holders(kind: str) -> list[str]:
    """Classes of the core with a field of this type, but for events: ``file:class``."""
    families = PROJECT / "marin" / "kinds" / "families"
    return [
        f"{file.relative_to(PROJECT).as_posix()}:{node.name}"
        for file in core()
        if not file.is_relative_to(families)
        for node in nodes(file)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(part, ast.AnnAssign) and ast.unparse(part.annotation) == kind for part in node.body)
    ]


def hashing() -> list[str]:
    """Where the core of ``marin`` has all bytes of an artifact hashed, to decide whether it is whole: ``file:line``."""
    return [
        f"{file.relative_to(PROJECT).as_posix()}:{node.lineno}"
        for file in core()
        if file.is_relative_to(PROJECT / "marin")
        for node in nodes(file)
        if isinstance(node, ast.Call) and re.search(r"\bstore(\(\))?\.verify\Z", ast.unparse(node.func))
    ]


STARTS = r"setup: bytes -> (Work|Worker)\Z"
"""The head of a function that begins a worker: each file that has one has an own form of setup, task and answer."""
