"""Lists and MLflow's view: what an operator signs so that they show a verdict, or a number beside one, that nobody established.

``lists``: somebody else's log, opened by a stranger. ``own lists`` and ``mlflow``: the operator's own, where a verdict counts,
and the number beside it is forged after it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ledger import Draft, Log
from marin.execution.plan import identity_of
from marin.history.catalog import open_catalog
from marin.history.labels import label_stream, speaks_for_the_ledger
from marin.history.runs import evaluation_stream, load, stream_of
from marin.kinds.families.measured import EVALUATION_MEASURED
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.folding.intents import AliasSet, Points, PointsGone, Tags
from marin.plugins.mlflow.folding.projected import ProjectedRun
from marin.record import events as kinds
from marin.record.root import Root, open_root
from marin.record.verdicts import EVALUATION, NAMES, passed_as, verdict_line
from tests.adversary.forgeries.doors.events import signed, stranger
from tests.adversary.forgeries.doors.register import Answer, Stall, door, kind
from tests.adversary.forgeries.workshop import OTHER, Shop, as_operator

FORGED = 0.271828
"""A loss that nobody measured."""


def verdict(log: Root, run: str, words: dict[str, str] | None = None, **about: Any) -> dict[str, Any]:
    """A ``replay.completed`` on the log as it is."""
    checkpoint = log.reader().refresh()
    told = {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
    return {
        "run": run,
        "verdicts": words or dict.fromkeys(NAMES, "PASS"),
        "training": {"mode": "full"},
        "first_divergence": None,
        "log_checkpoint": told | about,
        "details": {},
        "environment": {},
    }


def goes_on(stall: Stall, *events: tuple[str, str, dict[str, Any]]) -> None:
    """More events in the forger's log: type, stream, body."""
    shop = signed(stall)
    with as_operator(shop.base), Log.open(shop.root.storage, shop.root.signer()) as log:
        log.append([Draft(kind, stream, body) for kind, stream, body in events])


def verified(stall: Stall, words: dict[str, str] | None = None, *, run: str = "", **about: Any) -> None:
    """A verification of the run, five times PASS unless ``words`` are given."""
    shop = signed(stall)
    root, run = open_root(str(shop.path)), run or shop.run
    goes_on(stall, (kinds.REPLAY_COMPLETED, stream_of(run), verdict(root, run, words, **about)))


def _word(root: Root, run: str) -> tuple[str, dict[str, float], list[str]]:
    """What a list says of a run, its numbers, and the names of its tags."""
    with open_catalog(root) as catalog:
        (found,) = catalog.runs(run)
        twin = catalog.twins(catalog.runs()).get(run)
        word = passed_as(twin) if twin else verdict_line(found.verdicts, found.claimed, found.answerable)
        return word, catalog.metrics(run), sorted(found.labels.tags)


@door("lists")
def _lists(stall: Stall) -> Answer:
    """Of somebody else's log nothing is a verdict."""
    shop = signed(stall)
    with stranger(stall):
        word, _, tags = _word(open_root(str(shop.path)), stall.held.get("run", shop.run))
        whole = load(open_root(str(shop.path)).history(), stall.held.get("run", shop.run)).verified
    own = "PASS" in word.replace("claimed by this log: PASS", "") or "PASS" in whole
    return Answer(own or any(map(speaks_for_the_ledger, tags)), f"{word}; {whole}; {', '.join(tags)}")


@door("own lists")
def _own_lists(stall: Stall) -> Answer:
    """Beside PASS stands no number but those that were there when it was given."""
    shop = signed(stall)
    with as_operator(shop.base):
        word, numbers, _ = _word(open_root(str(shop.path)), stall.held.get("run", shop.run))
    shown = FORGED in numbers.values()
    return Answer(word.startswith("PASS") and shown, f"{word}{', and the forged number' if shown else ''}")


@door("mlflow")
def _mlflow(stall: Stall) -> Answer:
    """A tag or an alias that says verified, of a log that is somebody else's, or beside a number that is forged."""
    shop = signed(stall)
    root = open_root(str(shop.path))
    fold = Fold(root.verifier.name, own=root.reader() if stall.held.get("own") else None)
    said: dict[str, str] = {}
    curves: dict[tuple[str, str], dict[int, float]] = {}
    aliased = ""
    for intent in fold.apply_all(root.reader().events()):
        if isinstance(intent, Tags):
            said |= {f"{intent.run}:{name}": value for name, value in intent.values.items() if name == "marin.verified"}
        elif isinstance(intent, Points):
            curves.setdefault((intent.run, intent.key), {}).update(intent.points)
        elif isinstance(intent, PointsGone):
            known = curves[intent.run, intent.key]
            curves[intent.run, intent.key] = {at: one for at, one in known.items() if at not in intent.steps}
        elif isinstance(intent, AliasSet):
            said["alias"], aliased = "PASS", intent.model
    projected = fold.runs[stall.held.get("run", shop.run)]
    word = said.get(f"{projected.id()}:marin.verified", "never") if stall.held.get("own") else " ".join(said.values())
    numbers = [number for (run, _), points in curves.items() for number in points.values() if _of(projected, run)]
    forged = [", and the forged number"] * (FORGED in numbers)
    model = projected.model
    forged += [", and the forged model"] * (model is not None and aliased not in ("", fold.ids.model(model)))
    forged += [", and the forged model"] * (model is not None and model.output.digest == OTHER)
    believed = "PASS" in word and (bool(forged) or not stall.held.get("own"))
    return Answer(believed, f"{word}{''.join(forged)}")


def _of(projected: ProjectedRun, run: str) -> bool:
    """Whether something is shown on the run or one of its steps."""
    return run in (projected.id(), *map(projected.id, projected.fold.states))


def _end(shop: Shop, **changes: Any) -> dict[str, Any]:
    """The end of the evaluation with a loss that nobody measured."""
    body = shop.one(kinds.STEP_COMPLETED, "evaluate").body
    return body | {"metrics": body["metrics"] | {"loss": FORGED.hex()}} | changes


def _foreign() -> Iterator[tuple[str, Callable[[Stall], None]]]:
    yield "PASS in a log of its own", verified
    yield "PASS over a copy of the log", lambda stall: verified(stall, copy="/elsewhere")
    yield "PASS over a larger log", lambda stall: verified(stall, size=10**6)
    yield "PASS over another root of the log", lambda stall: verified(stall, root="0" * 64)
    yield "PASS over a log of nobody", lambda stall: verified(stall, origin="somebody.else/log")
    yield "PASS by a label", lambda stall: _labelled(stall, {"marin.verified": "PASS"})
    yield "PASS in an other's letters", lambda stall: _labelled(stall, {"m\u0430rin.verified": "PASS"})
    yield "PASS by a label in another stream", lambda stall: _labelled(stall, {"verdict": "PASS"}, "elsewhere/x")


def _labelled(stall: Stall, tags: dict[str, str], stream: str = "") -> None:
    body: dict[str, Any] = {"run": stall.shop.run, "tags": tags, "untagged": [], "archived": None, "description": None}
    goes_on(stall, (kinds.RUN_LABELLED, stream or label_stream(stall.shop.run), body))


for _name, _forge in _foreign():
    kind("lists", _name, "")(_forge)
    kind("mlflow", f"{_name}, of somebody else", "")(_forge)


def _after(*, own: bool) -> Callable[[Callable[[Stall, Shop], Any]], Callable[[Stall], None]]:
    """A verdict that counts, and then what is forged."""

    def made(forge: Callable[[Stall, Shop], Any]) -> Callable[[Stall], None]:
        def forged(stall: Stall) -> None:
            stall.held["own"] = own
            verified(stall)
            forge(stall, stall.shop)

        return forged

    return made


def _words(kind_: str, stream: str, body: Callable[[Shop], dict[str, Any]]) -> Callable[[Stall, Shop], None]:
    return lambda stall, shop: goes_on(stall, (kind_, stream.replace("RUN", shop.run), body(shop)))


def _evaluated(shop: Shop) -> dict[str, Any]:
    body = shop.one(kinds.EVAL_COMPLETED).body
    return body | {"metrics": body["metrics"] | {"loss": FORGED.hex()}}


def _twin(stall: Stall, shop: Shop) -> None:
    """A second run of the same recipe and outputs, with another loss: it is shown as itself."""
    stall.held["run"] = "twin2345"
    told = []
    for entry in shop.events:
        if entry.stream == stream_of(shop.run):
            body = entry.body | ({"run": "twin2345"} if "run" in entry.body else {})
            if entry.type == kinds.STEP_COMPLETED and entry.body["step"] == "evaluate":
                body = _end(shop, run="twin2345")
            told.append((entry.type, stream_of("twin2345"), body))
    goes_on(stall, *told)


LATER: dict[str, Callable[[Stall, Shop], None]] = {
    "a step's end after the verdict": _words(kinds.STEP_COMPLETED, "run/RUN", _end),
    "a step's end in another stream": _words(kinds.STEP_COMPLETED, "elsewhere/x", _end),
    "a step's end in another run's stream": _words(kinds.STEP_COMPLETED, "run/abcd2345", _end),
    "a step's end among its evaluations": _words(kinds.STEP_COMPLETED, "evaluation/RUN", _end),
    "a step's end among its labels": _words(kinds.STEP_COMPLETED, "labels/RUN", _end),
    "a step's end by an address": _words(
        kinds.STEP_COMPLETED, "elsewhere/x", lambda shop: _end(shop, address="evaluate", step="other")
    ),
    "an evaluation after the verdict": _words(kinds.EVAL_COMPLETED, "run/RUN", _evaluated),
    "an evaluation in another stream": _words(kinds.EVAL_COMPLETED, "elsewhere/x", _evaluated),
    "a run of equal bytes with another number": _twin,
}
for _name, _later in LATER.items():
    for _door in ("own lists", "mlflow"):
        kind(_door, _name, "")(_after(own=True)(_later))


@kind("own lists", "a result of nobody, taken over", "")
def _cached(stall: Stall) -> None:
    shop = stall.shop
    verified(stall)
    body = {key: _end(shop)[key] for key in ("run", "step", "identity", "inputs", "output")}
    made = _end(shop, run="abcd2345", output=_end(shop)["output"] | {"digest": OTHER})
    goes_on(stall, (kinds.STEP_COMPLETED, "elsewhere/x", made))
    size = signed(stall).root.reader().refresh().size
    goes_on(stall, (kinds.STEP_CACHED, "elsewhere/x", body | {"completed_at": size - 1}))


@kind("mlflow", "an evaluation of an attempt that another took the place of", "")
@kind("own lists", "an evaluation of an attempt that another took the place of", "")
def _attempted(stall: Stall) -> None:
    """No verdict looks at it: the attempt had other inputs, and the result is another's."""
    shop = stall.shop
    stall.held["own"] = True
    begun, evaluated = shop.one(kinds.STEP_STARTED, "evaluate"), shop.one(kinds.EVAL_COMPLETED)
    other = {"code": OTHER, "attempt": 7}
    body = begun.body | other
    lock = body.get("lock") or shop.one(kinds.RUN_STARTED).body["environment"].get("lock", "")
    body["identity"] = identity_of("evaluate", body["config"], body["inputs"], body["code"], lock)
    metrics = evaluated.body["metrics"] | {"loss": FORGED.hex()}
    shop.again(evaluated, metrics=metrics)
    attempt = shop.again(evaluated)
    attempt.type, attempt.body = kinds.STEP_STARTED, body
    verified(stall)


@door("evaluation's word")
def _evaluations_word(stall: Stall) -> Answer:
    """What passed of a run's evaluations does not stand beside a number that was evaluated later."""
    shop = signed(stall)
    with as_operator(shop.base):
        root = open_root(str(shop.path))
        with open_catalog(root) as catalog:
            (found,) = catalog.runs(shop.run)
        words = [(found.verdicts or {}).get(EVALUATION, ""), load(root.history(), shop.run).verdict.get(EVALUATION, "")]
    tags: dict[str, str] = {}
    for intent in Fold(root.verifier.name, own=root.reader()).apply_all(root.reader().events()):
        if isinstance(intent, Tags):
            tags |= intent.values
    words.append(tags.get(f"marin.verdict.{EVALUATION}", ""))
    return Answer("PASS" in words, ", ".join(words))


def _measured(stall: Stall) -> None:
    """The state that the run ended with has a loss that nobody measured, recorded behind the verdict."""
    verified(stall, dict.fromkeys((*NAMES, EVALUATION), "PASS"))
    shop = stall.shop
    one = {"data": OTHER, "scores": OTHER, "documents": 1, "bytes": 9, "tokens": 2, "numbers": {"loss": FORGED.hex()}}
    about = {"state": shop.output("train")["digest"], "tokenizer": shop.output("tokenizer")["digest"]}
    last = shop.one(kinds.TRAIN_STARTED).body["num_steps"]
    body = {"run": shop.run, "step": last, **about, "code": OTHER, "lock": OTHER, "sets": {"held-out": one}}
    goes_on(stall, (EVALUATION_MEASURED, evaluation_stream(shop.run), body))


def _no_type(stall: Stall) -> None:
    """What no version knows, behind the verdict."""
    verified(stall, dict.fromkeys((*NAMES, EVALUATION), "PASS"))
    goes_on(stall, ("evaluation.signed/v1", evaluation_stream(stall.shop.run), {"run": stall.shop.run, "by": "a lab"}))


kind("evaluation's word", "a number after the verdict", "PARTIAL, PARTIAL, PARTIAL")(_measured)
kind("evaluation's word", "an event of no known type after the verdict", "PARTIAL, PARTIAL")(_no_type)
kind("evaluation's word", "the verdict alone", "", honest=True)(
    lambda stall: verified(stall, dict.fromkeys((*NAMES, EVALUATION), "PASS"))
)
