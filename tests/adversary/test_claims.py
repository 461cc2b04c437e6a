"""What no bytes and no execution give is listed as claimed, in words that change with it."""

from __future__ import annotations

from typing import Any

import pytest

from ledger import LogReader
from marin.cli.looking.experiments import print_experiments
from marin.history.runs import evaluation_stream
from marin.kinds.families.experiment import EXPERIMENT_REPORTED
from marin.kinds.families.measured import EVALUATION_RECORDED
from marin.kinds.known import CORE
from marin.pipeline.stages import PIPELINE
from marin.plugins.lab.kinds import SPEEDRUN_ENTERED
from marin.record import events as kinds
from marin.record.root import open_root
from marin.verify.agreement import judge_record
from marin.verify.derivation.attempts import beside
from marin.verify.derivation.claims import derive
from marin.verify.derivation.record import read_record
from tests.adversary.forgeries.doors.boards import honest_entry
from tests.adversary.forgeries.doors.events import let_go, signed, stranger
from tests.adversary.forgeries.doors.register import Stall
from tests.adversary.forgeries.doors.views import goes_on
from tests.adversary.forgeries.kinds.measuring import cited
from tests.adversary.forgeries.workshop import OTHER, Shop, as_operator
from tests.marin.verify.test_evaluation_record import body_of


def claimed(shop: Shop) -> str:
    record = read_record(open_root(str(shop.path)).history(), shop.run)
    return "\n".join(claim.text for claim in derive(record, PIPELINE) if claim.basis == "claimed")


@pytest.mark.parametrize(("field", "value"), [("artifact", OTHER), ("size", 123456789)])
def test_how_a_checkpoint_that_is_let_go_was_stored(stall: Stall, field: str, value: Any) -> None:
    saved = let_go(stall.shop)[-1]
    saved[field] = value
    signed(stall)
    assert str(value) in claimed(stall.shop)
    assert f"{saved['artifact']}, {saved['size']} bytes" in claimed(stall.shop)


@pytest.mark.parametrize(("field", "value"), [("code", OTHER), ("lock", "sha256:" + "7" * 64)])
def test_what_code_measured_an_evaluation(stall: Stall, field: str, value: str) -> None:
    shop = signed(stall)
    body = body_of(shop.run, **{field: value})
    goes_on(stall, (EVALUATION_RECORDED, evaluation_stream(shop.run), body))
    said = claimed(shop)
    assert f"was measured by code {body['code']} under lock {body['lock']}" in said and value in said
    assert f"what it calls {', '.join(body['results'])} is what others call so, with all of its data" in said


def test_what_a_report_concluded_is_the_word_of_its_log(stall: Stall, capsys: pytest.CaptureFixture[str]) -> None:
    registered, _ = cited(stall.shop)
    reported = {"verdict": "confirmatory", "supported": True, "deviations": [], "artifact": OTHER, "runs": []}
    about = {name: registered.body[name] for name in ("experiment", "registration")}
    goes_on(stall, (EXPERIMENT_REPORTED, "experiments", about | reported))
    with stranger(stall):
        print_experiments(open_root(str(stall.shop.path)), as_json=False)
    assert "claimed by this log: confirmatory" in capsys.readouterr().out
    with as_operator(stall.base):
        print_experiments(open_root(str(stall.shop.path)), as_json=False)
    told = capsys.readouterr().out
    assert "confirmatory" in told and "claimed" not in told


@pytest.mark.parametrize("kind", sorted(CORE))
def test_each_type_says_what_it_agrees_with_or_keeps_a_verdict_from_pass(kind: str) -> None:
    """Every type that a stream of a run may hold says which of its fields are claimed, and these are fields of it."""
    for held in (CORE[kind].run, CORE[kind].loop):
        assert held is None or set(held.claimed) <= set(CORE[kind].body.__struct_fields__)


def test_a_type_that_says_nothing_of_itself_keeps_a_verdict_from_pass(stall: Stall) -> None:
    """Also where it is a type that Marin writes elsewhere; what is beside a run says nothing of it."""
    shop = signed(stall)
    reader: LogReader = open_root(str(shop.path)).reader()
    size = reader.checkpoint().size
    for kind in ("audit.passed/v1", SPEEDRUN_ENTERED, kinds.STORE_SCRUBBED, kinds.LEASE_RENEWED):
        body = {"run": shop.run, "by": "a lab"} if kind not in CORE else _body(kind, shop)
        goes_on(stall, (kind, f"run/{shop.run}", body))
        root = open_root(str(shop.path))
        found = judge_record(read_record(root.history(), shop.run))
        assert found.outcome == "UNAVAILABLE" and any(kind in line for line in found.lines), kind
    (event,) = (event for index, event in open_root(str(shop.path)).reader().events() if index == size)
    assert not beside(event)


def _body(kind: str, shop: Shop) -> dict[str, Any]:
    root = open_root(str(shop.path))
    return {
        SPEEDRUN_ENTERED: lambda: kinds.write(honest_entry(root, shop.run)),
        kinds.STORE_SCRUBBED: lambda: {"checked": 1, "size": 1, "findings": [], "repaired": [], "finished": True},
        kinds.LEASE_RENEWED: lambda: {"executor": "x", "until": "2026-01-01T00:00:00Z"},
    }[kind]()
