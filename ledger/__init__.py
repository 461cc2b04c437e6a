"""The ledger: a signed, append-only log of events and a store of the artifacts that they name.

This is the only door. It knows nothing of machine learning; anyone who uses it imports names from here and from nowhere
deeper. SPEC.md has the bytes. A name's module is imported when the name is first asked for (PEP 562), so that a command
which only prints its help does not wait for cryptography. The names stand in __init__.pyi, where type checkers read them
too: a new one is one line there.
"""

import ast
from importlib import import_module
from pathlib import Path


def homes() -> dict[str, str]:
    """The module of each name of the door, by the list in __init__.pyi."""
    listed = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.name: node.module
        for node in listed.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


_HOME = homes()
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'ledger' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
