"""What an operator signs of a run: events that contradict one another, or that nothing derives. Each is tried at every door
that repeats what a run says: all of them ask one function (:mod:`marin.verify.agreement`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from ledger import VerifierKey
from marin.export.card import write_card
from marin.history.runs import evaluation_stream, load
from marin.library.checking import verify_own
from marin.plugins.sharing.dossier.judge import judge_dossier
from marin.plugins.sharing.dossier.write import put_dossier
from marin.plugins.sharing.in_toto import attestations
from marin.recipe.schema import Execution
from marin.record import events as kinds
from marin.record.root import Root, open_root
from marin.record.trust.evidence import sources
from marin.record.trust.trusted import TRUST_VARIABLE
from marin.reporting.pages import draw
from marin.verify.verification import Options, Verification
from tests.adversary.forgeries.doors.register import Answer, Stall, door, kind
from tests.adversary.forgeries.workshop import OTHER, Shop, as_operator, variable

VERDICTS = ("ledger", "artifacts")
"""Those that execute nothing: what contradicts itself fails without."""


def judged(root: Root, run: str, keys: list[VerifierKey], only: tuple[str, ...] = VERDICTS) -> Answer:
    """What verification says of a root."""
    report = Verification(root, run, Options(Execution(), keys, remember=False, sources=sources())).report(only)
    wanted = [report.verdicts[name] for name in only]
    said = "\n".join(line for verdict in wanted if verdict.outcome != "PASS" for line in verdict.lines)
    return Answer(all(verdict.outcome == "PASS" for verdict in wanted), said)


def signed(stall: Stall) -> Shop:
    """The forger's root, with everything signed."""
    if not stall.shop.signed:
        stall.shop.sign()
    return stall.shop


@contextmanager
def stranger(stall: Stall) -> Iterator[None]:
    """Somebody with keys and pins of their own, in a folder without a root."""
    mine = stall.folder / "stranger"
    mine.mkdir(exist_ok=True)
    with (
        variable("MARIN_KEY", str(mine / "key")),
        variable("MARIN_PINS", str(mine / "pins")),
        variable(TRUST_VARIABLE, str(trust_of(stall))),
        chdir(mine),
    ):
        yield


def trust_of(stall: Stall) -> Path:
    """The folder that says whom the stranger trusts."""
    return stall.folder / "trust"


@door("root")
def root(stall: Stall) -> Answer:
    shop = signed(stall)
    with stranger(stall):
        return judged(open_root(str(shop.path)), shop.run, [shop.base.root.verifier])


@door("address")
def address(stall: Stall) -> Answer:
    shop = signed(stall)
    with stranger(stall):
        return judged(open_root(f"file://{shop.path}"), shop.run, [shop.base.root.verifier])


@door("library")
def library(stall: Stall) -> Answer:
    shop = signed(stall)
    with (
        as_operator(shop.base),
        variable("MARIN_PINS", str(stall.folder / "pins")),
        variable(TRUST_VARIABLE, str(trust_of(stall))),
    ):
        found = verify_own(open_root(str(shop.path)), shop.run, workers=1, only=VERDICTS, record=False)
    wanted = [found.report.verdicts[name] for name in VERDICTS]
    lines = [line for verdict in wanted if verdict.outcome != "PASS" for line in verdict.lines]
    return Answer(all(verdict.outcome == "PASS" for verdict in wanted), "\n".join(lines))


def wrote_dossier(stall: Stall) -> Path:
    """A dossier by a program that does not mind what it says."""
    shop, folder = signed(stall), stall.folder / "dossier"
    with as_operator(shop.base):
        opened = open_root(str(shop.path))
        put_dossier(opened, load(opened.history(), shop.run), folder)
    return folder


@door("dossier")
def dossier(stall: Stall) -> Answer:
    folder = stall.held.get("dossier") or wrote_dossier(stall)
    with stranger(stall):
        found = judge_dossier(folder, [stall.base.root.verifier])
    asked = [found.verdicts[name] for name in ("files", "events", "fields", "model")]
    lines = [line for verdict in asked if verdict.outcome != "PASS" for line in verdict.lines]
    return Answer(all(verdict.outcome == "PASS" for verdict in asked), "\n".join(lines))


@door("card")
def card(stall: Stall) -> Answer:
    shop = signed(stall)
    (stall.folder / "model").mkdir()
    paths = write_card(open_root(str(shop.path)).history(), shop.run, stall.folder / "model")
    return Answer(True, paths[0].read_text())


@door("attestations")
def attested(stall: Stall) -> Answer:
    shop = signed(stall)
    with as_operator(shop.base):
        opened = open_root(str(shop.path))
        return Answer(True, attestations(opened.history(), shop.run, opened.signer()))


@door("page")
def page(stall: Stall) -> Answer:
    text = draw(open_root(str(signed(stall).path)), stall.shop.run, "report.html").decode()
    told = text.partition("Its events contradict one another")[2].partition("</p>")[0]
    return Answer(not told, told)


# -- what is signed


def _evaluation(shop: Shop, **metrics: str) -> None:
    shop.one(kinds.EVAL_COMPLETED).body["metrics"].update(metrics)


def _step(step: str, **metrics: str) -> Callable[[Shop], None]:
    return lambda shop: shop.one(kinds.STEP_COMPLETED, step).body["metrics"].update(metrics)


def _first_metric(step: str) -> Callable[[Shop], None]:
    def forge(shop: Shop) -> None:
        found = shop.one(kinds.STEP_COMPLETED, step).body["metrics"]
        name = sorted(found)[0]
        found[name] = (float.fromhex(found[name]) / 2 + 1).hex()

    return forge


def _outside(kind: str, stream: str, **body: Any) -> Callable[[Shop], object]:
    return lambda shop: shop.add(kind, {"run": shop.run} | body, stream=stream)


def _segment(shop: Shop) -> dict[str, Any]:
    return shop.all(kinds.TRAIN_SEGMENT)[0].body


def _last_loss(shop: Shop) -> None:
    shop.all(kinds.TRAIN_SEGMENT)[-1].body["losses"][-1] = (0.5).hex()


def _again(shop: Shop) -> None:
    begun = shop.one(kinds.RUN_STARTED)
    shop.again(begun)


def _series(shop: Shop) -> None:
    shop.add(
        kinds.METRICS_RECORDED,
        {"run": shop.run, "step": "train", "series": [{"key": "accuracy", "steps": [1], "values": [(0.99).hex()]}]},
    )


def _own_step(shop: Shop) -> None:
    end = shop.one(kinds.STEP_COMPLETED, "evaluate")
    begun = shop.one(kinds.STEP_STARTED, "evaluate")
    for entry in (begun, end):
        shop.again(entry, before=True, step="judged-by-a-lab")


def _continues(shop: Shop) -> None:
    digest = shop.output("train")["digest"]
    shop.one(kinds.RUN_STARTED).body["continues"] = {
        "run": "abcd2345",
        "step": 1,
        "state": digest,
        "checkpoint": digest,
    }


TWO = "the records contradict each other"
CONTRADICTIONS: dict[str, tuple[Callable[[Shop], object], str]] = {
    "an evaluation that contradicts its own step": (lambda shop: _evaluation(shop, loss=(0.25).hex()), "metrics"),
    "a perplexity that the step does not have": (lambda shop: _evaluation(shop, accuracy=(1.0).hex()), "metrics"),
    "a metric of the evaluation's step": (_step("evaluate", loss=(0.25).hex()), "metrics"),
    "a metric of the corpus": (_first_metric("corpus"), "metrics"),
    "a metric of the tokens": (_first_metric("tokens"), "metrics"),
    "a last loss that no segment has": (_step("train", loss_last=(0.125).hex()), "metrics"),
    "a first loss that no segment has": (_step("train", loss_first=(0.125).hex()), "metrics"),
    "more tokens than were trained on": (_step("train", tokens=(1e12).hex()), "metrics"),
    "a segment's last loss": (_last_loss, "metrics"),
    "a metric of the run's end": (
        lambda shop: shop.one(kinds.RUN_COMPLETED).body["metrics"].update({"evaluate.loss": (0.25).hex()}),
        "metrics",
    ),
    "an output of the run's end": (
        lambda shop: shop.one(kinds.RUN_COMPLETED).body["outputs"]["export"].update(size=1),
        "outputs",
    ),
    "an output of nobody in the run's end": (
        lambda shop: shop.one(kinds.RUN_COMPLETED).body["outputs"].update(other=shop.output("export")),
        "outputs",
    ),
    "an evaluation of another model": (lambda shop: shop.one(kinds.EVAL_COMPLETED).body.update(model=OTHER), "model"),
    "a model from another state": (lambda shop: shop.one(kinds.MODEL_EXPORTED).body.update(model=OTHER), "model"),
    "a model in another format": (lambda shop: shop.one(kinds.MODEL_EXPORTED).body.update(format="gguf"), "format"),
    "another size of the model": (lambda shop: shop.output("export").update(size=7), "output"),
    "another kind of the model": (lambda shop: shop.output("export").update(kind="reviewed"), "output"),
    "another seed of the training": (
        lambda shop: shop.one(kinds.TRAIN_STARTED).body["seeds"].update({"data": "77"}),
        "seeds",
    ),
    "another number of train steps": (
        lambda shop: shop.one(kinds.TRAIN_STARTED).body.update(num_steps=9999),
        "num_steps",
    ),
    "another profile of arithmetic": (
        lambda shop: shop.one(kinds.TRAIN_STARTED).body["program"].update(profile="exact-by-hand"),
        "program.profile",
    ),
    "a recipe that is not its digest": (
        lambda shop: shop.one(kinds.RUN_STARTED).body["recipe"]["optimizer"].update(learning_rate=(0.5).hex()),
        "recipe",
    ),
    "another digest of the recipe": (
        lambda shop: shop.one(kinds.RUN_STARTED).body.update(recipe_digest=OTHER),
        "recipe",
    ),
    "another plan": (lambda shop: shop.one(kinds.RUN_STARTED).body.update(plan=OTHER), "plan"),
    "an experiment that nobody registered": (
        lambda shop: shop.one(kinds.RUN_STARTED).body.update(experiment=OTHER),
        "experiment",
    ),
    "a run that continues one of nobody": (_continues, "abcd2345"),
    "a second beginning": (_again, "one beginning of a run"),
    "another configuration of a step": (
        lambda shop: shop.one(kinds.STEP_STARTED, "tokenizer").body["config"].update(reviewed=True),
        "config",
    ),
    "another code of a step": (lambda shop: shop.one(kinds.STEP_STARTED, "train").body.update(code=OTHER), "identity"),
    "another input of a step": (
        lambda shop: shop.one(kinds.STEP_COMPLETED, "export").body["inputs"].update(train=OTHER),
        "inputs",
    ),
    "an input more of a step": (
        lambda shop: shop.one(kinds.STEP_COMPLETED, "export").body["inputs"].update(rights=OTHER),
        "inputs",
    ),
    "a step's end without its beginning": (lambda shop: shop.drop(kinds.STEP_STARTED, "export"), "identity"),
    "a checkpoint of another state": (
        lambda shop: shop.all(kinds.CHECKPOINT_SAVED)[0].body.update(state=OTHER),
        "state",
    ),
    "a training from another state": (lambda shop: shop.one(kinds.TRAIN_STARTED).body.update(state=OTHER), "state"),
    "a segment of a train step too many": (lambda shop: _segment(shop)["losses"].append((1.0).hex()), "losses"),
}
"""What two events say of one thing, and not alike; with the field."""


def let_go(shop: Shop) -> list[dict[str, Any]]:
    """All checkpoints but the last are let go; what is said of them."""
    begun = shop.one(kinds.TRAIN_STARTED)
    begun.body["retention"] = {"every": [10**6], "last": 1}
    return [entry.body for entry in shop.all(kinds.CHECKPOINT_SAVED)][:-1]


def _other_list(shop: Shop) -> None:
    saved = let_go(shop)
    saved[-1]["manifest"] = shop.all(kinds.CHECKPOINT_SAVED)[-1].body["manifest"]


UNKNOWN: dict[str, tuple[Callable[[Shop], object], str]] = {
    "an event of no known type": (
        lambda shop: shop.add("audit.passed/v1", {"run": shop.run, "by": "a lab"}),
        "audit.passed/v1",
    ),
    "a later version of a known type": (
        lambda shop: shop.add("eval.completed/v2", {"run": shop.run, "metrics": {"loss": (0.25).hex()}}),
        "eval.completed/v2",
    ),
    "an event of no known type beside the run": (_outside("audit.passed/v1", "audits/x"), "audit.passed/v1"),
    "an event of no known type among its evaluations": (
        lambda shop: shop.add("evaluation.signed/v1", {"by": "a lab"}, stream=evaluation_stream(shop.run)),
        "evaluation.signed/v1",
    ),
    "an event of a known type where no run has one": (
        lambda shop: shop.add(kinds.STORE_SCRUBBED, _scrubbed()),
        kinds.STORE_SCRUBBED,
    ),
    "a field in an evaluation": (
        lambda shop: shop.one(kinds.EVAL_COMPLETED).body.update(certified_by="a lab"),
        "certified_by",
    ),
    "a field inside an output": (lambda shop: _everywhere(shop, licence="MIT"), "licence"),
    "a field in a segment": (lambda shop: _segment(shop).update(verified="yes"), "verified"),
    "a field in a series": (
        lambda shop: shop.all(kinds.METRICS_RECORDED)[0].body["series"][0].update(unit="%"),
        "unit",
    ),
    "a step that the pipeline does not have": (_own_step, "judged-by-a-lab"),
    "a measurement of the forger's own": (_series, "accuracy"),
    "numbers in the run's name elsewhere": (
        _outside(kinds.METRICS_RECORDED, "elsewhere/x", step="train", series=[]),
        kinds.METRICS_RECORDED,
    ),
    "an evaluation in another stream": (
        _outside(kinds.EVAL_COMPLETED, "elsewhere/x", model=OTHER, metrics={"loss": (0.25).hex()}),
        kinds.EVAL_COMPLETED,
    ),
}
"""What nothing here derives: it keeps each verdict from PASS, with its name."""


def _scrubbed() -> dict[str, Any]:
    return {"checked": 1, "size": 1, "findings": [], "repaired": [], "finished": True}


def _everywhere(shop: Shop, **more: str) -> None:
    """In the output of the export, wherever it is said."""
    output = shop.output("export")
    output.update(more)
    shop.one(kinds.MODEL_EXPORTED).body["output"] = copy.deepcopy(output)
    shop.one(kinds.RUN_COMPLETED).body["outputs"]["export"] = copy.deepcopy(output)


def _entered(door: str, name: str, forge: Callable[[Shop], object], says: str) -> None:
    kind(door, name, says)(lambda stall: forge(stall.shop))


kind("root", "another list of tensors of a checkpoint that is let go", "list of tensors of step")(
    lambda stall: _other_list(stall.shop)
)
SOME = 12
"""Kinds of a sort at doors that ask the very function of another door."""
for _door in ("root", "dossier"):
    for _name, (_forge, _says) in (CONTRADICTIONS | UNKNOWN).items():
        _entered(_door, _name, _forge, _says)
for _door in ("address", "library"):
    for _name, (_forge, _says) in (*list(CONTRADICTIONS.items())[:SOME], *UNKNOWN.items()):
        _entered(_door, _name, _forge, _says)
for _door in ("card", "page"):
    for _name, (_forge, _says) in CONTRADICTIONS.items():
        _entered(_door, _name, _forge, _says)
for _name, (_forge, _says) in list(CONTRADICTIONS.items())[:SOME]:
    _entered("attestations", _name, _forge, _says)
for _door in ("root", "address", "library", "dossier", "card", "attestations"):
    kind(_door, "the honest run", "", honest=True)(lambda stall: None)
