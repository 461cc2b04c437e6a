"""Forged records of a user's own loop: each is refused, or its field is listed as claimed.

The forger holds the key, copies an honest run under another name, changes one thing and seals the rest again (identities,
digests), as a careful forger would.
"""

from __future__ import annotations

import copy
import json
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger import Draft, LedgerError, canonical_digest
from marin.history.runs import load, stream_of
from marin.kinds.known import CORE
from marin.recipe.schema import Execution
from marin.record import events
from marin.record.events import LOOP
from marin.record.root import Root, open_root
from marin.record.trust.evidence import NOBODY
from marin.verify.verdict import Report
from marin.verify.verification import Options, Verification

PROGRAM = """
import marin, numpy as np
with marin.start_run("mine", recipe={"lr": 0.1, "seed": 3}, tags={"team": "one"}) as run:
    for step in range(6):
        run.log(step, loss=1 / (step + 1), batch=f"batch {step}", rate=0.1 * step)
        if step % 3 == 2:
            run.state({"weights": np.full(4, step)})
    open("model.txt", "w").write("weights")
    run.save("model", "model.txt")
"""
Facts = list[tuple[str, dict[str, Any]]]
"""Type and body of each event of a run, in order."""
OTHER = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def honest(project_once: Path) -> Root:
    (project_once / "train.py").write_text(PROGRAM)
    runpy.run_path("train.py")
    return open_root()


@pytest.fixture(scope="module")
def project_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from marin.record.creation import create_root

    folder = tmp_path_factory.mktemp("loops")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MARIN_ROOT", str(folder / "root"))
        patch.setenv("MARIN_KEY", str(folder / "key"))
        patch.setenv("MARIN_PINS", str(folder / "pins"))
        create_root(str(folder / "root"), origin="loops.invalid/x")
        yield folder


def recorded(root: Root) -> Facts:
    run = next(load(root.history(), event.body["run"]) for _, event in root.history().events(type=events.RUN_STARTED))
    return [
        (event.type, json.loads(json.dumps(event.body)))
        for _, event in root.history().events(stream=stream_of(run.run))
    ]


def sealed(facts: Facts, run: str) -> Facts:
    """The events as those of ``run``, with what a forger can seal again: digests and identities."""
    facts = copy.deepcopy(facts)
    for _, body in facts:
        body["run"] = run
    started = facts[0][1]
    identity = canonical_digest({"recipe": started["recipe"], "code": started["code"]["tree"], "run": run})
    for kind, body in facts:
        if kind in (events.STEP_STARTED, events.STEP_COMPLETED, events.STEP_FAILED):
            body["identity"] = identity if body["step"] == LOOP else canonical_digest([identity, body["step"]])
    return facts


def judged(root: Root, facts: Facts, run: str) -> Report:
    root.append([Draft(kind, stream_of(run), body) for kind, body in facts])
    options = Options(execution=Execution(), remember=False, sources=NOBODY)
    return Verification(root, run, options).report(("ledger", "artifacts"))


def outcome(report: Report) -> set[str]:
    return {report.verdicts[name].outcome for name in ("ledger", "artifacts")}


def _body(facts: Facts, kind: str, step: str = "") -> dict[str, Any]:
    return next(body for found, body in facts if found == kind and (not step or body.get("step") == step))


def _completed(change: Callable[[dict[str, Any]], None], step: str = LOOP) -> Callable[[Facts], None]:
    """Change a step's end, and the run's end with it."""

    def forge(facts: Facts) -> None:
        body = _body(facts, events.STEP_COMPLETED, step)
        change(body)
        done = _body(facts, events.RUN_COMPLETED)
        done["outputs"][step] = copy.deepcopy(body["output"])
        done["metrics"] = {
            f"{one['step']}.{name}": value
            for kind, one in facts
            if kind == events.STEP_COMPLETED
            for name, value in one["metrics"].items()
        }

    return forge


def _twice(facts: Facts) -> None:
    place = next(n for n, (kind, body) in enumerate(facts) if kind == events.STEP_COMPLETED and body["step"] == "model")
    again = copy.deepcopy(facts[place])
    again[1]["seconds"] = 0.5
    facts.insert(place + 1, again)


def _recipe(facts: Facts) -> None:
    facts[0][1]["recipe"]["lr"] = (0.2).hex()  # and its digest is left


def _resealed_recipe(facts: Facts) -> None:
    """The recipe, its digest and the plan, but not what the step began with."""
    started = facts[0][1]
    started["recipe"]["lr"] = (0.2).hex()
    started["recipe_digest"] = canonical_digest(started["recipe"])
    started["plan"] = canonical_digest([started["recipe_digest"], started["code"]["tree"]])


FORGERIES: dict[str, Callable[[Facts], None]] = {
    "a last loss that is not": _completed(lambda body: body["metrics"].update(loss_last=(1e-6).hex())),
    "a metric of no series": _completed(lambda body: body["metrics"].update(accuracy=(0.99).hex())),
    "another last value of a series": _completed(lambda body: body["metrics"].update(rate=(7.0).hex())),
    "a metric left out": _completed(lambda body: body["metrics"].pop("rate")),
    "tables of the loop": _completed(lambda body: body.update(tables={"loss": body["output"]["digest"]})),
    "inputs of the loop": _completed(lambda body: body.update(inputs={"corpus": OTHER})),
    "metrics of an output": _completed(lambda body: body["metrics"].update(accuracy=(0.99).hex()), "model"),
    "another kind of an output": _completed(lambda body: body["output"].update(kind="model"), "model"),
    "another size of an output": _completed(lambda body: body["output"].update(size=123456789), "model"),
    "another artifact of an output": _completed(lambda body: body["output"].update(digest=OTHER), "model"),
    "another kind of the losses": _completed(lambda body: body["output"].update(kind="files")),
    "another size of the losses": _completed(lambda body: body["output"].update(size=1)),
    "an output recorded twice": _twice,
    "a field in a segment": lambda facts: _body(facts, events.LOOP_SEGMENT).update(verified="yes"),
    "a field in an output": _completed(lambda body: body["output"].update(licence="MIT"), "model"),
    "a field in the beginning": lambda facts: facts[0][1].update(reviewed_by="a lab"),
    "a recipe that is not its digest": _recipe,
    "a recipe that the step did not begin with": _resealed_recipe,
    "another plan": lambda facts: facts[0][1].update(plan=OTHER),
    "an experiment": lambda facts: facts[0][1].update(experiment=OTHER),
    "another code of the step": lambda facts: facts[1][1].update(code=OTHER),
    "a second beginning of the step": lambda facts: facts.insert(2, copy.deepcopy(facts[1])),
    "a second attempt": lambda facts: facts[1][1].update(attempt=2),
    "a segment left out": lambda facts: facts.pop(2),
    "a segment twice": lambda facts: facts.insert(3, copy.deepcopy(facts[2])),
    "a segment after the end": lambda facts: facts.append(copy.deepcopy(facts[2])),
    "an end after the end": lambda facts: facts.append(copy.deepcopy(facts[-1])),
    "a series without values": lambda facts: _body(facts, events.METRICS_RECORDED)["series"][0].update(values=[]),
    "a series of another step": lambda facts: _body(facts, events.METRICS_RECORDED).update(step="train"),
    "outputs that were not made": lambda facts: _body(facts, events.RUN_COMPLETED)["outputs"].update(
        other=_body(facts, events.STEP_COMPLETED)["output"]
    ),
    "a metric of the run": lambda facts: _body(facts, events.RUN_COMPLETED)["metrics"].update(
        {"model.accuracy": (0.99).hex()}
    ),
}


def test_the_honest_run_passes(honest: Root) -> None:
    facts = sealed(recorded(honest), "honest22")
    assert outcome(judged(honest, facts, "honest22")) == {"PASS"}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_forged_record_does_not_pass(honest: Root, kind: str) -> None:
    facts = recorded(honest)
    FORGERIES[kind](facts)
    run = f"f{list(FORGERIES).index(kind):07}"
    report = judged(honest, sealed(facts, run), run)
    assert outcome(report) != {"PASS"}, kind


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each value of a body that holds no others, and where it stands."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items or not value:
        yield path, value
    for name, item in items:
        yield from leaves(item, (*path, name))


def other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case None:
            return 1
        case str() if value.startswith("sha256:"):
            return OTHER
        case str() if "0x" in value and "p" in value:
            return (float.fromhex(value) + 0.25).hex()
        case str():
            return value + "x"
        case dict():
            return {"x": "y"}
    return ["x"]


CASES = 260
"""Fields of the honest run, at most: its environment has one for each package."""


@pytest.mark.table
@pytest.mark.parametrize("number", range(CASES))
def test_each_field_agrees_with_another_or_is_claimed(honest: Root, number: int) -> None:
    facts = recorded(honest)
    places = [(n, path) for n, (_, body) in enumerate(facts) for path, _ in leaves(body) if path != ("run",)]
    if number >= len(places):
        assert len(places) <= CASES
        return
    place, path = places[number]
    run = f"m{number:07}"
    facts = sealed(facts, run)
    kind, body = facts[place]
    holder = body
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = other(holder[path[-1]])
    try:
        report = judged(honest, facts, run)
    except LedgerError as error:  # the root does not take such an event
        assert "expected" in str(error)
        return
    if outcome(report) == {"PASS"}:
        held = CORE[kind].loop
        assert held is not None and path[0] in held.claimed, f"{kind}: {path} was changed, and the run passes"
