"""Functions of the installed lm-evaluation-harness that do nothing but compute."""

from __future__ import annotations

import functools
import importlib
import inspect
import io
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from ledger import digest_bytes
from marin.errors import UsageError
from marin.work.computing import MODULES, Code, Reach, when_loaded

PACKAGE = "lm_eval.tasks"
USED: Mapping[str, frozenset[str]] = {
    **MODULES,
    "datasets": frozenset({"Dataset", "Features", "Sequence", "Value"}),
    "lm_eval.utils": frozenset({"eval_logger", "general_detokenize", "weighted_f1_score"}),
    "sklearn.metrics": frozenset({"accuracy_score", "f1_score"}),
}
"""What code of the harness may take from which module."""


@functools.cache
def _module(path: str) -> Any:
    """A file of the harness's tasks as a module, by its package's name where that is one."""
    dotted = f"{PACKAGE}.{path.removesuffix('.py').replace('/', '.')}"
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # some print what they miss
        if all(part.isidentifier() for part in dotted.split(".")) and not path.endswith("__init__.py"):
            return importlib.import_module(dotted)
        spec = spec_from_file_location(dotted.replace(".", "_"), installed_folder() / path)
        if spec is None or spec.loader is None:
            raise ImportError(path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@functools.cache
def installed_folder() -> Path:
    """Where the installed harness has its tasks.

    Raises:
        UsageError: it is not installed.
    """
    found = find_spec("lm_eval")
    if found is None or not found.submodule_search_locations:
        raise refused_code("lm-evaluation-harness", "the installed harness", "none")
    return Path(found.submodule_search_locations[0]) / "tasks"


@functools.cache
def files_by_name() -> Mapping[str, tuple[str, ...]]:
    """The harness's own Python files below its tasks, by their last name; none where it is not installed."""
    found: dict[str, list[str]] = {}
    if find_spec("lm_eval") is None:
        return {}
    for path in sorted(installed_folder().rglob("*.py")):
        found.setdefault(path.name, []).append(path.relative_to(installed_folder()).as_posix())
    return {name: tuple(paths) for name, paths in found.items()}


@dataclass(frozen=True)
class HarnessFunction:
    """A function of the installed harness. ``digest``: of all code that it reaches. ``draws``: from Python's or numpy's own
    stream of random numbers."""

    call: Callable[..., Any]
    digest: str
    draws: bool


@functools.cache
def _judged(path: str, name: str) -> HarnessFunction | UsageError:
    """Load a file of the installed harness, and judge the code that a function of it reaches; once, since that does not
    change."""
    where = f"lm_eval/tasks/{path}:{name}"
    reach = Reach(Code(installed_folder(), USED, when_loaded(USED), _module, refused_code, PACKAGE), where)
    try:
        reach.module(path)
        call = getattr(_module(path), name)
        inner = call
        while isinstance(inner, functools.partial):
            inner = inner.func
        inner = inspect.unwrap(inner)
        if inner.__name__ in USED.get(inner.__module__, ()):  # a name for one of those
            return HarnessFunction(call, digest_bytes((installed_folder() / path).read_bytes()), draws=False)
        code = inner.__code__
        own = Path(code.co_filename).relative_to(installed_folder()).as_posix()
        reach.name(own, code.co_name)
    except UsageError as error:
        return error
    except Exception as error:  # files of the harness raise whatever they like where a package is missing
        return refused_code(
            where, "a function that can be loaded", f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        )
    lines = [f"{module.path} {digest_bytes(module.content)}\n" for module in reach.modules.values()]
    return HarnessFunction(call, digest_bytes("".join(sorted(lines)).encode()), reach.draws)


def known_function(path: str, name: str, where: str) -> HarnessFunction:
    """The function ``name`` of the file ``path`` below the harness's tasks.

    Raises:
        UsageError: there is no such function, or it does more than compute; ``where``: who names it.
    """
    judged = _judged(path, name)
    if isinstance(judged, UsageError):
        raise refused_code(where, judged.expected, judged.found or "")
    return judged


def refused_code(where: str, expected: str, found: str) -> UsageError:
    """What is said of code that is not taken."""
    return UsageError(
        "a task that names code",
        where=where,
        expected=expected,
        found=found,
        cure="write it with templates, or do its work once and name the result as the task's data",
    )
