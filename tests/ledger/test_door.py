"""The door: its three lists are one, and opening it is quick and light."""

import ast
import subprocess
import sys
from pathlib import Path

import ledger

HEAVY = {"jax", "ray", "mlflow", "dvc", "click", "numpy", "cryptography", "sqlite3", "marin"}


def names_for_type_checkers():
    tree = ast.parse(Path(ledger.__file__).read_text())
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_the_three_lists_are_one():
    assert names_for_type_checkers() == ledger._HOME
    assert sorted(ledger.__all__) == sorted(ledger._HOME)
    assert len(set(ledger.__all__)) == len(ledger.__all__)


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
