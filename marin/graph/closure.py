"""Which code a function executes, as far as it is this project's: read from syntax trees, never from what is imported.

Two grains. In the file that defines the function only what it reaches counts: itself, the names of the module that it
uses and what these use, and statements that are not definitions, unless all they change are names that it does not use.
So an experiment file may gain a step, also in a loop, without making all its functions new. Of every other file of the
project that is imported on the way, at its top or inside a function, all bytes count, and so do the files that it
imports, the ``__init__`` of each package above, and the page templates beside it.

Packages from outside are one number: the digest of the lock. What cannot be seen in a syntax tree (a module named by
a text, a file that is read) is not code here: make it an input or a configuration.

Steps are hashed without their annotations, and ``marin.graph``, ``marin.errors`` and ``ledger`` do not count: they
carry values in and out and decide no bits.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ledger import canonical_bytes, digest_bytes
from marin.errors import MissingEvidence, UsageError
from marin.provenance.code import code_folder

PACKAGES = ("marin", "experiments")
"""What of the code folder is the project: in site-packages it has many neighbours."""
MACHINERY = ("ledger", "marin.graph", "marin.errors", "marin.cli")
_BEGINNINGS = tuple(f"{name}." for name in MACHINERY)

STATEMENTS = "(statements)"
"""What the part of a file is called that is not a definition."""


@dataclass(frozen=True)
class Closure:
    """The code of a function: a digest for each file, or for a part of one as ``file::name``. ``encoded`` is stored, so
    that a later run can say which file changed; its digest is the identity."""

    parts: Mapping[str, str]

    @property
    def encoded(self) -> bytes:
        """The canonical list of parts, in the form that :func:`marin.provenance.code.files_digest` has."""
        return canonical_bytes(sorted([name, digest] for name, digest in self.parts.items()))

    @property
    def digest(self) -> str:
        """What stands for the code in a step's identity."""
        return digest_bytes(self.encoded)


@cache
def closure_of(function: Callable[..., Any]) -> Closure:
    """The code that ``function`` executes.

    Raises:
        UsageError: it is not the function of a file, or it carries values that no identity could see.
    """
    file, name = locate(function)
    for looked in (_module_of, _files_below, _packages_from, _import_folder, _code_folder):
        looked.cache_clear()  # the disk is looked at once for a function, and again for the next one
    source = _Source.read(file)
    parts: dict[str, str] = {}
    modules: set[Path] = set()
    for symbol, digest, imported in source.reach(name):
        parts[f"{_shown(file)}::{symbol}"] = digest
        modules |= imported
    seen = {file}
    while modules:
        module = modules.pop()
        if module in seen:
            continue
        seen.add(module)
        for path in filter(Path.is_file, (module.parent / "templates").rglob("*")):
            parts[_shown(path)] = digest_bytes(path.read_bytes())
        data = module.read_bytes()
        parts[_shown(module)] = digest_bytes(data)
        modules |= _imports_below(module, data)
    return Closure(parts)


def locate(function: Callable[..., Any]) -> tuple[Path, str]:
    """The file and the top-level name that define ``function``; refuses what no other process could find again.

    Raises:
        UsageError: it is not a plain function of a file, or it captures variables.
    """
    if isinstance(function, functools.partial) or not inspect.isfunction(function):
        raise UsageError(
            "a step's function is not a plain function",
            where=f"{function!r}"[:120],
            expected="a function that a file defines by `def`",
            found=type(function).__name__,
            cure="write a function, and put what differs into config",
        )
    shown = f"{function.__module__}.{function.__qualname__}"
    if function.__closure__:
        raise UsageError(
            "a step's function captures variables",
            where=shown,
            expected="a function that gets all by its Context",
            found=", ".join(function.__code__.co_freevars),
            cure="put them into the step's config",
        )
    path = Path(inspect.getsourcefile(function) or "")
    if not path.is_file():
        raise UsageError(
            "a step's function has no file",
            where=shown,
            expected="a function in a .py file",
            found="a notebook, a prompt or made text",
            cure="move it into a module or an experiment file, and import it from there",
        )
    return path.resolve(), function.__qualname__.partition(".")[0]


class _Source:
    """One parsed file of the project."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data
        self.tree = _parsed(path, data)
        self.bindings: dict[str, list[ast.stmt]] = {}
        self.loose: list[ast.stmt] = []
        for statement in self.tree.body:
            names = list(_bound(statement))
            for name in names:
                self.bindings.setdefault(name, []).append(statement)
            if not names and not _is_text(statement) and not _is_main_guard(statement):
                self.loose.append(statement)
        self.imported = {
            name
            for name, statements in self.bindings.items()
            if any(isinstance(statement, ast.Import | ast.ImportFrom) for statement in statements)
        }

    @staticmethod
    def read(path: Path) -> _Source:
        """The file, parsed once for its bytes."""
        return _source_of(path, path.read_bytes())

    def reach(self, name: str) -> Iterator[tuple[str, str, set[Path]]]:
        """(name, digest, imported files) of everything in this file that ``name`` uses, itself first."""
        if name not in self.bindings:
            raise UsageError(
                "a step's function is not at the top of its file",
                where=f"{self.path}: {name}",
                expected="a definition at the top level",
                found="none of that name",
                cure="define it there by `def`",
            )
        if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in self.tree.body):
            yield "*", digest_bytes(self.data), _imports_below(self.path, self.data)  # nobody can tell which names
            return
        waiting, seen, used = [name], {name}, {name}
        loose = [(statement, _touched(statement, self.imported)) for statement in self.loose]
        counted: list[ast.stmt] = []
        while waiting or loose:
            while waiting:
                symbol = waiting.pop(0)
                names, part = self._part(symbol, self.bindings[symbol])
                yield part
                used |= names
                fresh = sorted(other for other in names if other in self.bindings and other not in seen)
                seen.update(fresh)
                waiting += fresh
            chosen = [statement for statement, touched in loose if touched is None or touched & used]
            if not chosen:
                break
            loose = [(statement, touched) for statement, touched in loose if statement not in chosen]
            counted += chosen
            names, _ = self._part(STATEMENTS, chosen)
            used |= names
            fresh = sorted(other for other in names if other in self.bindings and other not in seen)
            seen.update(fresh)
            waiting += fresh
        if counted:
            yield self._part(STATEMENTS, counted)[1]

    def _part(self, symbol: str, statements: list[ast.stmt]) -> tuple[set[str], tuple[str, str, set[Path]]]:
        """The names that the statements read; and (symbol, their digest, files that they import)."""
        hasher = hashlib.sha256()
        imported: set[Path] = set()
        names: set[str] = set()
        for statement in statements:
            used, digestible = _used_names(statement, symbol)
            hasher.update(digestible.encode())
            imported |= set(_imports(statement, self.path, only=symbol))
            names |= used
        return names, (symbol, "sha256:" + hasher.hexdigest(), imported)


@cache
def _source_of(path: Path, data: bytes) -> _Source:
    return _Source(path, data)


def _parsed(path: Path, data: bytes) -> ast.Module:
    try:
        return ast.parse(data, str(path))
    except SyntaxError as error:
        raise UsageError(
            "a file of the project is not Python",
            where=f"{path}:{error.lineno}",
            found=str(error.msg),
            cure="correct it",
        ) from None


def _imports_below(path: Path, data: bytes) -> set[Path]:
    """Every file of the project that the file at ``path``, which holds ``data``, imports anywhere in it."""
    names, relative = _imported_by(path, data)
    files = {file for name in names for file in _files_of(name, path)}
    files.update(file for node in relative for file in _imports(node, path))
    return files.union(_packages_above(path))


@cache
def _imported_by(path: Path, data: bytes) -> tuple[frozenset[str], tuple[ast.ImportFrom, ...]]:
    """What the file imports of the project, as far as its text and place tell: names, and imports that go by the file's place.
    Its tree is not kept: Python looks for garbage among all that is kept of hundreds of files. What is kept is kept for its
    bytes: a file that changes twice within a tick of the clock has one time of change."""
    names: set[str] = set()
    relative: list[ast.ImportFrom] = []
    for node in statements_of(_parsed(path, data)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            relative.append(node)
        elif isinstance(node, ast.ImportFrom):
            names.update(name for alias in node.names for name in _parts_of(node.module or "", alias))
    return frozenset(name for name in names if _looked_for(name, path)), tuple(relative)


class _Bare(ast.NodeTransformer):
    """Without annotations and texts that only describe: neither decides what a function returns."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = _undescribed(node.body)
        return self.generic_visit(node)

    def _function[T: (ast.FunctionDef, ast.AsyncFunctionDef)](self, node: T) -> T:
        node.returns = None
        arguments: ast.arguments = node.args
        for argument in [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]:
            if argument is not None:
                argument.annotation = None
        node.body = _undescribed(node.body)
        self.generic_visit(node)
        return node


def _undescribed(body: list[ast.stmt]) -> list[ast.stmt]:
    return (body[1:] or [ast.Pass()]) if body and _is_text(body[0]) else body


def _used_names(statement: ast.stmt, symbol: str) -> tuple[set[str], str]:
    """Names that the statement reads, and its text without annotations. Of an import only ``symbol`` counts."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        chosen = [alias for alias in statement.names if symbol in _alias_names(alias)]
        origin = "." * statement.level + (statement.module or "") if isinstance(statement, ast.ImportFrom) else ""
        return set(), ";".join(f"from {origin} import {alias.name} as {alias.asname}" for alias in chosen)
    bare = _Bare().visit(ast.parse(ast.unparse(statement)).body[0])
    used = {node.id for node in ast.walk(bare) if isinstance(node, ast.Name)}
    return used, ast.dump(bare)


def _touched(statement: ast.stmt, imported: set[str]) -> set[str] | None:
    """The module's names that a statement which is not a definition binds or changes in place; None when it could change
    anything: it calls something, or changes what belongs to another module. A loop that collects steps changes its
        list."""
    touched: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            touched.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            if (base := _base(node)) is None or base in imported:
                return None
            touched.add(base)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if not isinstance(called, ast.Attribute) or (base := _base(called)) is None or base in imported:
                return None
            touched.add(base)
        elif isinstance(
            node,
            ast.Import
            | ast.ImportFrom
            | ast.FunctionDef
            | ast.AsyncFunctionDef
            | ast.ClassDef
            | ast.Raise
            | ast.Await
            | ast.Yield,
        ):
            return None
    return touched


def _base(node: ast.expr) -> str | None:
    """The name at the beginning of ``a.b[c].d``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The module's names that a statement defines. One that also changes something in place is not a definition."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Import() | ast.ImportFrom():
            for alias in statement.names:
                yield from _alias_names(alias)
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.TypeAlias():
            stored = [node for node in ast.walk(statement) if isinstance(getattr(node, "ctx", None), ast.Store)]
            if not any(isinstance(node, ast.Attribute | ast.Subscript) for node in stored):
                yield from (node.id for node in stored if isinstance(node, ast.Name))
        case ast.If() if _is_type_checking(statement):
            for inner in statement.body:
                yield from _bound(inner)


def _alias_names(alias: ast.alias) -> Iterator[str]:
    yield alias.asname or alias.name.partition(".")[0]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_main_guard(statement: ast.stmt) -> bool:
    """Of ``if __name__ == "__main__"`` nothing is executed where the file is imported; of any other such question something may
    be, and of its ``else``."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    return ast.unparse(statement.test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _is_type_checking(statement: ast.If) -> bool:
    """As above: nothing is executed of ``if TYPE_CHECKING``."""
    return not statement.orelse and ast.unparse(statement.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def statements_of(tree: ast.AST) -> Iterator[ast.AST]:
    """``tree`` and every statement in it. Expressions, the larger part of a tree, are not looked at: none holds a statement."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for held in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, held, ())


def _imports(tree: ast.AST, file: Path, only: str | None = None) -> Iterator[Path]:
    """Files of the project that the imports in ``tree`` lead to; for a module's own import statement only ``only``."""
    if isinstance(tree, ast.If) and _is_type_checking(tree):
        return
    for node in statements_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if node is not tree or only is None or only in _alias_names(alias):
                    yield from _files_of(alias.name, file)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file)
            for alias in node.names:
                if node is not tree or only is None or only in _alias_names(alias):
                    for name in _parts_of(base, alias):
                        yield from _files_of(name, file)


def _parts_of(base: str, alias: ast.alias) -> tuple[str, str]:
    """What ``from base import alias`` may execute: a module, and one in it."""
    return base, f"{base}.{alias.name}"


def _absolute(node: ast.ImportFrom, file: Path) -> str:
    if not node.level:
        return node.module or ""
    parts = _module_of(file).split(".")
    if file.name != "__init__.py":
        parts = parts[:-1]
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *filter(None, [node.module])])


@cache
def _module_of(file: Path) -> str:
    """The dotted name of a file, from the outermost folder that is a package."""
    parts = [] if file.name == "__init__.py" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file() or (folder.name in PACKAGES and folder.parent == _code_folder()):
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _files_of(module: str, importer: Path) -> frozenset[Path]:
    """The files that importing ``module`` executes, if it is the project's; nothing otherwise."""
    if not _looked_for(module, importer):
        return frozenset()
    return _files_below(
        _code_folder() if module.partition(".")[0] in PACKAGES else _import_folder(importer.parent), module
    )


def _looked_for(module: str, importer: Path) -> bool:
    """Whether it can be the project's, by its name. A name of the standard library can where an experiment's folder is the first
    in which Python looks: a neighbour may have it."""
    top = module.partition(".")[0]
    if not top or f"{module}.".startswith(_BEGINNINGS):
        return False
    return top not in sys.stdlib_module_names or _import_folder(importer.parent) != _code_folder()


@cache
def _files_below(place: Path, module: str) -> frozenset[Path]:
    beginning = os.path.join(place, *module.split("."))
    files: set[Path] = set()
    for candidate in (f"{beginning}.py", os.path.join(beginning, "__init__.py")):
        if os.path.isfile(candidate):
            file = Path(candidate).resolve()
            files |= {file, *_packages_above(file)}
    return frozenset(files)


def _packages_above(file: Path) -> tuple[Path, ...]:
    return _packages_from(file.parent)


@cache
def _packages_from(folder: Path) -> tuple[Path, ...]:
    """The ``__init__`` of this package, and of each one above it."""
    package = folder / "__init__.py"
    if not package.is_file():
        return ()
    own = () if _module_of(package) in MACHINERY else (package,)
    return (*own, *_packages_from(folder.parent))


@cache
def _code_folder() -> Path:
    return code_folder()


@cache
def _import_folder(folder: Path) -> Path:
    """The folder from which the files of ``folder`` import each other."""
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _shown(file: Path) -> str:
    """A file by its path in the project; one from elsewhere by its name, for a path of this machine is not an identity."""
    for folder in (_code_folder(), _import_folder(file.parent)):
        if (path := str(file)).startswith(beginning := f"{folder}{os.sep}"):
            return path.removeprefix(beginning)
    raise MissingEvidence(
        "code of a step is outside the project", where=str(file)
    )  # pragma: no cover - _import_folder is above
