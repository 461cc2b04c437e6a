"""REFERENCE.md from the docstrings: `python -m ledger.reference`. A test compares it with the committed page."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import get_origin

import ledger

HEAD = """# What the ledger's door hands out

Made from the docstrings by `python -m ledger.reference`. `from ledger import NAME` is the only way in; what a module has
beside these names is its own. Every error is a `LedgerError` and says what, where, what was expected, what was found, and
what to do.
"""


def page() -> str:
    """The whole page: a section for each room of the package, its names in order."""
    rooms: dict[str, list[str]] = {}
    for name, home in ledger.homes().items():
        rooms.setdefault(home.split(".")[1], []).append(name)
    return HEAD + "".join(
        f"\n## {room}\n" + "".join(line for name in sorted(names) for line in _entry(name, getattr(ledger, name)))
        for room, names in sorted(rooms.items())
    )


def _entry(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"\n### `{name}`\n\n{_markdown_of(value)}\n"
        fields = getattr(value, "__dataclass_fields__", {})  # one whose default is a function is not a method
        methods = [
            (key, item)
            for key, item in vars(value).items()
            if not key.startswith("_") and key not in fields and _callable(item)
        ]
        if methods and not issubclass(value, BaseException):
            yield "\n" + "".join(f"- `{key}{_signature(item)}`: {_line(item)}\n" for key, item in methods)
    elif inspect.isfunction(inspect.unwrap(value)):  # type: ignore[arg-type]  # functions that remember their answers too
        yield f"\n### `{name}{_signature(value)}`\n\n{_markdown_of(value)}\n"
    elif get_origin(value) is not None:
        yield f"\n### `{name}`\n\nThe type `{str(value).removeprefix('typing.')}`.\n"
    else:
        yield f"\n### `{name}`\n\nA value of type `{type(value).__name__}`.\n"


def _callable(item: object) -> bool:
    return inspect.isfunction(item) or isinstance(item, classmethod | staticmethod)


def _signature(item: object) -> str:
    plain = getattr(item, "__func__", item)
    given = inspect.signature(plain)  # type: ignore[arg-type]
    if isinstance(item, classmethod) or next(iter(given.parameters), "") == "self":
        given = given.replace(parameters=list(given.parameters.values())[1:])
    return re.sub(r"<function (\w+) at \w+>", r"\1", str(given).replace("'", ""))


def _markdown_of(value: object) -> str:
    """The docstring; what it says under ``Raises:`` and ``Args:`` as a list."""
    prose, lines, listing = [], (inspect.getdoc(value) or "").splitlines(), False
    for line in lines:
        if line in ("Raises:", "Args:"):
            prose += [line, ""]
            listing = True
        elif listing and line.startswith("        "):
            prose[-1] += f" {line.strip()}"
        elif listing and line.startswith("    "):
            name, _, told = line.strip().partition(": ")
            prose.append(f"- `{name}`: {told}")
        else:
            prose.append(line)
            listing = False
    return "\n".join(prose)


def _line(item: object) -> str:
    """The first paragraph, or what the storage port says of the same method."""
    text = inspect.getdoc(item) or inspect.getdoc(getattr(ledger.Storage, getattr(item, "__name__", ""), item)) or ""
    return " ".join(text.partition("\n\n")[0].split())


if __name__ == "__main__":
    sys.stdout.write(page())
