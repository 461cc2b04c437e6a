"""The files below ``conf/``: groups and their members, and what Hydra makes of a choice of them, in its own code."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from marin.errors import UsageError
from marin.provenance.code import code_folder
from marin.recipe.form.yaml import NotYaml, read_yaml

CONFIG, PRICES = "config", "prices.yaml"
GLOBAL = "_global_"
"""The package of a file that names the sections that it fills."""
OVERRIDE = "override /"
"""How a file of the last group says in its own list of defaults which member of another group it comes with."""
PURE = ("oc.create", "oc.decode", "oc.deprecated", "oc.dict.keys", "oc.dict.values", "oc.select")
"""Of ``${NAME:...}`` those that read nothing but values: not the environment, a clock or the machine."""


@dataclass(frozen=True)
class Pick:
    """Members of a group, by name; none where it is taken out. ``line``: the argument as Hydra is given it; ``package``: where it
    says the values go."""

    group: str
    names: tuple[str, ...]
    line: str
    package: str | None = None


def conf_folder(project: Path | None = None) -> Path:
    """The groups: ``conf/`` of the project (the working folder) if it has a config.yaml, otherwise those beside the
    code, or of an installed wheel."""
    own = (project or Path()) / "conf"
    return own.resolve() if (own / f"{CONFIG}.yaml").is_file() else installed_conf()


def installed_conf() -> Path:
    """The groups that came with the code: of its checkout, or, from a wheel, below the environment's ``share``."""
    beside = code_folder() / "conf"
    return beside if (beside / f"{CONFIG}.yaml").is_file() else Path(sys.prefix) / "share" / "marin" / "conf"


def groups(conf: Path) -> dict[str, list[str]]:
    """The members of every group that the defaults of config.yaml name; other folders beside them are not of a
    recipe.

    Raises:
        UsageError: the groups cannot be read.
    """
    file = conf / f"{CONFIG}.yaml"
    try:
        names = _of_defaults(file.read_bytes())
    except (OSError, NotYaml) as error:
        raise UsageError(
            "groups cannot be read",
            where=str(file),
            expected="a mapping with a list of defaults",
            found=" ".join(str(error).split())[:200],
            cure="correct the file",
        ) from None
    return {name: sorted(file.stem for file in (conf / name).glob("*.yaml")) for name in names}


@lru_cache(maxsize=8)
def _of_defaults(text: bytes) -> list[str]:
    config = read_yaml(text)
    defaults = config.get("defaults", []) if isinstance(config, dict) else []
    return sorted(str(name) for item in defaults or [] if isinstance(item, dict) for name in item)


def own_groups(conf: Path) -> dict[str, list[str]]:
    """The members of every folder below ``conf`` that is not a group of the defaults: groups that ``+GROUP=NAME`` adds."""
    known = groups(conf)
    folders = sorted(path for path in conf.iterdir() if path.is_dir() and path.name not in known)
    return {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}


def as_they_are(conf: Path) -> tuple[tuple[str, bytes], ...]:
    """The files of the groups, with their bytes: a file that changes twice within a tick of the clock has one time of change."""
    found = []
    for path in sorted(conf.resolve().rglob("*.yaml")):
        with suppress(OSError):
            found.append((str(path), path.read_bytes()))
    return tuple(found)


@lru_cache(maxsize=64)  # once for each choice of groups, not for each seed, nor for each trial of a search
def from_groups(conf: Path, _files: tuple[tuple[str, bytes], ...], picked: tuple[Pick, ...]) -> Mapping[str, Any]:
    """The values that members of groups compose to over the defaults, ``${...}`` as it stands.

    Raises:
        UsageError: Hydra refuses the choice or a file; a file has a value that Hydra and DVC do not read alike, or one
            that a later group overrides without a word.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # what Hydra reads files with, and does not catch

    lines = [pick.line for pick in picked]
    try:
        with initialize_config_dir(str(conf.resolve()), version_base=None), pure():
            config = hydra_compose(config_name=CONFIG, overrides=lines)
            loader = GlobalHydra.instance().config_loader()
            read = loader.compute_defaults_list(CONFIG, lines, RunMode.RUN).defaults
        plain = OmegaConf.to_container(config, resolve=False)
    except (HydraException, OmegaConfBaseException, YAMLError, OSError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            "groups cannot be composed",
            where=" ".join(lines)[:200] or str(conf),
            expected=f"what Hydra composes from {conf}",
            found=" ".join(str(error).split())[:300],
            cure="correct the file or the argument that it names",
        ) from None
    assert isinstance(plain, dict)
    for one in read:
        file = conf / f"{one.config_path}.yaml"
        if file.is_file():
            _check_reads_alike(file)
    composed = {str(key): value for key, value in plain.items()}
    gone = {pick.group for pick in picked if not pick.names}
    _check_nothing_is_dropped(
        conf, [(pick.group, name) for pick in picked if pick.group not in gone for name in pick.names], composed
    )
    return composed


def _check_reads_alike(file: Path) -> None:
    """Hydra reads the files of groups as YAML 1.1 with changes, DVC what comes of them as YAML 1.2, and the same line in
    ``params.yaml`` too: ``010`` is 8 here and 10 there.

    Raises:
        UsageError: a value in ``file`` that the two do not read alike.
    """
    from omegaconf import OmegaConf

    try:
        of_dvc, of_hydra = read_yaml(file.read_bytes()), OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except NotYaml as error:
        of_dvc, of_hydra = {"": error.problem}, {"": "YAML"}
    if odd := _apart(of_dvc, of_hydra, ""):
        path, dvc, hydra = odd
        raise UsageError(
            "a value that two readers of YAML do not read alike",
            where=f"conf/{file.parent.name}/{file.name}: {path}".removesuffix(": "),
            expected="one that is the same in YAML 1.1, which Hydra reads, and in 1.2, which DVC reads",
            found=f"{hydra!r} to Hydra, {dvc!r} to DVC",
            cure="write true or false, a number in its plain form, or quote the text",
        )


def _apart(one: Any, other: Any, path: str) -> tuple[str, Any, Any] | None:
    """The first path below which two readers have other values, and these."""
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        items = [(f"{path}.{key}".lstrip("."), one[key], other[key]) for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        items = [(f"{path}[{number}]", *pair) for number, pair in enumerate(zip(one, other, strict=True))]
    else:
        empty = one is None and other == {} and not path
        nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
        return None if empty or nan or (type(one) is type(other) and one == other) else (path, one, other)
    return next((found for name, left, right in items if (found := _apart(left, right, name))), None)


def _check_nothing_is_dropped(conf: Path, picked: Sequence[tuple[str, str]], composed: Mapping[str, Any]) -> None:
    """A file with ``# @package _global_`` may name other sections, and in Hydra the default of a later group wins over
    it without a word. Anyone who picked the file is told.

    Raises:
        UsageError: a value of a picked file is not in what was composed, and no other picked group says something else.
    """
    filled = {pick: _filled(conf, *pick) for pick in picked}
    for pick, values in filled.items():
        others = {path for other, found in filled.items() if other != pick for path in found}
        for path, value in values.items():
            found: Any = composed
            for part in path.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
            if found != value and value != "???" and path not in others and "${" not in str(value):
                raise UsageError(
                    "a later group overrides what this one says",
                    where=f"conf/{'/'.join(pick)}.yaml: {path}",
                    expected=repr(value),
                    found=f"{found!r}, from a group that stands later in the defaults of {CONFIG}.yaml",
                    cure=f"put it into a group of your own (+GROUP=NAME comes last), or write {path}={value}",
                )


def _filled(conf: Path, group: str, name: str) -> dict[str, Any]:
    """Every value of a file that fills other sections than its own, by path; none of an ordinary file, or where its own list of
    defaults says what comes after it."""
    text = _text_of_group(conf, group, name)
    values = read_yaml(text) or {}
    if not isinstance(values, Mapping):
        return {}  # the composition says so
    defaults = values.get("defaults") or ["_self_"]
    if _package(text, group) != GLOBAL or "_self_" in defaults[:-1]:
        return {}
    found: dict[str, Any] = {}
    waiting = [("", values)]
    while waiting:
        prefix, values = waiting.pop()
        for key, value in values.items():
            if isinstance(value, Mapping):
                waiting.append((f"{prefix}{key}.", value))
            elif key != "defaults":
                found[f"{prefix}{key}"] = value
    return found


def sections_of(conf: Path, group: str, name: str) -> list[str]:
    """The sections of a recipe that a member of a group fills: the group's name, what its first line says, or all that
    stand in it."""
    text = _text_of_group(conf, group, name)
    package = _package(text, group)
    if package != GLOBAL:
        return [package.partition(".")[0]]
    values = read_yaml(text) or {}
    if not isinstance(values, dict):
        return []
    chosen = [str(item) for entry in values.pop("defaults", []) if isinstance(entry, dict) for item in entry]
    others = {
        section
        for item in chosen
        if item.startswith(OVERRIDE)
        for section in sections_of(conf, item.removeprefix(OVERRIDE), str(_chosen(text, item)))
    }
    return sorted({*values, *others})


def _text_of_group(conf: Path, group: str, name: str) -> str:
    return (conf / group / f"{name.removesuffix('.yaml')}.yaml").read_text("utf-8")


def _package(text: str, group: str) -> str:
    """Where the values of a file go, as the comments at its head say in Hydra's words; otherwise to its group's section."""
    package = group.replace("/", ".")
    for line in filter(None, map(str.strip, text.splitlines())):
        if not re.match(r"#\s*@", line):
            break
        words = line.lstrip("#").split()
        if words[:1] == ["@package"]:
            package = words[1].replace("_group_", package)
    return package.removeprefix(f"{GLOBAL}.")


def _chosen(text: str, item: str) -> object:
    """The member that a file's own list of defaults picks."""
    return next(entry[item] for entry in read_yaml(text)["defaults"] if isinstance(entry, dict) and item in entry)


@contextmanager
def pure() -> Iterator[None]:
    """Resolve ``${NAME:...}`` only by what reads nothing but values."""
    from omegaconf.basecontainer import BaseContainer

    known = BaseContainer._resolvers
    BaseContainer._resolvers = {name: known[name] for name in PURE if name in known}
    try:
        yield
    finally:
        BaseContainer._resolvers = known
