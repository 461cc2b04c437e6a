"""Plugins, found by entry points as pytest, DVC's remotes and MLflow find theirs.

A group of entry points is a place where the core asks; docs/plugins.md lists them. Marin's own plugins stand in the table of
pyproject.toml as others' stand in theirs; one whose folder was deleted is as one that is not installed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import marin
from marin.errors import NotInstalled

logger = logging.getLogger(__name__)

DISTRIBUTION = "marin-repro"
OWN_GROUPS = (
    *("marin.judges", "marin.documents", "marin.evaluations", "marin.explanations"),
    *("marin.corpora", "marin.forks", "marin.models", "marin.objectives", "marin.profiles", "marin.registrations"),
    "marin.tokens",
)
"""Groups in which Marin asks its own plugins alone: what they say is a verdict, or decides the bits of a step, whose identity
has their code. One that is missing is missing."""


def own_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of Marin's own plugins, by name. Reads one file; all others are not looked at."""
    return {point.name: point for point in _written(group) if _is_there(point)}


def own_names(group: str, *, there: bool) -> list[str]:
    """The names of Marin's own plugins in a group: of those that are there, or of those that are not."""
    return sorted(point.name for point in _written(group) if _is_there(point) is there)


def _written(group: str) -> tuple[EntryPoint, ...]:
    """What stands in the table of this distribution."""
    try:
        return tuple(distribution(DISTRIBUTION).entry_points.select(group=group))
    except PackageNotFoundError:
        return ()


def points(group: str) -> dict[str, EntryPoint]:
    """The entry points of all installed plugins, by name; Marin's own come first, and no other takes a name of theirs."""
    found = own_points(group)
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        if point.name in found and point.value != found[point.name].value:
            logger.warning("a plugin is left out: %s of %s, a name that is taken", point.name, point.value)
        elif _is_there(point):
            found.setdefault(point.name, point)
    return found


def load_plugin(group: str, name: str, where: str) -> Any:
    """What the plugin ``name`` has for a group; ``where``: what asks for it, such as a key of the recipe.

    Raises:
        NotInstalled: there is no such plugin.
    """
    point = own_points(group).get(name)
    if point is None and group not in OWN_GROUPS:
        point = points(group).get(name)
    if point is None:
        raise _absent(group, name, where)
    return point.load()


def _absent(group: str, name: str, where: str) -> NotInstalled:
    ours = next((point.module for point in _written(group) if point.name == name), None)
    return NotInstalled(
        "a plugin is not installed",
        where=where,
        expected=f"the entry point {name} in the group {group}",
        found="an installation without it" if ours is None else f"an installation without {ours}, a part of Marin",
        cure="install the distribution that has it, or name what does not need it; docs/plugins.md lists those of Marin",
    )


def own_file(group: str, name: str, where: str) -> str:
    """The file of the plugin of Marin that :func:`load_plugin` gives, below the folder of the packages.

    Raises:
        NotInstalled: there is no such plugin.
    """
    point = own_points(group).get(name)
    file = None if point is None else file_of(point.module)
    if file is None:
        raise _absent(group, name, where)
    return file


def load_plugins(group: str) -> Iterator[tuple[str, Any]]:
    """Name and object of each installed plugin of a group; one of others that cannot be loaded is left out."""
    own = own_points(group)
    for name, point in points(group).items():
        try:
            found = point.load()
        except Exception as error:  # whatever it does when it is imported
            if name in own:
                raise
            _leave_out(point, error)
            continue
        yield name, found


def file_of(module: str) -> str | None:
    """The file of a module of Marin, below the folder of the packages; None where there is none. Nothing is imported."""
    path = module.replace(".", "/")
    folder = Path(marin.__file__).resolve().parent.parent
    return next((file for file in (f"{path}.py", f"{path}/__init__.py") if (folder / file).is_file()), None)


def _is_there(point: EntryPoint) -> bool:
    try:
        if point.module.startswith("marin."):
            return file_of(point.module) is not None
        return find_spec(point.module) is not None
    except ModuleNotFoundError:
        return False
    except Exception as error:  # no name of a module; or its package cannot be imported, for whatever reason
        _leave_out(point, error)
        return False


def _leave_out(point: EntryPoint, error: Exception) -> None:
    found = f"{type(error).__name__}: {error}"[:200]
    logger.warning("a plugin is left out: %s of %r cannot be loaded: %s", point.name, point.value, found)
