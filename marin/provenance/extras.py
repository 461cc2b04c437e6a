"""Which part of this project needs a package that is not installed: its own extras, read from what is installed.

`pip install marin-repro` installs the ledger, the store and what judges them; training, pages and exports are extras
(pyproject.toml).
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires

from marin.errors import NotInstalled

DISTRIBUTION = "marin-repro"
_LINE = re.compile(r"^([A-Za-z0-9._-]+).*extra == [\"']([a-z]+)[\"']$")


def not_installed(error: ModuleNotFoundError) -> NotInstalled | None:
    """What to say of an import that failed; None where the module belongs to no extra: then it is a defect."""
    module = (error.name or "").partition(".")[0]
    extra = extra_of(module)
    if extra is None:
        return None
    return NotInstalled(
        "a package is not installed",
        where=module,
        expected=f"the extra {extra} of {DISTRIBUTION}",
        found="an installation without it",
        cure=f"pip install '{DISTRIBUTION}[{extra}]', or `make environment` in a checkout",
    )


def extra_of(module: str) -> str | None:
    """The extra that brings ``module``, by the name of its distribution or a word of it; None where none does."""
    wanted = module.lower().replace("_", "-")
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return None
    named = [found.groups() for line in lines if (found := _LINE.match(line)) and found[2] != "all"]
    exact = [extra for name, extra in named if name.lower().replace("_", "-") == wanted]
    partly = [extra for name, extra in named if wanted in name.lower().replace("_", "-").split("-")]
    return next(iter([*exact, *partly]), None)
