"""Marin: language models whose training anyone can replay bit for bit, recorded in the ledger of the package beside
it. What a program or a notebook needs is below ``marin.open`` (docs/api.md); nothing else is imported before it is asked
for."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin.library.root import Root, open
    from marin.library.run import Run
    from marin.loops.loop import Loop, start_run

__all__ = ["Loop", "Root", "Run", "__version__", "open", "start_run"]
__version__ = "0.1.0"
_PLACES = {
    "open": "marin.library.root",
    "Root": "marin.library.root",
    "Run": "marin.library.run",
    "start_run": "marin.loops.loop",
    "Loop": "marin.loops.loop",
    "verify": "marin.verify",  # a package, which can be called
    "record": "marin.record",  # so is this
}


def __getattr__(name: str) -> Any:
    """``marin.open``, ``marin.start_run`` and the types of what they give, imported when they are named."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module 'marin' has no attribute {name!r}")
    found = import_module(_PLACES[name])
    return getattr(found, name, found)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
