"""Recipes by Hydra's grammar: groups and values from a command line, composed from ``conf/`` into a checked recipe.

    model=gpt2-small  +dataset=babylm_10M       a member of a group: a file below conf/
    optimizer.learning_rate=1e-3  seed=1        one value, by its path
    ~evaluation.minimal_pairs                   back to the recipe's own default
    seed=1,2,3  seed=range(1,4)                 several: a sweep, every combination of which is a recipe of its own

What wins: the defaults of conf/config.yaml, then the groups named, then --config-json, then single values on the
command line. Hydra parses and composes; the recipe's own types check, and a mistake is named with the place that made
it, its path and the nearest valid name. ``+`` before a group that has a default is taken as no ``+``: whoever knows
BabyLM's or Marin's commands types it. A folder of one's own below conf/ is a group without a default, and takes its
``+`` as in Hydra: ``+regime=five`` adds conf/regime/five.yaml after all others.
"""

from __future__ import annotations

import copy
import difflib
import fnmatch
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from marin.errors import UsageError
from marin.provenance.code import code_folder
from marin.recipe.nearest import nearest
from marin.recipe.schema import DATASETS, Recipe, from_mapping

CONFIG, PRICES = "config", "prices.yaml"
PACKAGE = "# @package "
"""How a file says in Hydra's words which section it fills."""
SPELT = {"eval_steps": "evaluation.every", "training.eval_steps": "evaluation.every", "training.seed": "seed"}
"""Keys as stanford-babylm's commands have them."""
OVERRIDE = "override /"
"""How a file of the last group says in its own list of defaults which member of another group it comes with."""
COMMAND_LINE, CONFIG_JSON = "command line", "--config-json"
MOST = 10_000
"""Values of one key in a sweep."""


Groups = Callable[[tuple[tuple[str, str], ...]], Mapping[str, Any]]
"""The values that a choice of groups (pairs of group and member, in the order of the command line) composes to."""


@dataclass(frozen=True)
class Composed:
    """One recipe of a command line, and the choices that made it: ``overrides`` are what distinguishes it in a
    sweep."""

    recipe: Recipe
    overrides: tuple[str, ...]


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
    """The members of every group that the defaults of config.yaml name; other folders beside them are none of a
    recipe.

    Raises:
        UsageError: the groups cannot be read.
    """
    import yaml

    file = conf / f"{CONFIG}.yaml"
    try:
        names = _of_defaults(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(
            "groups cannot be read",
            where=str(file),
            expected="a mapping with a list of defaults",
            found=" ".join(str(error).split())[:200],
            cure="correct the file",
        ) from None
    return {name: sorted(file.stem for file in (conf / name).glob("*.yaml")) for name in names}


@lru_cache(maxsize=8)
def _of_defaults(text: str) -> list[str]:
    import yaml

    config = yaml.safe_load(text)
    defaults = config.get("defaults", []) if isinstance(config, dict) else []
    return sorted(name for item in defaults if isinstance(item, dict) for name in item)


def own_groups(conf: Path) -> dict[str, list[str]]:
    """The members of every folder below ``conf`` that is no group of the defaults: groups that ``+GROUP=NAME`` adds."""
    known = groups(conf)
    folders = sorted(path for path in conf.iterdir() if path.is_dir() and path.name not in known)
    return {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}


def compose(
    arguments: Sequence[str],
    *,
    config_json: str | None = None,
    conf: Path | None = None,
    base: Mapping[str, Any] | None = None,
) -> Composed:
    """The one recipe that ``arguments`` name; ``base`` (values of a whole recipe) takes the place of the defaults.

    Raises:
        UsageError: they cannot be parsed, name a group, a member or a key that is not there, give a value of the wrong
            type or out of range, or more than one value (that is a sweep).
    """
    (found,) = sweep(arguments, config_json=config_json, conf=conf, base=base, several=False)
    return found


def sweep(
    arguments: Sequence[str],
    *,
    config_json: str | None = None,
    conf: Path | None = None,
    base: Mapping[str, Any] | None = None,
    several: bool = True,
) -> Iterator[Composed]:
    """Every recipe of a sweep, all of them checked before the first is returned; later values vary fastest.

    Raises:
        UsageError: a choice without values, or several values for one key.
    """
    folder = conf or conf_folder()
    choices = _parsed(arguments, groups(folder), own_groups(folder))
    given = _config_json(config_json)
    if empty := [choice.key for choice in choices if not choice.values]:
        raise UsageError(
            "nothing to choose from",
            where=f"{COMMAND_LINE}: {empty[0]}",
            expected="at least one value",
            found="none",
            cure="widen the range or the pattern",
        )
    swept = [choice for choice in choices if len(choice.values) > 1]
    if swept and not several:
        raise UsageError(
            "several values for one key",
            where=f"{COMMAND_LINE}: {swept[0].key}",
            expected="one value",
            found=f"{len(swept[0].values)} values",
            cure="add -m for a sweep over them",
        )
    compose_groups = partial(_from_groups, folder, _as_they_are(folder))
    return iter(
        [
            _picked(folder, compose_groups, base, choices, values, given)
            for values in itertools.product(*(choice.values for choice in choices))
        ]
    )


def _picked(
    conf: Path,
    compose_groups: Groups,
    base: Mapping[str, Any] | None,
    choices: Sequence[_Choice],
    values: Sequence[_Value],
    given: Mapping[str, Any],
) -> Composed:
    """One combination of a sweep."""
    pairs = list(zip(choices, values, strict=True))
    named = tuple(f"{choice.key}={value.text}" for choice, value in pairs if len(choice.values) > 1)
    return _composed(conf, compose_groups, base, [choice.pick(value) for choice, value in pairs], given, named)


@dataclass(frozen=True)
class _Value:
    value: Any
    text: str


@dataclass(frozen=True)
class _Choice:
    """One argument: a group or a key, and the values it takes."""

    key: str
    group: bool
    delete: bool
    values: tuple[_Value, ...]

    def pick(self, value: _Value) -> _Choice:
        return _Choice(self.key, self.group, self.delete, (value,))


def _parsed(arguments: Sequence[str], known: Mapping[str, list[str]], own: Mapping[str, list[str]]) -> list[_Choice]:
    return [_choice(argument, override_of(argument), known, own) for argument in arguments]


def override_of(argument: str) -> Any:
    """One argument as Hydra's grammar reads it.

    Raises:
        UsageError: it cannot be read.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser  # half a second; only here
    from hydra.errors import HydraException

    try:
        (override,) = OverridesParser.create().parse_overrides([argument])
    except (HydraException, ValueError) as error:  # ValueError: a number of more digits than Python reads
        problem = " ".join(str(error).split("\nSee ")[0].split()).removeprefix(f"Error parsing override '{argument}' ")
        raise UsageError(
            "argument cannot be read",
            where=f"{COMMAND_LINE}: {argument[:100]}",
            expected="GROUP=NAME or KEY=VALUE",
            found=problem[:200],
            cure="quote what the shell would take apart: 'dataset.globs=[texts/*.txt]'",
        ) from None
    return override


def _choice(argument: str, override: Any, known: Mapping[str, list[str]], own: Mapping[str, list[str]]) -> _Choice:
    key = override.key_or_group.replace("/", ".")
    key = SPELT.get(key, key)
    if key in known:
        return _group_choice(argument, override, key, known[key])
    if key in own and override.is_add():
        return _group_choice(argument, override, key, own[key])
    if override.is_delete():
        return _Choice(key, False, True, (_Value(None, ""),))
    if override.is_sweep_override():
        texts = _enumerated(argument, override)
        values = tuple(_Value(override_of(f"{key}={text}").value(), text) for text in texts)
        return _Choice(key, False, False, values)
    return _Choice(key, False, False, (_Value(override.value(), override.get_value_element_as_str()),))


def _enumerated(argument: str, override: Any) -> list[str]:
    """The values of a word that has several.

    Raises:
        UsageError: they cannot be counted: an interval, which only a search draws from, a pattern where there is no
            group, a range without an end.
    """
    from hydra.core.override_parser.types import Glob
    from hydra.errors import HydraException

    where = f"{COMMAND_LINE}: {argument[:100]}"
    expected = "values that can be counted: KEY=1,2,3 or KEY=range(1,4)"
    if override.is_interval_sweep():
        raise UsageError(
            "nothing here draws from an interval",
            where=where,
            expected=expected,
            found="an interval",
            cure="marin train -m hydra/sweeper=optuna searches it",
        )
    if isinstance(override.value(), Glob):
        raise UsageError(
            "a pattern for what is no group",
            where=where,
            expected=expected,
            found="glob(...), which chooses members of a group, as in model=glob(gpt2*)",
            cure="write the values",
        )
    try:
        found = list(itertools.islice(override.sweep_string_iterator(), MOST + 1))
    except (HydraException, ValueError, ArithmeticError) as error:
        raise UsageError(
            "values cannot be counted",
            where=where,
            expected=expected,
            found=" ".join(str(error).split())[:200],
            cure="correct start, stop and step",
        ) from None
    if len(found) > MOST:
        raise UsageError(
            "too many values",
            where=where,
            expected=f"{MOST} or fewer",
            found=f"more than {MOST}",
            cure="sweep in parts",
        )
    return found


def _group_choice(argument: str, override: Any, group: str, members: list[str]) -> _Choice:
    where = f"{COMMAND_LINE}: {group}"
    if override.is_delete():
        raise UsageError(
            "a recipe needs this group",
            where=where,
            expected=", ".join(members),
            found=f"~{group}",
            cure=f"choose another member with {group}=NAME",
        )
    if override.is_sweep_override():
        from hydra.core.override_parser.types import Glob

        swept = override.value()
        if isinstance(swept, Glob):
            names = [
                name
                for name in members
                if any(fnmatch.fnmatch(name, pattern) for pattern in swept.include)
                and not any(fnmatch.fnmatch(name, pattern) for pattern in swept.exclude)
            ]
        else:
            names = [text.strip("'\"") for text in _enumerated(argument, override)]
    else:
        names = [str(override.value())]
    for name in names:
        _member(group, name, members, where)
    return _Choice(group, True, False, tuple(_Value(name, name) for name in names))


def _member(group: str, name: str, members: list[str], where: str) -> None:
    if name in members:
        return
    near = difflib.get_close_matches(name, members, n=1, cutoff=0.4)
    raise UsageError(
        f"unknown {group}",
        where=where,
        expected=", ".join(members),
        found=name,
        cure=f"did you mean {near[0]}?" if near else f"add conf/{group}/{name}.yaml",
    )


def _config_json(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    path = Path(text)
    try:
        source = path.read_text("utf-8") if not text.lstrip().startswith("{") else text
        value = json.loads(source)
    except FileNotFoundError:
        raise UsageError(
            "no such file",
            where=f"{CONFIG_JSON} {text}",
            expected="a JSON object or the path of one",
            found="nothing there",
            cure="write it on the command line: --config-json '{\"seed\": 1}'",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            "values cannot be read",
            where=f"{CONFIG_JSON} {text[:60]}",
            expected="a JSON object",
            found=str(error),
            cure="check it with a JSON tool",
        ) from None
    if not isinstance(value, dict):
        raise UsageError(
            "values are not an object",
            where=CONFIG_JSON,
            expected='such as {"seed": 1}',
            found=type(value).__name__,
            cure="put them into an object by section",
        )
    return value


def _composed(
    conf: Path,
    compose_groups: Groups,
    base: Mapping[str, Any] | None,
    choices: Sequence[_Choice],
    given: Mapping[str, Any],
    overrides: tuple[str, ...],
) -> Composed:
    members = groups(conf) | own_groups(conf)
    picked: dict[str, str] = {}
    for group, value in given.items():
        if group in members and isinstance(value, str):
            _member(group, value, members[group], f"{CONFIG_JSON}: {group}")
            picked[group] = value
    picked |= {choice.key: choice.values[0].value for choice in choices if choice.group}
    composed = copy.deepcopy(dict(compose_groups(tuple(picked.items())))) if picked or base is None else {}
    if base is None:
        values = composed
    else:  # the sections that the picked groups fill
        values = copy.deepcopy(dict(base))
        values |= {section: composed[section] for pick in picked.items() for section in sections_of(conf, *pick)}
    sources: dict[str, str] = {}
    for key, value in given.items():
        if not (key in members and isinstance(value, str)):
            _set(values, key, value, CONFIG_JSON, sources, merge=True)
    for choice in choices:
        if choice.delete:
            _delete(values, choice.key)
        elif not choice.group:
            _set(values, choice.key, choice.values[0].value, COMMAND_LINE, sources)
    return Composed(_checked(values, sources), overrides)


def _as_they_are(conf: Path) -> tuple[tuple[str, bytes], ...]:
    """The files of the groups, with their bytes: a file that changes twice within a tick of the clock has one time of change."""
    found = []
    for path in sorted(conf.resolve().rglob("*.yaml")):
        with suppress(OSError):
            found.append((str(path), path.read_bytes()))
    return tuple(found)


@lru_cache(maxsize=64)  # once for each choice of groups, not for each seed, nor for each trial of a search
def _from_groups(
    conf: Path, _files: tuple[tuple[str, bytes], ...], picked: tuple[tuple[str, str], ...]
) -> Mapping[str, Any]:
    known = groups(conf)
    overrides = [f"{'' if group in known else '+'}{group}={name}" for group, name in picked]
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(conf.resolve()), version_base=None):
            config = hydra_compose(config_name=CONFIG, overrides=overrides)
        plain = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException, OSError, ValueError) as error:
        raise UsageError(
            "groups cannot be composed",
            where=str(conf),
            found=" ".join(str(error).split())[:300],
            cure="correct the file it names",
        ) from None
    assert isinstance(plain, dict)
    composed = {str(key): value for key, value in plain.items()}
    _check_nothing_is_dropped(conf, picked, composed)
    return composed


def _check_nothing_is_dropped(conf: Path, picked: tuple[tuple[str, str], ...], composed: Mapping[str, Any]) -> None:
    """A file with ``# @package _global_`` may name other sections, and in Hydra the default of a later group wins over
    it without a word. Whoever picked the file is told.

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
            if found != value and path not in others and "${" not in str(value):
                raise UsageError(
                    "a later group overrides what this one says",
                    where=f"conf/{'/'.join(pick)}.yaml: {path}",
                    expected=repr(value),
                    found=f"{found!r}, from a group that stands later in the defaults of {CONFIG}.yaml",
                    cure=f"put it into a group of your own (+GROUP=NAME comes last), or write {path}={value}",
                )


def _filled(conf: Path, group: str, name: str) -> dict[str, Any]:
    """Every value of a file that fills other sections than its own, by path; none of an ordinary file."""
    import yaml

    text = (conf / group / f"{name}.yaml").read_text("utf-8")
    if not text.startswith(f"{PACKAGE}_global_"):
        return {}
    found: dict[str, Any] = {}
    waiting = [("", yaml.safe_load(text) or {})]
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
    import yaml

    text = (conf / group / f"{name}.yaml").read_text("utf-8")
    first = text.partition("\n")[0]
    package = first.removeprefix(PACKAGE).strip() if first.startswith(PACKAGE) else group
    if package != "_global_":
        return [package]
    values = yaml.safe_load(text)
    chosen = [str(item) for entry in values.pop("defaults", []) if isinstance(entry, dict) for item in entry]
    others = {
        section
        for item in chosen
        if item.startswith(OVERRIDE)
        for section in sections_of(conf, item.removeprefix(OVERRIDE), str(_chosen(text, item)))
    }
    return sorted({*values, *others})


def _chosen(text: str, item: str) -> object:
    """The member that a file's own list of defaults picks."""
    import yaml

    return next(entry[item] for entry in yaml.safe_load(text)["defaults"] if isinstance(entry, dict) and item in entry)


def _set(
    values: dict[str, Any], path: str, value: Any, source: str, sources: dict[str, str], *, merge: bool = False
) -> None:
    """Put ``value`` at ``path``; with ``merge`` a mapping changes only the keys that it has."""
    *parents, name = path.split(".")
    node: Any = values
    for depth, parent in enumerate(parents):
        if node.get(parent) is None:
            node[parent] = {}
        node = node[parent]
        if not isinstance(node, dict):
            raise UsageError(
                "not a section",
                where=f"{source}: {path}",
                expected=f"{'.'.join(parents[: depth + 1])}=VALUE",
                found=f"{'.'.join(parents[: depth + 1])} is {node!r}",
                cure="leave out what follows it",
            )
    if merge and isinstance(value, dict) and isinstance(node.get(name), dict) and "kind" not in value:
        for key, item in value.items():
            _set(values, f"{path}.{key}", item, source, sources, merge=True)
        return
    node[name] = value
    sources[path] = source


def _delete(values: dict[str, Any], path: str) -> None:
    *parents, name = path.split(".")
    node: Any = values
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not isinstance(node, dict) or name not in node:
        near = nearest(name, node if isinstance(node, dict) else [])
        raise UsageError(
            "unknown key",
            where=f"{COMMAND_LINE}: ~{path}",
            expected="a key of the recipe",
            found=name,
            cure=f"did you mean {near}?" if near else "see params.yaml",
        )
    del node[name]


def _checked(values: Mapping[str, Any], sources: Mapping[str, str]) -> Recipe:
    """The typed recipe; a mistake is said of the place that wrote the value."""
    try:
        recipe = from_mapping(values, where=CONFIG)
    except UsageError as error:
        path = error.where.removeprefix(f"{CONFIG}: ")
        near = [
            known for known in sources if path == known or path.startswith(f"{known}.") or known.startswith(f"{path}.")
        ]
        source = sources[max(near, key=len)] if near else "conf/"
        cure = error.cure
        if error.what == "unknown key":
            cure = cure if "." in path and cure.startswith("did you mean") else _meant(path, values) or cure
        raise UsageError(
            error.what, where=f"{source}: {path}", expected=error.expected, found=error.found, cure=cure
        ) from None
    return recipe


def _meant(path: str, values: Mapping[str, Any]) -> str | None:
    """The key that was meant by one that is none: of its own section (``optimizer.lr``), or of another, by a name that is nearly
    its own (``learning_rate``, ``optimizer.batch_size``); None where none is near."""
    section, _, name = path.rpartition(".")
    keys = {field.name: _keys(field, values) for field in msgspec.structs.fields(Recipe)}
    if near := nearest(name, keys.get(section, ())):
        return f"did you mean {near}?"
    others = ((other, nearest(name, names, cutoff=0.8)) for other, names in keys.items())
    return next((f"did you mean {other}.{near}?" for other, near in others if near), None)


def _keys(field: msgspec.structs.FieldInfo, values: Mapping[str, Any]) -> list[str]:
    """The keys of a section of the recipe; none where ``field`` is a value."""
    found, section = values.get(field.name), field.type
    if field.name == "dataset":
        section = DATASETS.get(str(found.get("kind"))) if isinstance(found, Mapping) else None
    if not (isinstance(section, type) and issubclass(section, msgspec.Struct)):
        return []
    return [item.encode_name for item in msgspec.structs.fields(section)]
