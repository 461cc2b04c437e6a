"""Which part of this project needs a package that is not installed: its own extras, read from what is installed.

`pip install .` in the project's folder installs the ledger, the store and what judges them; training, pages and exports
are extras (pyproject.toml). The project is on no package index, so no advice names one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.util import find_spec

from marin.errors import NotInstalled
from marin.provenance.plugins import DISTRIBUTION

PLUGINS = "marin.plugins."
DRAWING = ("mpld3", "matplotlib", "tokenizers", "jax", "scipy")
"""What the data browser and the site are drawn with."""
WITH = dict.fromkeys(("fastapi", "sqlalchemy", "starlette", "uvicorn"), "mlflow") | {
    "huggingface_hub": "transformers",
    "jmp": "marin-levanter",
    "omegaconf": "hydra-core",
    "PIL": "matplotlib",
}
"""Modules that our own files import and no extra names, and what they are installed with."""
_LINE = re.compile(r"^([A-Za-z0-9._-]+).*extra == [\"']([a-z]+)[\"']$")


def absent(*modules: str) -> list[str]:
    """Those of these modules that are not installed. None is imported."""
    return [name for name in modules if find_spec(name) is None]


def need(*modules: str) -> None:
    """Begin nothing that these modules are needed for where one of them is not installed.

    Raises:
        NotInstalled: names all that are absent, and what brings them.
    """
    if missing := absent(*modules):
        raise _not_installed(missing, dict.fromkeys(extra for name in missing if (extra := extra_of(name))))


def advice(extras: Iterable[str]) -> str:
    """How these extras are installed: from where this was, if that was a wheel that somebody published."""
    wanted = ",".join(extras)
    if (wheel := _published_wheel()) is not None:
        return f"pip install '{DISTRIBUTION}[{wanted}] @ {wheel}'"
    return f"in the project's folder: pip install '.[{wanted}]', or make environment"


def _published_wheel() -> str | None:
    """The address of the wheel that is installed, with its digest (PEP 610); None where it came from a folder."""
    with suppress(PackageNotFoundError, ValueError, KeyError):
        told = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        if told["url"].startswith("https://"):
            return f"{told['url']}#{told['archive_info']['hash']}"
    return None


def not_installed(error: ImportError) -> NotInstalled | None:
    """What to say of an import that failed; None where the module belongs to no extra and to no plugin: then it is a defect.
    Where another distribution stands in for one of an extra (mlflow-skinny for mlflow), what its modules lack is not a defect."""
    if (error.name or "").startswith(PLUGINS):
        plugin = (error.name or "").removeprefix(PLUGINS).partition(".")[0]
        return NotInstalled(
            "a plugin is not installed",
            where=f"{PLUGINS}{plugin}",
            expected=f"the plugin {plugin} of Marin",
            found="an installation without it",
            cure="install the distribution that has it; docs/plugins.md lists those of Marin",
        )
    module = (error.name or "").partition(".")[0]
    extra = extra_of(module)
    if extra is not None and isinstance(error, ModuleNotFoundError):
        return _not_installed([module], [extra])
    for name in _importing(error):
        if name in {required for required, _ in _required()} and not _is_installed(name):
            found = f"another distribution with the module {name}: {error}"
            return _not_installed([name], [extra for required, extra in _required() if required == name], found)
    return None


def _importing(error: ImportError) -> list[str]:
    """The packages whose files were being imported, the innermost first."""
    names, trace = [], error.__traceback__
    while trace is not None:
        names.append(str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0])
        trace = trace.tb_next
    return list(dict.fromkeys(names[::-1]))


def _is_installed(name: str) -> bool:
    """Whether the distribution of this very name is installed, and not only one that has its module too."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _not_installed(modules: Sequence[str], extras: Collection[str], found: str = "") -> NotInstalled:
    return NotInstalled(
        "a package is not installed" if len(modules) == 1 else "packages are not installed",
        where=", ".join(modules),
        expected=f"the extra {' and '.join(extras)}" if extras else "what none of this project's extras brings",
        found=found or "an installation without it",
        cure=advice(extras) if extras else f"install {' and '.join(modules)} beside it",
    )


def extra_of(module: str) -> str | None:
    """The extra that brings ``module``, by the name of its distribution or a word of it; None where none does."""
    wanted, named = WITH.get(module, module).lower().replace("_", "-"), _required()
    exact = [extra for name, extra in named if name == wanted]
    partly = [extra for name, extra in named if wanted in name.split("-")]
    return next(iter([*exact, *partly]), None)


def _required() -> list[tuple[str, str]]:
    """Each distribution that an extra of this project names, with the extra."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    named = (found for line in lines if (found := _LINE.match(line)) and found[2] != "all")
    return [(found[1].lower().replace("_", "-"), found[2]) for found in named]
