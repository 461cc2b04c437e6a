"""Python functions that do nothing but compute.

A package may have functions that execute what they read, fetch, or write. So the code that a function reaches is read first
(:mod:`ast`): it may name only the modules and names that its caller allows, :data:`MODULES` among them, and :data:`BUILTINS`.
This judges code that hides nothing; it is not a sandbox, and code that was brought is never executed.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from marin.errors import UsageError

ALL: frozenset[str] = frozenset()
"""Of a module all of whose names may be used."""
MODULES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "__future__",
            "collections",
            "collections.abc",
            "copy",
            "dataclasses",
            "difflib",
            "enum",
            "fractions",
            "functools",
            "html",
            "itertools",
            "math",
            "re",
            "string",
            "textwrap",
            "typing",
            "unicodedata",
        ),
        ALL,
    ),
    "ast": frozenset({"literal_eval"}),
    "hashlib": frozenset({"md5", "sha1", "sha256"}),
    "json": frozenset({"dumps", "loads", "JSONDecodeError"}),
    "logging": frozenset({"debug", "error", "getLogger", "info", "warning"}),
    "numpy": frozenset(
        {
            "abs",
            "all",
            "any",
            "append",
            "arange",
            "argmax",
            "argmin",
            "argsort",
            "array",
            "asarray",
            "bool_",
            "concatenate",
            "cumsum",
            "divide",
            "float32",
            "float64",
            "inf",
            "int64",
            "isnan",
            "max",
            "maximum",
            "mean",
            "min",
            "minimum",
            "nan",
            "nanmax",
            "ndarray",
            "ones",
            "random",
            "round",
            "sort",
            "stack",
            "sum",
            "unique",
            "where",
            "zeros",
        }
    ),
    "random": frozenset({"Random", "choice", "choices", "randint", "random", "sample", "seed", "shuffle"}),
}
"""What any code may take from which module. Of numpy nothing whose last bit is the processor's (exp, log, power)."""


def when_loaded(used: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
    """The same for what runs when a file is loaded: it may read its own files, but not the environment, and begin no stream of
    random numbers: what comes of these would be another number elsewhere, or at the next call."""
    return {
        **{module: names - {"random"} for module, names in used.items() if module != "random"},
        **dict.fromkeys(("json", "pathlib"), ALL),
        "os": frozenset({"path"}),
        "os.path": frozenset({"abspath", "basename", "dirname", "join"}),
    }


BUILTINS = frozenset({*dir(builtins), "__name__"}) - {
    "KeyboardInterrupt",
    "SystemExit",
    "__build_class__",
    "__import__",
    "__loader__",
    "__spec__",
    "breakpoint",
    "compile",
    "copyright",
    "credits",
    "delattr",
    "eval",
    "exec",
    "exit",
    "getattr",
    "globals",
    "hash",
    "help",
    "id",
    "input",
    "license",
    "locals",
    "memoryview",
    "open",
    "quit",
    "setattr",
    "vars",
}
"""``hash`` and ``id`` are another number in each process."""
METHODS = frozenset(
    {
        "dump",
        "from_csv",
        "from_file",
        "from_json",
        "from_parquet",
        "from_sql",
        "from_text",
        "load_from_disk",
        "push_to_hub",
        "save_to_disk",
        "to_csv",
        "to_json",
        "to_parquet",
        "to_sql",
        "tofile",
    }
)
"""Of a data set or an array: what reads or writes files."""
READS = frozenset({"__file__", "globals", "open"})
"""Built-in names that may be used while a file is loaded."""
KEYWORDS = frozenset({"num_proc", "cache_file_name", "cache_file_names"})


@dataclass(frozen=True)
class Code:
    """Files of Python below a folder, of which functions are judged.

    ``package``: the dotted name of the folder, "" where it is not a package. ``used``, ``loaded``: what a function, and what runs
    when a file is loaded, may take from which module; no names: all of them. ``module``: a file, loaded. ``refuse``: what is
    said of code that is not taken, of where, expected and found.
    """

    folder: Path
    used: Mapping[str, frozenset[str]]
    loaded: Mapping[str, frozenset[str]]
    module: Callable[[str], Any]
    refuse: Callable[[str, str, str], UsageError]
    package: str = ""

    def file_of(self, module: str) -> str:
        """The file below the folder that a module of the package is."""
        path = module.removeprefix(self.package).lstrip(".").replace(".", "/")
        return f"{path}.py" if (self.folder / f"{path}.py").is_file() else f"{path}/__init__.py".lstrip("/")

    def inside(self, module: str) -> bool:
        """Whether a dotted name is the package or below it."""
        return bool(self.package) and (module == self.package or module.startswith(f"{self.package}."))


@dataclass
class _Module:
    """A file of the harness: what it binds at its top, and the statements that run when it is loaded."""

    code: Code
    path: str
    content: bytes
    bound: dict[str, list[ast.stmt]] = field(default_factory=dict)
    run: list[ast.stmt] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._take(ast.parse(self.content).body)

    def _take(self, statements: list[ast.stmt]) -> None:
        for one in statements:
            match one:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self.bound.setdefault(name, []).append(one)
                    self.run.append(_definition(one))
                case ast.Import() | ast.ImportFrom():
                    for known, origin, _ in _imports(one, self.path, self.code.package):
                        self.bound.setdefault(known, []).append(one)
                        self.loads += [origin] if self.code.inside(origin) and origin != self.code.package else []
                case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                    pass  # of a program, not of a module
                case ast.If() | ast.Try():
                    self._take([*one.body, *one.orelse, *getattr(one, "finalbody", [])])
                    for handler in getattr(one, "handlers", []):
                        self.bound.setdefault(handler.name or "", [])
                        self._take(handler.body)
                    self.run += [ast.Expr(one.test)] if isinstance(one, ast.If) else []
                case _:
                    for node in ast.walk(one):
                        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                            self.bound.setdefault(node.id, []).append(one)
                    self.run.append(one)


class Reach:
    """All that a function of ``code`` reaches, file by file. ``draws``: random numbers of Python's or numpy's own stream.

    Raises (:meth:`module`, :meth:`name`):
        UsageError: it does I/O, or reads what is not its arguments.
    """

    def __init__(self, code: Code, where: str) -> None:
        self.code, self.where = code, where
        self.modules: dict[str, _Module] = {}
        self.seen: set[tuple[str, str, bool]] = set()
        self.draws = False

    def module(self, path: str) -> _Module:
        if path not in self.modules:
            place = self.code.folder / path
            if not place.is_file():
                raise self.refused(f"a file {path}")
            try:
                self.modules[path] = _Module(self.code, path, place.read_bytes())
            except (SyntaxError, ValueError) as error:
                raise self.refused(str(error)) from None
            for statement in self.modules[path].run:
                self.judge(statement, self.modules[path], loading=True)
            for origin in self.modules[path].loads:
                self.module(self.code.file_of(origin))
        return self.modules[path]

    def name(self, path: str, name: str, *, loading: bool = False) -> None:
        """Take in what ``name`` is in the file ``path``. ``loading``: for a statement that runs when a file is loaded."""
        if (path, name, loading) in self.seen:
            return
        self.seen.add((path, name, loading))
        module = self.module(path)
        if name not in module.bound:
            raise self.refused(f"{name}, which is not in {path}")
        if not loading and _is_data(vars(self.code.module(path)).get(name)):
            return
        for statement in module.bound[name]:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for known, origin, attribute in _imports(statement, path, self.code.package):
                    if known == name:
                        self.imported(origin, attribute, loading=loading)
            else:
                self.judge(statement, module, loading=loading)

    def imported(self, origin: str, attribute: str | None, *, loading: bool) -> None:
        """Take in a name of another module; None: the module itself, whose names are asked for where they stand."""
        if self.code.inside(origin):
            if attribute is None:
                raise self.refused(f"the module {origin} as a whole")
            if not self.code.file_of(f"{origin}.{attribute}").endswith("__init__.py"):
                raise self.refused(f"the module {origin}.{attribute} as a whole")
            self.name(self.code.file_of(origin), attribute, loading=loading)
        elif origin not in (self.code.loaded if loading else self.code.used):
            raise self.refused(f"{origin}{f'.{attribute}' if attribute else ''}")
        elif attribute is not None:
            self.allowed(origin, attribute, loading=loading)

    def allowed(self, module: str, attribute: str, *, loading: bool) -> None:
        known = self.code.loaded if loading else self.code.used
        if f"{module}.{attribute}" in known:
            return
        names = known[module]
        if names and attribute not in names:
            raise self.refused(f"{module}.{attribute}")
        self.draws |= (module, attribute) == ("numpy", "random") or (module == "random" and attribute != "Random")

    def judge(self, statement: ast.stmt, module: _Module, *, loading: bool) -> None:
        """Every name in a statement."""
        inner = {
            known: (origin, attribute)
            for node in ast.walk(statement)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for known, origin, attribute in _imports(node, module.path, self.code.package)
        }
        for origin, attribute in inner.values():
            self.imported(origin, attribute, loading=loading)
        own = {*_bound_in(statement), *inner}
        below = {id(node.value): node for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
        for node in ast.walk(statement):
            match node:
                case ast.Attribute(attr=attr) if (attr.startswith("__") and attr != "__name__") or attr in METHODS:
                    raise self.refused(f".{attr}")
                case ast.Global(names=names):  # what a call leaves behind, the next would find
                    raise self.refused(f"global {', '.join(names)}")
                case ast.keyword(arg=str(arg)) if arg in KEYWORDS:
                    raise self.refused(f"{arg}=")
                case ast.Name(id=name, ctx=ast.Load()):
                    whole = inner.get(name) or self._whole(name, module)
                    if whole is not None and whole[1] is None:
                        taken = below.get(id(node))
                        if taken is None or whole[0] not in (self.code.loaded if loading else self.code.used):
                            raise self.refused(f"the module {whole[0]}")
                        self.allowed(whole[0], taken.attr, loading=loading)
                    elif name in module.bound:
                        self.name(module.path, name, loading=loading)
                    elif name not in own and name not in BUILTINS and not (loading and name in READS):
                        raise self.refused(f"{name}, which is not a name that code may use")

    def _whole(self, name: str, module: _Module) -> tuple[str, None] | None:
        """The module that a name of the file's top is, if it is one."""
        for statement in module.bound.get(name, ()):
            if isinstance(statement, ast.Import):
                for known, origin, _ in _imports(statement, module.path, self.code.package):
                    if known == name:
                        return origin, None
        return None

    def refused(self, found: str) -> UsageError:
        return self.code.refuse(
            self.where, "code that only computes: of the modules and names that docs/evaluation.md lists", found
        )


def _is_data(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_data(key) and _is_data(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_data(item) for item in value)
    return isinstance(value, str | bytes | int | float)


def _definition(one: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.stmt:
    """What runs when a function or a class is made: decorators, defaults, and what a class holds beside its methods."""
    run: list[ast.expr] = list(one.decorator_list)
    held: list[ast.stmt] = []
    if isinstance(one, ast.ClassDef):
        defs = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        held = [_definition(part) if isinstance(part, defs) else part for part in one.body]
    else:
        run += [*one.args.defaults, *filter(None, one.args.kw_defaults)]
    return ast.If(ast.Constant(True), [*map(ast.Expr, run), *held, ast.Pass()], [])


def _bound_in(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement binds for itself."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def _imports(statement: ast.Import | ast.ImportFrom, path: str, package: str) -> Iterator[tuple[str, str, str | None]]:
    """What an import binds: the name, the module, and the name there (None: the module itself)."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name, None
        return
    origin = statement.module or ""
    if statement.level:
        above = PurePosixPath(path).parts[: -statement.level]
        origin = ".".join(part for part in (package, *above, origin) if part)
    for alias in statement.names:
        yield alias.asname or alias.name, origin, alias.name
