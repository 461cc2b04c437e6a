"""A bundle of an evaluation, judged by who has the model and a key: its events changed and proven again by the operator, its
files changed and attested again, the model changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ledger import LogReader, VerifierKey, create_key, make_proof
from marin.history.runs import evaluation_stream
from marin.kinds.families.measured import EVALUATION_RECORDED, EvaluationRecorded
from marin.plugins.evaluation.bundle import layout as bundle
from marin.plugins.evaluation.bundle.judge import verify_bundle
from marin.plugins.evaluation.recorded.records import identity_of
from marin.recipe.schema import Execution
from marin.record import events as kinds
from marin.record.attestation import attestation, digests
from marin.record.events import read
from marin.record.root import open_root
from tests.adversary.forgeries.doors.events import stranger
from tests.adversary.forgeries.doors.register import Answer, Stall, door, kind
from tests.adversary.forgeries.workshop import OTHER, Entry, Shop, as_operator


class Hand:
    """A copy of the honest bundle, its model, and the root that it is from."""

    def __init__(self, stall: Stall) -> None:
        self.stall, brought = stall, stall.brought()
        self.bundle, self.model = stall.folder / "bundle", stall.folder / "model"
        for mine in (self.bundle, self.model):
            shutil.copytree(brought / mine.name, mine)
        for path in (*self.bundle.rglob("*"), *self.model.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        base = replace(stall.base, location=brought / "root")
        self.shop = Shop(base, base.run, stall.folder)
        (self.number,) = [path.name for path in (self.bundle / bundle.EVALUATIONS).iterdir()]

    @property
    def place(self) -> Path:
        """Where its evaluation is."""
        return self.bundle.joinpath(bundle.EVALUATIONS, self.number)

    def event(self, step: str) -> Entry:
        """The event that a proof of the bundle is of."""
        if step == "started":
            return self.shop.one(kinds.RUN_STARTED)
        if step == "evaluation":
            stream = evaluation_stream(self.shop.run)
            return next(e for e in self.shop.events if (e.type, e.stream) == (EVALUATION_RECORDED, stream))
        return self.shop.one(kinds.STEP_COMPLETED, step)

    def prove(self, **swapped: str) -> None:
        """Sign the log again, unless that was done, and prove its events anew; ``swapped``: of which step the proof of another
        is."""
        shop = self.shop
        if not shop.signed:
            shop.sign()
        with as_operator(shop.base):
            reader: LogReader = open_root(str(shop.path)).reader()
        for step in bundle.STEPS:
            index = shop.place(self.event(swapped.get(step, step)))
            (self.bundle / bundle.proof_of(step)).write_text(str(make_proof(reader, index)))
        index = shop.place(self.event(swapped.get("evaluation", "evaluation")))
        (self.place / bundle.EVENT).write_text(str(make_proof(reader, index)))
        self.place.rename(self.place.with_name(str(index)))
        self.number = str(index)

    def attest(self, **more: Any) -> None:
        """Say of the files what the events say, and ``more``, signed by the operator."""
        body = self.event("evaluation").body
        model = self.event("export").body["output"]["digest"]
        said = bundle.predicate(self.shop.run, model, {int(self.number): body["results"]})
        self.sign(said | more)

    def sign(self, said: dict[str, Any]) -> None:
        with as_operator(self.shop.base):
            signer = self.shop.base.root.signer()
        content = attestation(digests(self.bundle, bundle.ATTESTATION), bundle.PREDICATE, said, signer)
        (self.bundle / bundle.ATTESTATION).write_bytes(content)

    def evaluation(self) -> dict[str, Any]:
        """The body of its evaluation, to be changed."""
        return self.event("evaluation").body

    def sealed(self) -> None:
        """The evaluation's identity, as it follows from what it says now."""
        body = self.evaluation()
        body["identity"] = identity_of(read(EvaluationRecorded, body, where="a forgery"))


@door("bundle")
def _ask(stall: Stall) -> Answer:
    hand: Hand = stall.held["hand"]
    keys: list[VerifierKey] = stall.held.get("keys", [stall.base.root.verifier])
    with stranger(stall):
        report = verify_bundle(hand.bundle, hand.model, keys, Execution(devices=1), None)
    asked = [report.verdicts[name] for name in ("ledger", "evaluation")]
    lines = [line for verdict in asked if verdict.outcome != "PASS" for line in verdict.lines]
    return Answer(all(verdict.outcome == "PASS" for verdict in asked), "\n".join(lines))


def _hand(stall: Stall) -> Hand:
    hand = stall.held["hand"] = Hand(stall)
    return hand


def _events(name: str, says: str, change: Callable[[Hand], object], *, sealed: bool = False, **swapped: str) -> None:
    """Events changed, proven again, and attested as they are then."""

    def forge(stall: Stall) -> None:
        hand = _hand(stall)
        change(hand)
        if sealed:
            hand.sealed()
        hand.prove(**swapped)
        hand.attest()

    kind("bundle", name, says)(forge)


def _files(
    name: str,
    says: str,
    change: Callable[[Hand], object],
    *,
    attested: bool = True,
    executes: bool = False,
    **more: Any,
) -> None:
    """Files changed; attested again, with ``more`` said of them."""

    def forge(stall: Stall) -> None:
        hand = _hand(stall)
        change(hand)
        if attested:
            hand.attest(**more)

    kind("bundle", name, says, executes=executes)(forge)


def _task(body: dict[str, Any]) -> dict[str, Any]:
    return next(iter(body["tasks"].values()))


def _result(body: dict[str, Any]) -> None:
    results = next(iter(body["results"].values()))
    name = sorted(results)[0]
    results[name] = (0.999).hex()


def _append(name: str, text: str = "\n") -> Callable[[Hand], None]:
    def change(hand: Hand) -> None:
        path = next(path for path in sorted(hand.place.rglob(name)) if path.is_file())
        path.write_text(path.read_text() + text)

    return change


def _other_train(hand: Hand) -> None:
    hand.event("export").body["inputs"]["train"] = OTHER


def _other_model(hand: Hand) -> None:
    hand.event("export").body["output"] |= {"digest": OTHER, "artifact": OTHER}


def _recipe(hand: Hand) -> None:
    hand.event("started").body["recipe"]["optimizer"]["learning_rate"] = (0.5).hex()


def _other_key(hand: Hand) -> None:
    name = hand.stall.base.root.verifier.name
    (hand.bundle / bundle.VKEY).write_text(f"{create_key(hand.stall.folder / 'other.key', name).verifier}\n")


def _two_documents(hand: Hand) -> None:
    task = _task(hand.evaluation())
    task["documents"] += 1


@kind("bundle", "the honest evaluation", "", honest=True, executes=True)
def _honest(stall: Stall) -> None:
    _hand(stall)


_events("another state", "state: expected", lambda hand: hand.evaluation().update(state=OTHER), sealed=True)
_events("another train step", "step: expected", lambda hand: hand.evaluation().update(step=1), sealed=True)
_events("another tokenizer", "tokenizer: expected", lambda hand: hand.evaluation().update(tokenizer=OTHER), sealed=True)
_events("another identity", "identity: expected", lambda hand: hand.evaluation().update(identity=OTHER))
_events("another code", "identity: expected", lambda hand: hand.evaluation().update(code=OTHER))
_events("another lock", "identity: expected", lambda hand: hand.evaluation().update(lock="another"))
_events("another stored tree", "stored tree: expected", lambda hand: hand.evaluation().update(samples=OTHER))
_events("another run's evaluation", "an event of something else", lambda hand: hand.evaluation().update(run="abcd2345"))
_events("more documents", "", _two_documents)
_events("another configuration of a task", "", lambda hand: _task(hand.evaluation()).update(config=OTHER), sealed=True)
_events("another text of the prompts", "", lambda hand: _task(hand.evaluation()).update(prompts=OTHER))
_events("more requests", "", lambda hand: hand.evaluation().update(requests=10_000))
_events("requests that were cut", "", lambda hand: hand.evaluation().update(truncated=1))
_events("another harness", "", lambda hand: hand.evaluation().update(harness="9.9.9"), sealed=True)
_events("another setting", "", lambda hand: hand.evaluation()["settings"].update(limit=1), sealed=True)
_events("a setting more", "", lambda hand: hand.evaluation()["settings"].update(reviewed=True), sealed=True)
_events("a number that no answer gives", "", lambda hand: _result(hand.evaluation()))
_events("a task more", "", lambda hand: hand.evaluation()["results"].update(mmlu={"acc,none": (0.9).hex()}))
_events("a field in the evaluation", "a field that its type does not have", lambda h: h.evaluation().update(by="a lab"))
_events("a field in the run's beginning", "a field that its type", lambda h: h.event("started").body.update(by="a lab"))
_events(
    "a field in an output", "a field that its type", lambda h: h.event("export").body["output"].update(licence="MIT")
)
_events("a model from another state", "the model was exported from another state", _other_train)
_events("another exported model", "model folder: expected", _other_model)
_events("a recipe that is not its digest", "the run's beginning contradicts itself", _recipe)
_events("the model's proof for the tokenizer's", "an event of something else", lambda hand: None, tokenizer="export")
_events("the evaluation's step for the model's", "an event of something else", lambda hand: None, export="evaluate")
_events("not a beginning", "an event of another type", lambda hand: None, started="train")
_files("another number said of it", "what is said of a bundle", lambda hand: None, evaluations={"1": {}})
_files("a word more said of it", "what is said of a bundle", lambda hand: None, lawful=True)
_files("another model said of it", "what is said of a bundle", lambda hand: None, model=OTHER)
_files("another run said of it", "what is said of a bundle", lambda hand: None, run="abcd2345")
_files("a stored answer", "stored tree: expected", _append("*.jsonl", "{}\n"))
_files("the harness's own results", "is not what the harness writes", lambda hand: _of_harness(hand), executes=True)
_files("a file that nobody attested", "another", lambda hand: (hand.bundle / "another").write_text(""), attested=False)
_files("a stored answer that nobody attested", bundle.TREE, _append("*.jsonl"), attested=False)
_files("another key brought along", "names another key", _other_key)
_files("no evaluation", "a bundle of no evaluation", lambda hand: shutil.rmtree(hand.place), evaluations={})
_files("another byte of the model", "model folder: expected", lambda hand: _of_model(hand), attested=False)
_files("a file beside the model", "model folder: expected", lambda hand: _beside(hand), attested=False)


def _of_harness(hand: Hand) -> None:
    path = next(path for path in sorted((hand.place / bundle.HARNESS).iterdir()))
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text)) + " \n" if path.suffix == ".json" else text + "\n")


def _of_model(hand: Hand) -> None:
    path = hand.model / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def _beside(hand: Hand) -> None:
    (hand.model / "adapter_config.json").write_text("{}")


@kind("bundle", "a key of the same name", "")
def _namesake(stall: Stall) -> None:
    _hand(stall)
    stall.held["keys"] = [create_key(stall.folder / "namesake.key", stall.base.root.verifier.name).verifier]


@kind("bundle", "a key that the bundle alone names", "no key of yours signed this")
def _only_its_word(stall: Stall) -> None:
    _hand(stall)
    stall.held["keys"] = []
