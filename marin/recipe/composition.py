"""Recipes by Hydra's grammar: groups and values from a command line, composed from ``conf/`` into a checked recipe.

    model=gpt2-small  +dataset=babylm_10M       a member of a group: a file below conf/
    optimizer.learning_rate=1e-3  seed=1        one value, by its path
    ~evaluation.minimal_pairs                   back to the recipe's own default
    seed=1,2,3  seed=range(1,4)                 several: a sweep, every combination of which is a recipe of its own

What wins: the defaults of conf/config.yaml, then the groups named, then --config-json, then single values on the
command line. Hydra parses, composes, sets and resolves, in its own code; the recipe's own types check, and a mistake is
named with the place that made it, its path and the nearest valid name.

Two things are taken that Hydra refuses: ``+`` before a group that has a default, as no ``+`` (anyone who knows BabyLM's or
Marin's commands types it), and a key of the recipe that no file of conf/ has, without its ``+``. A folder of one's own
below conf/ is a group without a default, and takes its ``+`` as in Hydra: ``+regime=five`` adds conf/regime/five.yaml
after all others. ``${...}`` is resolved here, but for what would read the environment or a clock.
"""

from __future__ import annotations

import copy
import difflib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from marin.errors import UsageError
from marin.recipe.form.data_rules import with_data_rules
from marin.recipe.form.files import CONFIG, PURE, Pick, as_they_are, from_groups, own_groups, pure, sections_of
from marin.recipe.form.files import PRICES as PRICES
from marin.recipe.form.files import conf_folder as conf_folder
from marin.recipe.form.files import groups as groups
from marin.recipe.form.files import installed_conf as installed_conf
from marin.recipe.form.nearest import nearest
from marin.recipe.form.optimizer import check_name, foreign
from marin.recipe.schema import DATASETS, Recipe, from_mapping

SPELT = {"eval_steps": "evaluation.every", "training.eval_steps": "evaluation.every", "training.seed": "seed"}
"""Keys as stanford-babylm's commands have them."""
COMMAND_LINE, CONFIG_JSON = "command line", "--config-json"
MOST = 10_000
"""Values of one key in a sweep."""


Groups = Callable[[tuple[Pick, ...]], Mapping[str, Any]]
"""The values that a choice of groups (in the order of the command line) composes to, ``${...}`` as it stands."""


@dataclass(frozen=True)
class Composed:
    """One recipe of a command line, and the choices that made it: ``overrides`` are what distinguishes it in a
    sweep."""

    recipe: Recipe
    overrides: tuple[str, ...]


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
    groups(folder)  # a file of groups that cannot be read is said before an argument is
    words = [_word(argument, folder) for argument in arguments]
    given = _config_json(config_json)
    if empty := [word.key for word in words if not word.values]:
        raise UsageError(
            "nothing to choose from",
            where=f"{COMMAND_LINE}: {empty[0]}",
            expected="at least one value",
            found="none",
            cure="widen the range or the pattern",
        )
    swept = [word for word in words if word.several]
    if swept and not several:
        raise UsageError(
            "several values for one key",
            where=f"{COMMAND_LINE}: {swept[0].key}",
            expected="one value",
            found=f"{len(swept[0].values)} values" if len(swept[0].values) > 1 else "a sweep over one value",
            cure="add -m for a sweep over them",
        )
    compose_groups = partial(from_groups, folder, as_they_are(folder))
    return iter(
        [
            _composed(folder, compose_groups, base, list(zip(words, values, strict=True)), given)
            for values in itertools.product(*(word.values for word in words))
        ]
    )


@dataclass(frozen=True)
class _Value:
    """One value of an argument: as people write it, and as Hydra's override, or the members of a group that it picks."""

    text: str
    override: Any
    pick: Pick | None = None


@dataclass(frozen=True)
class _Word:
    """One argument: a group or a key, and the values it takes. ``several``: it is written as a sweep."""

    argument: str
    key: str
    several: bool
    values: tuple[_Value, ...]


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


def _word(argument: str, conf: Path) -> _Word:
    override = override_of(argument)
    key = override.key_or_group
    if key in SPELT:
        argument = argument.replace(key, SPELT[key], 1)
        override, key = override_of(argument), SPELT[key]
    if key.replace("/", ".").partition(".")[0] == "hydra":
        raise UsageError(
            "a setting of Hydra's own",
            where=f"{COMMAND_LINE}: {argument[:100]}",
            expected="a group or a key of the recipe: folders and logs of a run are not Hydra's",
            found=key,
            cure="leave it out; marin train -m hydra/sweeper=optuna searches",
        )
    group = key if key and (conf / key).is_dir() else None
    if group in groups(conf) and override.is_add() and override.package is None:
        argument = argument.removeprefix("+")
        override = override_of(argument)
    if not override.is_sweep_override():
        return _Word(argument, key, False, (_value(argument, override, group, conf),))
    prefix = override.get_key_element()
    lines = [(text, f"{prefix}={text}") for text in _enumerated(argument, override, group, conf)]
    return _Word(argument, key, True, tuple(_value(line, override_of(line), group, conf, text) for text, line in lines))


def _value(line: str, override: Any, group: str | None, conf: Path, text: str = "") -> _Value:
    if group is None or isinstance(override.value(), dict):  # as Hydra decides: a mapping is never the name of a member
        return _Value(text, override)
    members = _members(conf, group)
    if override.is_delete() and group not in groups(conf):
        return _Value(text, override, Pick(group, (), line, override.package))
    if override.is_delete():
        raise UsageError(
            "a recipe needs this group",
            where=f"{COMMAND_LINE}: {group}",
            expected=", ".join(members),
            found=f"~{group}",
            cure=f"choose another member with {group}=NAME",
        )
    value = override.value()
    names = tuple(str(name) for name in (value if isinstance(value, list) else [value]))
    for name in names:  # a number too, which Hydra takes for no name: nan is near to nano
        _member(conf, group, name, members, f"{COMMAND_LINE}: {group}")
    return _Value(text.strip("'\""), override, Pick(group, names, line, override.package))


def _members(conf: Path, group: str) -> list[str]:
    return sorted(file.stem for file in (conf / group).glob("*.yaml"))


def _enumerated(argument: str, override: Any, group: str | None, conf: Path) -> list[str]:
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
    if isinstance(override.value(), Glob) and group is not None:
        return list(override.value().filter(_members(conf, group)))
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


def _member(conf: Path, group: str, name: str, members: Sequence[str], where: str) -> None:
    """Raises UsageError where Hydra would read no file of this group, or one elsewhere."""
    file = conf / group / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if name in members or (file.is_file() and ".." not in file.parts[len(conf.parts) :] and not name.startswith("/")):
        return
    if group == "optimizer":
        check_name(name, where)
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
        value = json.loads(source, object_pairs_hook=_each_once)
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


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _composed(
    conf: Path,
    compose_groups: Groups,
    base: Mapping[str, Any] | None,
    words: Sequence[tuple[_Word, _Value]],
    given: Mapping[str, Any],
) -> Composed:
    """One combination of a sweep."""
    members = groups(conf) | own_groups(conf)
    said = [value.pick for _, value in words if value.pick is not None]
    picked = []
    for group, value in given.items():
        if group in members and isinstance(value, str):
            _member(conf, group, value, members[group], f"{CONFIG_JSON}: {group}")
            if group not in {pick.group for pick in said}:
                plus = "" if group in groups(conf) else "+"
                picked.append(Pick(group, (value,), f"{plus}{group}={value}"))
    picked += said
    composed = copy.deepcopy(dict(compose_groups(tuple(picked)))) if picked or base is None else {}
    if base is None:
        values = composed
    else:  # the sections that the picked groups fill
        values = {key: _literal(value) for key, value in base.items()}
        try:
            plain = compose_groups(()) if picked else {}
        except UsageError:  # a default that has to be chosen, and was: there is no composition without it
            plain = composed
        filled = {section for pick in picked for section in _filled_by(conf, pick)}
        filled |= {section for section in composed if section not in plain or composed[section] != plain[section]}
        values |= {section: composed[section] for section in sorted(filled)}
    sources: dict[str, str] = {}
    for key, value in given.items():
        if not (key in members and isinstance(value, str)):
            _set(values, key, _literal(value), CONFIG_JSON, sources, merge=True)
    found = _overridden(values, [(word, value) for word, value in words if value.pick is None], sources)
    same = base is not None and json.dumps(base.get("dataset")) == json.dumps(found.get("dataset"))
    if not same:  # the text of a run that is continued stays what it was
        found = with_data_rules(found)
    named = tuple(f"{word.key}={value.text}" for word, value in words if len(word.values) > 1)
    return Composed(_checked(found, sources), named)


def _literal(value: Any) -> Any:
    """``value`` of a JSON or of a record, whose ``${`` says nothing to anybody, as OmegaConf reads it back."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda found: rf"{found[1] * 2}\${{", value)
    if isinstance(value, Mapping):
        return {key: _literal(item) for key, item in value.items()}
    return [_literal(item) for item in value] if isinstance(value, list | tuple) else value


def _overridden(
    values: Mapping[str, Any], words: Sequence[tuple[_Word, _Value]], sources: dict[str, str]
) -> dict[str, Any]:
    """``values`` as Hydra changes them by ``words``, resolved.

    Raises:
        UsageError: Hydra refuses a word, or something cannot be resolved; or it would read more than values.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.types import OverrideType
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    config = OmegaConf.create(dict(values))
    OmegaConf.set_struct(config, True)
    for word, value in words:
        override = value.override
        if override.is_delete():
            _check_deleted(config, override)
        else:
            _check_section(config, word.key)
            sources[word.key] = COMMAND_LINE
        if override.type is OverrideType.CHANGE:  # the recipe knows its keys, with and without a +
            override = with_fields(override, type=OverrideType.FORCE_ADD)
        try:
            ConfigLoaderImpl._apply_overrides_to_config([override], config)
        except (HydraException, OmegaConfBaseException, ValueError, TypeError, LookupError) as error:
            problem = " ".join(str(error.__cause__ or error).split()) or type(error).__name__
            raise UsageError(
                "Hydra does not take this",
                where=f"{COMMAND_LINE}: {word.argument[:100]}",
                expected="KEY=VALUE, +KEY=VALUE of a new key, ++KEY=VALUE of any, or ~KEY",
                found=problem[:200],
                cure="write it so, or leave it out",
            ) from None
    try:
        with pure():
            plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, RecursionError, ValueError, TypeError) as error:
        key = getattr(error, "full_key", None) or ""
        raise UsageError(
            "a value that cannot be resolved",
            where=f"{sources.get(key, 'conf/')}: {key}" if key else "${...}",
            expected=f"${{KEY}} of another value, or one of {', '.join(PURE)}: the environment and clocks are not read",
            found=" ".join(str(error).split())[:200] or "one that never ends",
            cure="write the value; \\${ is the text itself",
        ) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _filled_by(conf: Path, pick: Pick) -> list[str]:
    if pick.package is not None:
        raise UsageError(
            "a package where a run is gone on from",
            where=f"{COMMAND_LINE}: {pick.line}",
            expected=f"{pick.group}=NAME",
            found=f"@{pick.package}",
            cure="write its values as KEY=VALUE",
        )
    return sorted({section for name in pick.names for section in sections_of(conf, pick.group, name)})


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


def _check_section(config: Any, path: str) -> None:
    """Raises UsageError where a value stands in the place of a section of ``path``: Hydra puts a section over it."""
    from omegaconf import Container, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    parents = path.split(".")[:-1]
    for depth in range(1, len(parents) + 1):
        section = ".".join(parents[:depth])
        try:
            value = OmegaConf.select(config, section)
        except OmegaConfBaseException:
            return  # said where it is resolved
        if value is not None and not isinstance(value, Container):
            raise UsageError(
                "not a section",
                where=f"{COMMAND_LINE}: {path}",
                expected=f"{section}=VALUE",
                found=f"{section} is {value!r}",
                cure="leave out what follows it",
            )


def _check_deleted(config: Any, override: Any) -> None:
    """Raises UsageError where there is nothing that ``~KEY`` could mean; Hydra says the rest."""
    from omegaconf import DictConfig, OmegaConf

    path = override.key_or_group
    section, _, name = path.rpartition(".")
    node = OmegaConf.select(config, section) if section else config
    if not isinstance(node, DictConfig) or name not in node:
        near = nearest(name, map(str, node) if isinstance(node, DictConfig) else [])
        raise UsageError(
            "unknown key",
            where=f"{COMMAND_LINE}: ~{path}",
            expected="a key of the recipe",
            found=name,
            cure=f"did you mean {near}?" if near else "see params.yaml",
        )


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
    """The key that was meant by an unknown one: of its own section (``optimizer.lr``), or of another, by a name that is nearly
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
    chosen = found.get("name") if field.name == "optimizer" and isinstance(found, Mapping) else None
    others = foreign(chosen) if field.name == "optimizer" else frozenset[str]()
    return [item.encode_name for item in msgspec.structs.fields(section) if item.encode_name not in others]
