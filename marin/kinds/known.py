"""Which types of events there are, and what each one is: one registry, for all who ask.

The families that a run of the pipeline or of a loop is made of stand here. All others are found by the entry points
``marin.kinds``, each of which names a tuple of kinds, when a type is met that does not stand here. Marin's own bear the name
of a family, the beginning of its types, so that for a type one plugin alone is loaded. What a verdict rests on is asked of
Marin's own alone (:func:`own_kind`): a type of someone else's plugin has a body that is checked and numbers that are shown,
and keeps a verdict from PASS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

from marin.kinds.body import Body
from marin.kinds.families import evaluation, following, lease, loop, run, step, tracking, train, verification
from marin.kinds.kind import Kind

logger = logging.getLogger(__name__)

GROUP = "marin.kinds"
LEDGER = "log."
"""How the types begin to which the ledger itself gives a meaning."""

FAMILIES = (run, train, tracking, step, following, evaluation, loop, verification, lease)
"""In the order in which a run's claims are listed."""
CORE: Mapping[str, Kind] = {kind.type: kind for family in FAMILIES for kind in family.KINDS}


def own_kind(type: str) -> Kind | None:
    """What a type is to the core or to a plugin of Marin's own; None where neither knows it."""
    return CORE.get(type) or (None if type.startswith(LEDGER) else _of_own_plugin(type))


def kind_of(type: str) -> Kind | None:
    """What a type is to anything that is installed; None where nothing knows it."""
    return own_kind(type) or (None if type.startswith(LEDGER) else of_other_plugins().get(type))


def own_kinds() -> Iterator[Kind]:
    """Every type of the core and of Marin's own plugins, in the order in which a run's claims are listed."""
    yield from CORE.values()
    yield from {kind.type: kind for load in own_families().values() for kind in load()}.values()


def among(types: Collection[str]) -> Iterator[Kind]:
    """Those of these types that the core and Marin's own plugins know, in the order in which a run's claims are listed."""
    yield from (kind for kind in CORE.values() if kind.type in types)
    yield from (kind for type in sorted(types) if type not in CORE and (kind := own_kind(type)) is not None)


def is_evaluation(type: str) -> bool:
    """Whether it tells what was evaluated of a recorded state, in a stream of its own."""
    kind = own_kind(type)
    return kind is not None and kind.judge == "evaluation"


@cache
def kind_of_body(body: type[Body]) -> Kind | None:
    """The kind of the events that have this body."""
    return next((kind for kind in _every() if kind.body is body), None)


def _every() -> Iterator[Kind]:
    yield from own_kinds()
    yield from of_other_plugins().values()


def type_of(body: type[Body]) -> str:
    """The type of the events that have this body."""
    kind = kind_of_body(body)
    assert kind is not None, f"no type of event has the body {body.__name__}"
    return kind.type


def numbers_of(body: Body) -> Mapping[str, Mapping[str, str]]:
    """What an event measured of a recorded state, by what was measured and by name; empty where it measured nothing."""
    kind = kind_of_body(type(body))
    return {} if kind is None or kind.numbers is None else kind.numbers(body)


def _of_own_plugin(type: str) -> Kind | None:
    families = (load for name, load in own_families().items() if type.startswith((f"{name}.", f"{name}/")))
    return next((kind for load in families for kind in load() if kind.type == type), None)


@cache
def own_families() -> Mapping[str, Callable[[], tuple[Kind, ...]]]:
    """What loads each family of Marin's own plugins, by its name."""
    from marin.provenance.plugins import own_points

    return {name: cache(point.load) for name, point in own_points(GROUP).items()}


@cache
def of_other_plugins() -> Mapping[str, Kind]:
    """Types of other installed plugins; what is not a kind, or has a type or a body that is taken, is left out."""
    from marin.provenance.plugins import load_plugins

    mine, bodies = own_families(), {kind.body for kind in own_kinds()}
    found: dict[str, Kind] = {}
    for name, family in load_plugins(GROUP):
        for kind in () if name in mine else family if isinstance(family, tuple | list) else (family,):
            if _is_kind(kind) and kind.body not in bodies and own_kind(kind.type) is None and kind.type not in found:
                found[kind.type] = kind
            else:
                logger.warning("a type of event is left out: %.200r of the plugin %s", kind, name)
    return found


def _is_kind(value: object) -> bool:
    if not isinstance(value, Kind):
        return False
    type_, body = vars(value)["type"], vars(value)["body"]  # whatever someone else wrote there
    return isinstance(type_, str) and isinstance(body, type) and issubclass(body, Body)
