"""Marin: language models whose training anyone can replay bit for bit, recorded in the ledger of the package beside
it. What a program or a notebook needs is below `marin.open` (docs/api.md); nothing else is imported before it is asked
for."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin.library.root import Root, open
    from marin.library.run import Run

__all__ = ["Root", "Run", "__version__", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`marin.open` and the types of what it gives, imported when they are named."""
    places = {"open": "marin.library.root", "Root": "marin.library.root", "Run": "marin.library.run"}
    if name not in places:
        raise AttributeError(f"module 'marin' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(places[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), "Root", "Run", "open"])
