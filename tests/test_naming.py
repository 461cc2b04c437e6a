"""What a file of ours says: docstrings name the errors that are raised and mark code in one way, a constant and a private name
have one home. Read from the syntax trees of all files (tests/test_architecture.py: who may enter whom)."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from bench.house import gauges
from tests.sources import nodes, parsed, parsed_once

__all__ = ["parsed_once"]

PROJECT = Path(__file__).resolve().parent.parent
CHECKED = ("ledger", "marin", "experiments", "bench", "tests.adversary")
FILES = sorted(file for package in ("ledger", "marin", "experiments") for file in (PROJECT / package).rglob("*.py"))


OURS = {
    name
    for file in ("ledger/errors.py", "marin/errors.py")
    for name in re.findall(r"^class (\w+)", (PROJECT / file).read_text("utf-8"), re.M)
}


def silent(source: str) -> Iterator[str]:
    """Public functions and methods that raise an error of ours by themselves, and whose docstring does not name it."""
    tree = parsed(source)
    kinds = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for node in (*tree.body, *(item for kind in kinds for item in kind.body)):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        told = ast.get_docstring(node)
        raised = {
            inner.exc.func.id
            for inner in ast.walk(node)
            if isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Call) and isinstance(inner.exc.func, ast.Name)
        }
        if told and not all(name in told for name in raised & OURS):
            yield node.name


def test_public_functions_say_what_they_raise() -> None:
    found = [
        f"{name} {function}"
        for file in FILES
        for name in [file.relative_to(PROJECT).as_posix()]
        if not name.startswith("marin/cli/")
        and not re.fullmatch(
            r"marin/plugins/\w+/(command\.py|commands/.*)", name
        )  # commands raise into the one place that prints errors
        for function in silent(file.read_text("utf-8"))
    ]
    assert found == []


def test_a_silent_function_would_be_found() -> None:
    source = 'def f():\n    """Does."""\n    raise Refused("no")\n'
    assert list(silent(source)) == ["f"]
    assert list(silent(source.replace("Does.", "Does; `Refused` where it cannot."))) == []


BY_CHANCE = {"LOSS": "what Levanter calls it, and what MLflow's page calls it"}


def constants(source: str) -> Iterator[tuple[str, str]]:
    """Names at the top of a file that hold a text or a tuple of literals, with that."""
    for node in parsed(source).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id.strip("_").isupper():
            text = isinstance(value, ast.Constant) and isinstance(value.value, str) and len(value.value) > 4
            if text or (isinstance(value, ast.Tuple) and all(isinstance(item, ast.Constant) for item in value.elts)):
                yield target.id.strip("_"), ast.unparse(value)


def test_a_constant_has_one_home() -> None:
    found: dict[tuple[str, str], list[str]] = {}
    for file in FILES:
        name = file.relative_to(PROJECT).as_posix()
        if not name.startswith("experiments/"):  # an experiment's file says what it needs by itself
            for constant in constants(file.read_text("utf-8")):
                found.setdefault(constant, []).append(name)
    assert {name: files for (name, _), files in found.items() if len(files) > 1 and name not in BY_CHANCE} == {}
    assert list(constants('A = "a text"\nB = ("x", 1)\nC = f()\n')) == [("A", "'a text'"), ("B", "('x', 1)")]


KIN = {
    "QUESTIONS": "of a dossier and of what was unlearned: each is answered by its own verification",
    "STEPS": "of the pipeline, and the events of them that a bundle of answers holds",
}
"""Public names of collections that share members and are not the same, and why."""


def collections_of(source: str) -> Iterator[tuple[str, frozenset[object]]]:
    """Public names at the top of a file that hold several literals, with those."""
    for node in parsed(source).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "frozenset" and value.args:
            value = value.args[0]
        if not (isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_")):
            continue
        if isinstance(value, ast.Tuple | ast.Set) and all(isinstance(item, ast.Constant) for item in value.elts):
            yield target.id, frozenset(ast.literal_eval(value))


def disagreeing(sources: Iterable[str]) -> set[str]:
    """Names that hold nearly the same in two files: half of what one of them has, the other has too."""
    found: dict[str, set[frozenset[object]]] = {}
    for source in sources:
        for name, members in collections_of(source):
            found.setdefault(name, set()).add(members)
    return {
        name
        for name, kinds in found.items()
        for one, other in combinations(kinds, 2)
        if 2 * len(one & other) >= min(len(one), len(other)) > 0
    }


def test_a_constant_does_not_disagree_with_itself() -> None:
    inside = [file for file in FILES if file.relative_to(PROJECT).parts[0] != "experiments"]
    found = disagreeing(file.read_text("utf-8") for file in inside)
    assert found == set(KIN) or (gauges.absent() and found < set(KIN))
    one, other = 'LEVEL = ("avx", "avx2", "fma")\n', 'LEVEL = frozenset({"avx", "avx2", "xsave"})\n'
    assert disagreeing([one, other]) == {"LEVEL"}
    assert disagreeing([one, one, 'LEVEL = ("low", "high")\n']) == set()


MOST_HOMES = {"function": 5, "class": 4}
"""Files in which a private function, or a class, of one name may stand. What means the same everywhere gets one home, and
what does not a name of its own. The numbers only get smaller."""


def defined(source: str) -> Iterator[tuple[str, str]]:
    """Private functions and all classes at the top of a file: the kind and the name. What is imported is defined elsewhere."""
    for node in parsed(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("_"):
            yield "function", node.name
        elif isinstance(node, ast.ClassDef):
            yield "class", node.name


def test_a_name_does_not_stand_in_many_files() -> None:
    homes = Counter(item for file in FILES for item in set(defined(file.read_text("utf-8"))))
    assert {name: count for (kind, name), count in homes.items() if count > MOST_HOMES[kind]} == {}
    unsaid = {("function", "_explained"), ("function", "_print")}
    assert homes.keys() & unsaid == set(), "they do not say what is explained or printed"
    source = "from a import D\ndef _a(): ...\ndef b():\n    def _c(): ...\nclass E:\n    class F: ...\nclass _G: ...\n"
    assert list(defined(source)) == [("function", "_a"), ("class", "E"), ("class", "_G")]


PROGRAMS = {
    "dvc",
    "docker",
    "git",
    "ledger",
    "make",
    "marin",
    "oras",
    "pip",
    "pytest",
    "python",
    "skopeo",
    "store",
    "uv",
}


def mixed_ticks(source: str) -> Iterator[str]:
    """What stands in single backticks in a docstring and is no command line: code stands in double ones. The help of a
    command is read in a terminal, where all stands in single ones."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in nodes(source):
        if not isinstance(node, kinds):
            continue
        is_help = any(
            re.search(r"(command|group)\(", ast.unparse(item)) for item in getattr(node, "decorator_list", ())
        )
        for item in () if is_help else node.body:
            if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)):
                continue
            text = re.sub(r"``[^`]+``|:\w+:`[^`]*`", "", str(item.value.value))
            yield from (found for found in re.findall(r"`([^`]+)`", text) if found.split()[0] not in PROGRAMS)


def test_backticks_have_one_convention() -> None:
    found = [
        f"{name} {text}"
        for file in FILES
        for name in [file.relative_to(PROJECT).as_posix()]
        for text in mixed_ticks(file.read_text("utf-8"))
    ]
    assert found == []
    assert list(mixed_ticks('"""`marin run` gives ``value`` and `value`."""')) == ["value"]


STAND_IN = {
    "test_completion.py _Stage": "another executor that records between two reads",
    "test_completion.py _run": "of the same: what it did not see yet",
    "test_pipeline_steps.py _submit": "a signal between two steps that are handed out",
    "test_reader.py _catch_up": "another process that follows between a look at the log and the first row",
    "test_ledger_store.py _projections": "a cache that a test clears",
    "test_functions.py _module": "a cache that a test clears",
    "test_functions.py _judged": "a cache that a test clears",
    "test_posix_faults.py _SYNC_THREADS": "one, so that the count of calls is the same each time",
    "test_waiting.py _last_output": "the clock of what was said",
    "test_bundle.py _judged": "what is judged when a bundle was read",
    "test_bundle.py _exported": "what of a model's folder its digest stands for",
    "test_bundle.py _opened": "what is judged when a bundle was read",
    "test_copies.py _spread": "its bytes are part of what a collection is",
    "test_sources.py _expression": "its bytes are part of what a collection is",
    "test_digesting.py _together": "its bytes are part of what a training is",
    "hashed_once.py _file_digest": "its bytes are part of what a training is",
    "test_taken_apart.py _OPERATIONS": "its bytes are part of what a training is",
}
"""Private names of ours that tests read, in files whose digest is part of identities, or as a cache or a clock. What a test
puts something else in place of (``monkeypatch.setattr(module, "_name", ...)``) stands in for a fault, and may be private:
where the test also reads it, to go on with the real one, it stands here."""

OF_OTHERS = {
    "forked.py _basetemp": "pytest's: each process has a folder of its own",
    "forked.py _tmp_path_factory": "pytest's: each process has a folder of its own",
    "warm.py _tmp_path_factory": "pytest's: the folder of the session",
    "forked.py _clear": "atexit's: a forked process forgets what its parent would do at its end",
    "forked.py _run_exitfuncs": "atexit's: a process that ends by os._exit does by itself what others do at their end",
    "warm_server.py _run_exitfuncs": "atexit's: a process that ends by os._exit does by itself what others do at their end",
    "warm_server.py _shutdown": "threading's: the same, for its threads",
    "test_compiled.py _src": "jax's: settings for which it has no public context manager",
    "test_loss.py _default_implementations": "Levanter's: a cache that a test clears",
    "test_repository.py _download_file": "MLflow's: what it calls on a repository for one file",
    "test_gpus.py _obj": "ctypes': what byref refers to, for functions that stand for those of a C library",
    "test_scale.py _compute_inv_freq_llama": "Levanter's: the frequencies themselves",
}
"""Private names of other projects, where they have no public one for it."""

BY_CONVENTION = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Of ``namedtuple`` and of ``os``: documented names that begin like private ones, so that they stand apart."""


def private_uses(source: str) -> Iterator[str]:
    """Private names that a test imports from a package of ours, or takes from anything but the instance or class that its
    own method is of."""

    def is_private(name: object) -> bool:
        return isinstance(name, str) and re.match("_[^_]", name) is not None and name not in BY_CONVENTION

    for node in nodes(source):
        match node:
            case ast.ImportFrom(module=str(module)) if not node.level and module.partition(".")[0] in (
                "ledger",
                "marin",
            ):
                yield from (alias.name for alias in node.names if is_private(alias.name))
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                yield name
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=name), *_]):
                yield from [str(name)] if is_private(name) else []


def test_tests_use_what_is_public() -> None:
    adversary = PROJECT / "tests" / "adversary"  # its workshops are programs, whose files share what is theirs alone
    programs = (adversary / "faults", adversary / "forgeries")
    tests = [file for file in sorted((PROJECT / "tests").rglob("*.py")) if not {*programs} & {*file.parents}]
    found = {f"{file.name} {name}" for file in tests for name in private_uses(file.read_text("utf-8"))}
    told = STAND_IN.keys() | OF_OTHERS.keys()
    assert sorted(found - told) == []
    assert sorted(told - found) == [] or gauges.absent()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from marin.verify import sealed\nsealed._a(sealed.b)", ["_a"]),
        ("from marin.verify.sealed import _a, b", ["_a"]),
        ("from .parsers import _a", []),
        ("log._a", ["_a"]),
        ("client.b._a.c", ["_a"]),
        ("opened(root)._a = 1", ["_a"]),
        ("getattr(log, '_a')", ["_a"]),
        ("self._a, cls._b, self._c.d", []),
        ("self._a._b", ["_b"]),
        ("row._replace(a=1)._asdict(), os._exit(0), kind.__name__, log.__dict__", []),
    ],
)
def test_a_private_use_would_be_found(source: str, found: list[str]) -> None:
    assert list(private_uses(source)) == found


def test_one_formatter_goes_over_everything() -> None:
    files = (
        file for top in ("ledger", "marin", "experiments", "tests", "bench") for file in (PROJECT / top).rglob("*.py")
    )
    kept = re.compile("# *fmt: *(skip|off)")
    assert [file.name for file in files if kept.search(file.read_text("utf-8"))] == []


def file_of(module: str) -> Path | None:
    """The file, or the folder without ``__init__.py``, of a module of ours."""
    path = PROJECT / module.replace(".", "/")
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py", path) if one.exists()), None)


@cache
def bound(file: Path) -> frozenset[str]:
    """Names of a module: all that its statements bind, those in branches too, but nothing inside functions and classes."""

    def names(statements: Iterable[ast.stmt]) -> Iterator[str]:
        for one in statements:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield one.name
            elif isinstance(one, ast.ImportFrom) and one.names[0].name == "*":
                if (whole := file_of(str(one.module))) is not None:
                    yield from (name for name in bound(whole) if not name.startswith("_"))
            elif isinstance(one, ast.Import | ast.ImportFrom):
                yield from ((alias.asname or alias.name).partition(".")[0] for alias in one.names)
            else:
                yield from (node.id for node in ast.walk(one) if isinstance(node, ast.Name))
                for branch in ("body", "orelse", "finalbody"):
                    yield from names(getattr(one, branch, ()))

    return frozenset(names(parsed(file.read_text("utf-8")).body)) if file.is_file() else frozenset()


OF_A_PLUGIN = re.compile(r"(?:marin|tests)\.plugins\.(\w+)")


def there(module: str, name: str) -> bool:
    if (plugin := OF_A_PLUGIN.match(f"{module}.{name}")) is not None and plugin[1] in gauges.absent():
        return True  # tests of this plugin are not collected either
    file = file_of(module)
    known = bound(file) if file is not None else frozenset()
    return name in known or "__getattr__" in known or name.startswith("__") or file_of(f"{module}.{name}") is not None


def missing(source: str) -> Iterator[str]:
    """What a file asks our modules for that they have not: names that it imports, and names of modules that it imports."""
    modules: dict[str, str] = {}
    for node in nodes(source):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(ROOMS) and not node.level:
            for alias in node.names:
                if not there(str(node.module), alias.name):
                    yield f"{node.lineno}: {node.module}.{alias.name}"
                elif file_of(f"{node.module}.{alias.name}") is not None:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    local = {node.id for node in nodes(source) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    local |= {node.arg for node in nodes(source) if isinstance(node, ast.arg)}
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and node.value.id not in local and not there(module, node.attr):
                yield f"{node.lineno}: {module}.{node.attr}"


ROOMS = tuple(f"{room}." for room in CHECKED)
IMPORT = re.compile(rf"(?:^|;) *from ((?:{'|'.join(CHECKED)})[\w.]*) import ([\w, ]+)", re.M)
DOTTED = re.compile(rf"((?:{'|'.join(CHECKED)})(?:\.\w+)+)\.(\w+)")
ASSIGNED = re.compile(rf"^ *((?:{'|'.join(CHECKED)})(?:\.\w+)+)\.(\w+) = ", re.M)
INVENTED = {PROJECT / "tests" / name for name in ("marin/test_house.py", "marin/work/test_code.py")}
"""Rules of the tree, as those of tests/ itself are: their examples name what is nowhere."""


def missing_in_texts(source: str) -> Iterator[str]:
    """What the programs and the dotted names that stand in a file as texts ask our modules for that they have not."""
    for node in nodes(source):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        asked = [(module, name.strip()) for module, names in IMPORT.findall(node.value) for name in names.split(",")]
        asked += [item for item in ASSIGNED.findall(node.value) if file_of(item[0]) is not None]
        if (dotted := DOTTED.fullmatch(node.value)) is not None and file_of(dotted[1]) is not None:
            asked.append((dotted[1], dotted[2]))
        for module, name in asked:
            if name and not there(module, name.partition(" as ")[0]):
                yield f"{node.lineno}: {module}.{name}"


def test_what_a_test_names_is_there() -> None:
    """mypy reads all else. Some tests run in no suite but their own, where a name that moved would be noticed late."""
    files = sorted((PROJECT / "tests").rglob("*.py"))
    found = [
        f"{file.relative_to(PROJECT)}:{line}"
        for file in files
        for source in [file.read_text(encoding="utf-8")]
        for line in (
            *missing(source),
            *(() if file.parent == PROJECT / "tests" or file in INVENTED else missing_in_texts(source)),
        )
    ]
    assert found == []


def is_loading(node: ast.AST, wrappers: frozenset[str]) -> bool:
    """Whether an expression is a plugin that is loaded by its name: to mypy it may have any attribute."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in {"load_plugin", *wrappers}


def wrappers_in(source: str) -> Iterator[str]:
    """Functions that return a plugin that they load."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(one, ast.Return) and one.value is not None and is_loading(one.value, frozenset())
            for one in node.body
        ):
            yield node.name


def asked_of_plugins(source: str, wrappers: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and name of each attribute of such a plugin, where it is loaded or of the variable that has it."""
    for function in (node for node in nodes(source) if isinstance(node, ast.FunctionDef)):
        inside = list(ast.walk(function))
        loaded = {
            target.id
            for node in inside
            if isinstance(node, ast.Assign) and is_loading(node.value, wrappers)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in inside:
            if isinstance(node, ast.Attribute) and (
                is_loading(node.value, wrappers) or (isinstance(node.value, ast.Name) and node.value.id in loaded)
            ):
                yield node.lineno, node.attr


def names_of_plugins() -> frozenset[str]:
    """What the modules have that entry points name as a whole."""
    points = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    files = [file_of(value) for group in points.values() for value in group.values() if ":" not in value]
    return frozenset().union(*(bound(file) for file in files if file is not None))


def test_what_is_asked_of_a_plugin_by_name_is_there() -> None:
    """A plugin is anything to mypy, so a function that was renamed would be missed by a run alone."""
    texts = {file: file.read_text("utf-8") for file in sorted((PROJECT / "marin").rglob("*.py"))}
    wrappers = frozenset(name for text in texts.values() for name in wrappers_in(text))
    known = names_of_plugins()
    asked = [
        (f"{file.relative_to(PROJECT)}:{line}", name)
        for file, text in texts.items()
        for line, name in asked_of_plugins(text, wrappers)
    ]
    assert {"experts", "adapters"} <= wrappers and len(asked) > 25
    assert [f"{place}: {name}" for place, name in asked if name not in known] == []


def test_a_name_that_a_plugin_lost_is_found() -> None:
    source = "def f():\n    found = plugins.load_plugin(*A)\n    found.one\n    return experts().two\n"
    assert list(asked_of_plugins(source, frozenset({"experts"}))) == [(3, "one"), (4, "two")]
    assert list(wrappers_in("def experts():\n    return load_plugin(*A)\n")) == ["experts"]


def test_a_name_that_moved_is_found() -> None:
    source = "from marin.record import root\nfrom marin.record.root import Root, gone\n\nroot.open_root\nroot.moved\n"
    assert list(missing(source)) == ["2: marin.record.root.gone", "5: marin.record.root.moved"]
    texts = f"run({source!r})\npatch('marin.record.root.open_root')\npatch('marin.record.root.away', 1)\n"
    assert list(missing_in_texts(texts)) == ["1: marin.record.root.gone", "3: marin.record.root.away"]
    program = "import marin.record.root\nmarin.record.root.lost = 1\nmarin.record.root.open_root = 2\n"
    assert list(missing_in_texts(f"run({program!r})")) == ["1: marin.record.root.lost"]


ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`~?([\w.]+)`")


def lost_references(source: str) -> Iterator[str]:
    """What docstrings refer to and is nowhere: a dotted name of ours, or one that nothing else in the file has."""
    known = {*sys.stdlib_module_names, *re.findall(r"\w+", ROLE.sub("", source))}
    for target in ROLE.findall(source):
        parts = target.split(".")
        count = max((n for n in range(1, len(parts) + 1) if file_of(".".join(parts[:n])) is not None), default=0)
        file, names = file_of(".".join(parts[:count])), parts[count:]
        if not f"{target}.".startswith(ROOMS) or file is None or count == 0:
            found = parts[0] in known
        else:
            words = set(re.findall(r"\w+", file.read_text("utf-8"))) if len(names) > 1 else set()
            found = not names or (there(".".join(parts[:count]), names[0]) and words >= {*names[1:]})
        if not found:
            yield target


def test_what_a_docstring_refers_to_is_there() -> None:
    found = [
        f"{file.relative_to(PROJECT)}: {target}"
        for file in FILES
        for target in lost_references(file.read_text("utf-8"))
    ]
    assert found == [] or gauges.absent()
    texts = ":func:`gone`, :func:`f`, :class:`marin.record.root.Root`, :func:`marin.record.root.away`"
    source = f'"""See {texts}."""\ndef f(): ...\n'
    assert list(lost_references(source)) == ["gone", "marin.record.root.away"]


PARTICIPLES = {"_asked", "_found", "_given", "_kept", "_made", "_said", "_told"}
"""They say that something happened, and neither what it is nor what is done: a private name is a noun or a verb."""


def participles(source: str) -> Iterator[str]:
    """Functions, constants and attributes that are named by one."""
    for node in nodes(source):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                named = name
            case ast.Attribute(attr=named, ctx=ast.Store()):
                pass
            case _:
                continue
        if named in PARTICIPLES:
            yield named


def test_a_private_name_says_what_it_is() -> None:
    rooms = ("ledger", "marin", "bench", "tests")  # an experiment's file is part of what it registered
    files = sorted(file for room in rooms for file in (PROJECT / room).rglob("*.py"))
    found = [
        f"{file.relative_to(PROJECT).as_posix()} {name}"
        for file in files
        for name in participles(file.read_text("utf-8"))
    ]
    assert found == []
    source = "_told = 1\ndef _made(): pass\nclass C:\n    _kept: int = 0\n    def f(self): self._said = _found = 2\n"
    assert sorted(participles(source)) == ["_found", "_kept", "_made", "_said", "_told"]


LONG, EACH = 60, 45
"""Lines of a body that is long, and lines of it for which there is at least one comment."""


def uncommented(source: str) -> Iterator[str]:
    """Functions with a long body that has too few comments: where it is difficult, they say why."""
    lines = source.splitlines()
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            begin = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
            body = lines[begin : node.end_lineno]
            comments = sum(line.lstrip().startswith("#") or "  # " in line for line in body)
            if len(body) > LONG and comments < len(body) // EACH:
                yield node.name


def test_a_long_body_says_why() -> None:
    product = [file for file in FILES if file.relative_to(PROJECT).parts[0] in ("ledger", "marin")]
    found = [
        f"{file.relative_to(PROJECT).as_posix()} {name}"
        for file in product
        for name in uncommented(file.read_text("utf-8"))
    ]
    assert found == []
    source = "def f():\n" + "    x = 1\n" * 100
    assert list(uncommented(source)) == ["f"]
    assert list(uncommented(source + "    # why\n    x = 2  # and why\n    x = 3\n")) == []
