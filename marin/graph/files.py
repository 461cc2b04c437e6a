"""Experiment files: Python files that take no arguments and hold steps as values.

    steps = [report]        the wanted ends; what they depend on comes along

A file is loaded by its path, under the name that it has in its package (``experiments.exp001_grammar_scaling``), once
in the command and once in every process that executes a step of it. It is the user's own code and named on the command
line; nothing that a ledger names is ever loaded.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from ledger import LedgerError
from marin.errors import UsageError
from marin.graph.graph import Graph
from marin.graph.step import Step

STEPS = "steps"


class _FromSource(SourceFileLoader):
    """Executes the source that is there. Python's cache of compiled files goes by size and whole seconds: a file that
    was changed twice within one second, by the same number of bytes, would be executed as it was."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_experiment(path: Path) -> ModuleType:
    """Load an experiment file as a module.

    Raises:
        UsageError: there is no such file, it is not Python, or it stops with an error; the message names the line.
    """
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(
            "not an experiment file",
            where=str(path),
            expected="a .py file",
            found="no such file" if not path.exists() else "something else",
            cure="name one, such as experiments/exp001_grammar_scaling.py",
        )
    file = path.resolve()
    name, folder = _module_name(file)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    specification = importlib.util.spec_from_file_location(name, file, loader=_FromSource(name, str(file)))
    assert specification is not None and specification.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except LedgerError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UsageError(
            "the experiment file stops with an error",
            where=f"{path}{_line_of(error, file)}",
            expected="a file that defines steps",
            cure="correct it",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
        ) from error
    return module


def load_graph(path: Path) -> Graph:
    """The graph of an experiment file.

    Raises:
        UsageError: see :func:`load_experiment`; no ``steps``; what :meth:`Graph.of` refuses.
    """
    module = load_experiment(path)
    steps = getattr(module, STEPS, None)
    if isinstance(steps, Step):
        steps = [steps]
    if not isinstance(steps, list | tuple):
        raise UsageError(
            "the file has no steps",
            where=str(path),
            expected="steps = [...] at its top level",
            found="nothing of that name" if steps is None else type(steps).__name__,
            cure="list the steps that are wanted; what they depend on comes along",
        )
    return Graph.of(path.stem, steps)


def _module_name(file: Path) -> tuple[str, Path]:
    """The dotted name of a file below the outermost package, and the folder that holds it."""
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


def _line_of(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f":{error.lineno}"
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
