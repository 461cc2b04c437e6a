"""The door: its list of names is one, and opening it is quick and light."""

import ast
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ledger

HEAVY = {"jax", "ray", "mlflow", "dvc", "click", "numpy", "cryptography", "sqlite3", "marin"}


def test_type_checkers_and_programs_read_one_list():
    listed = ast.parse(Path(ledger.__file__).with_suffix(".pyi").read_text())
    names = [alias for node in listed.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(alias.asname for alias in names) == ledger.__all__, "each once, and handed on: `import Name as Name`"
    assert all(alias.name == alias.asname for alias in names)


def test_every_name_opens():
    for name in ledger.__all__:
        assert getattr(ledger, name) is not None
        assert name in dir(ledger)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(ledger, "no_such_name")


def test_opening_the_door_imports_nothing_heavy():
    code = "import sys, ledger; print(' '.join(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not HEAVY & {name.split(".")[0] for name in loaded}


def test_the_log_needs_no_numerics():
    code = "import sys; from ledger import Log, LogReader, check, verify_proof; print(' '.join(sorted(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"jax", "ray", "mlflow", "dvc", "click", "numpy", "marin"} & {name.split(".")[0] for name in loaded}


ERRORS = {error.__name__ for error in (ledger.LedgerError, *ledger.LedgerError.__subclasses__())} | {"ValueError"}


def behind_the_door():
    """Every function of the door and every public method of its classes, with the texts that may describe it: its own,
    its class's, and that of the storage port for a driver."""
    for name in ledger.__all__:
        found = getattr(ledger, name)
        if inspect.isfunction(found):
            yield name, found, [inspect.getdoc(found) or "", ""]
        elif inspect.isclass(found) and not issubclass(found, BaseException):
            for method, function in vars(found).items():
                if (
                    inspect.isfunction(function)
                    and not method.startswith("_")
                    and function.__module__ == found.__module__
                ):
                    port = getattr(ledger.Storage, method, None)
                    own = [inspect.getdoc(function) or "", (inspect.getdoc(port) or "") if port is not None else ""]
                    yield f"{name}.{method}", function, [*own, found.__doc__ or ""]


@pytest.mark.parametrize(("name", "function", "texts"), [pytest.param(*item, id=item[0]) for item in behind_the_door()])
def test_what_is_behind_the_door_says_what_it_does_and_raises(name, function, texts):
    if function.__name__ == "<lambda>" or "clock" in name:
        return  # a field's default
    assert any(texts[:-1]), "a docstring"
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = {
        node.exc.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
        if node.exc.func.id in ERRORS
    }
    assert {error for error in raised if not any(error in text for text in texts)} == set()
