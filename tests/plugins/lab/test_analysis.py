"""What counts as confirmatory: every way of not deserving the word, and the one of deserving it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from marin.errors import UsageError
from marin.history.projection.identity import Ids
from marin.history.run import Fact
from marin.kinds.families.experiment import ExperimentRegistered
from marin.plugins.lab import report
from marin.plugins.lab.analysis import Findings, Result, analyse, conclusion
from marin.preregistration.arms import arm_digest
from marin.preregistration.registration import CostCap, Metric, Registration, checked, registered
from marin.recipe.schema import Model, Optimizer, Recipe

LOSS = "evaluate.loss"
ARMS = {"small": Recipe(), "rate": Recipe(optimizer=Optimizer(learning_rate=0.01))}
SEEDS = (1, 2, 3, 4, 5, 6)


def registration(**changes: Any) -> Registration:
    values: dict[str, Any] = {
        "name": "exp9_rate",
        "question": "Does a higher rate help?",
        "hypothesis": "The loss falls.",
        "primary": Metric(name=LOSS),
        "arms": ARMS,
        "baseline": "small",
        "seeds": SEEDS,
        "cost_cap": CostCap(seconds=1000.0),
    }
    return Registration(**(values | changes))


def fact(index: int = 10, **changes: Any) -> Fact[ExperimentRegistered]:
    body = registered(
        checked(registration(**changes), where="test"), file="exp9_rate.py", file_digest="sha256:" + "0" * 64
    )
    return Fact(index=index, time="2026-01-01T00:00:00.000000Z", body=body)


def result(arm: str, seed: int, loss: float | None, *, at: int = 100, run: str = "", **changes: Any) -> Result:
    metrics: Mapping[str, float] = {} if loss is None else {LOSS: loss}
    values: dict[str, Any] = {
        "run": run or f"{arm}{seed}",
        "arm": arm,
        "seed": seed,
        "metrics": metrics,
        "recorded": dict.fromkeys(metrics, at),
        "status": "completed",
        "seconds": 1.0,
        "code": {"train": "c"},
        "cites": fact().body.registration,
    }
    return Result(**(values | changes))


def whole(better_by: float = 0.5) -> list[Result]:
    return [
        result(arm, seed, 3.0 + 0.01 * seed - (better_by + 0.001 * seed if arm == "rate" else 0.0))
        for arm in ARMS
        for seed in SEEDS
    ]


def test_registered_before_and_run_as_registered_is_confirmatory() -> None:
    findings = analyse([fact()], whole())
    assert (findings.verdict, findings.supported, findings.deviations) == ("confirmatory", True, ())
    (only,) = findings.primary
    assert only.arm == "rate" and only.p == pytest.approx(2 / 64) and only.pairs == 6
    assert only.correlation is not None
    assert (
        conclusion(findings)
        == "Confirmatory: evaluate.loss of rate is better than that of small (alpha 0.05, after Holm)."
    )


def test_a_null_result_is_a_result() -> None:
    results = [
        result(arm, seed, 3.0 + (0.01 if (seed % 2 == 0) == (arm == "rate") else 0.0)) for arm in ARMS for seed in SEEDS
    ]
    findings = analyse([fact()], results)
    assert (findings.verdict, findings.supported) == ("confirmatory", False)
    assert "no arm is shown to be better" in conclusion(findings)
    assert [row[1] for row in report.arm_rows(findings)] == ["small", "rate"]


def test_worse_with_certainty_does_not_support_the_hypothesis() -> None:
    findings = analyse([fact()], whole(better_by=-0.5))
    assert findings.primary[0].p_holm is not None and findings.primary[0].p_holm < 0.05 and findings.supported is False


def test_known_results_are_exploratory() -> None:
    results = [result(item.arm, item.seed, item.metrics[LOSS], at=5) for item in whole()]
    findings = analyse([fact(index=10)], results)
    assert findings.verdict == "exploratory" and findings.supported is True
    assert "before the registration (event 10)" in findings.deviations[0] and len(findings.deviations) == 12


def test_a_missing_seed_is_incomplete() -> None:
    findings = analyse([fact()], whole()[:-1])
    assert findings.verdict == "incomplete" and "arm rate, seed 6: no result" in findings.deviations[0]
    assert findings.primary[0].pairs == 5 and "left out" in findings.primary[0].note


def test_an_added_seed_is_a_deviation_and_does_not_count() -> None:
    findings = analyse([fact()], [*whole(), result("rate", 7, 0.0)])
    assert findings.verdict == "exploratory" and findings.deviations == (
        "arm rate: seeds 7 were run and are not registered",
    )
    assert findings.primary[0].pairs == 6


def test_the_first_result_counts_and_another_value_is_a_deviation() -> None:
    findings = analyse([fact()], [*whole(), result("rate", 1, 0.0, run="again")])
    assert findings.verdict == "exploratory" and "run again gave 0 in evaluate.loss" in findings.deviations[0]
    equal = [*whole(), result("rate", 1, whole()[6].metrics[LOSS], run="again")]
    assert analyse([fact()], equal).verdict == "confirmatory"


def test_a_registration_after_the_results_of_an_earlier_one() -> None:
    later = fact(index=200, hypothesis="It rises, as I always said.")
    findings = analyse([fact(index=10), later], whole())
    assert findings.verdict == "exploratory"
    assert any("registered again at event 200 when 12 results" in line for line in findings.deviations)
    before = analyse([fact(index=10), fact(index=20, hypothesis="Other words.")], whole())
    assert before.verdict == "confirmatory", "nothing was known between the two"


def test_a_search_is_exploratory_also_where_it_tried_everything_at_once() -> None:
    stated = fact()
    search = Fact(stated.index, stated.time, msgspec.structs.replace(stated.body, file=""))
    assert analyse([stated], whole()).verdict == "confirmatory"
    assert analyse([search], whole()).verdict == "exploratory"


def test_other_code_and_a_passed_cap_are_deviations() -> None:
    results = whole()
    results[0] = result("small", 1, results[0].metrics[LOSS], code={"train": "other", "export": "e"}, seconds=2000.0)
    findings = analyse([fact()], results)
    assert findings.verdict == "exploratory" and len(findings.deviations) == 2
    assert "train: the runs executed 2 versions of the code (1, 11 runs)" in findings.deviations[0]
    assert "cost cap of 1000 seconds was passed: 2011 were executed" in findings.deviations[1]


SHARED = {"loop.py": "l", "step.py": "s"}
LISTED = {
    "c": SHARED,
    "asks": {**SHARED, "objective.py": "o"},
    "forged": {**SHARED, "objective.py": "o", "step.py": "t"},
}


@pytest.mark.parametrize(
    ("code", "arm", "seeds", "said"),
    [
        ("asks", "rate", SEEDS, ""),
        (
            "forged",
            "rate",
            SEEDS,
            "train: the runs executed 2 versions of the code (6, 6 runs): arms may differ by it: step.py",
        ),
        (
            "unlisted",
            "rate",
            SEEDS,
            "train: the runs executed 2 versions of the code (6, 6 runs): arms may differ by it",
        ),
        ("asks", "rate", (1,), "train: the runs executed 2 versions of the code (1, 11 runs): arms may differ by it"),
    ],
    ids=[
        "a file that one arm alone asks for",
        "a file with two versions",
        "nobody kept its files",
        "only one of its seeds",
    ],
)
def test_code_that_one_arm_alone_asks_for_is_part_of_the_arm(
    code: str, arm: str, seeds: tuple[int, ...], said: str
) -> None:
    results = [
        replace(item, code={"train": code}) if item.arm == arm and item.seed in seeds else item for item in whole()
    ]
    findings = analyse([fact()], results, files_of=lambda digest: LISTED.get(digest, {}))
    assert findings.deviations == ((said,) if said else ())
    assert findings.verdict == ("exploratory" if said else "confirmatory")


def test_failures_and_missing_citations_are_said() -> None:
    results = [*whole(), result("rate", 3, None, run="bad", failure="out of memory", status="failed")]
    results[0] = result("small", 1, results[0].metrics[LOSS], cites="")
    findings = analyse([fact()], results)
    assert findings.verdict == "confirmatory"
    assert any("run bad" in note and "out of memory" in note for note in findings.notes)
    assert any("does not cite" in note for note in findings.notes)


def test_one_side_is_the_better_one() -> None:
    lower = analyse([fact(alternative="one-sided")], whole())
    assert lower.primary[0].alternative == "less" and lower.primary[0].p == pytest.approx(1 / 64)
    higher = analyse([fact(alternative="one-sided", primary=Metric(name=LOSS, direction="higher"))], whole())
    assert higher.primary[0].alternative == "greater" and higher.primary[0].p == 1.0 and higher.supported is False


def test_too_few_pairs_are_said() -> None:
    findings = analyse([fact(seeds=(1, 2, 3))], [item for item in whole() if item.seed <= 3])
    assert any("3 pairs cannot give p <= 0.05 (smallest possible 0.25)" in note for note in findings.notes)
    assert "no outcome could have shown it" in conclusion(findings)
    assert "it takes 6" in registration(seeds=(1, 2, 3)).warnings()[0]


def test_several_arms_and_metrics_are_corrected_by_family() -> None:
    arms = {**ARMS, "third": Recipe(model=Model(num_layers=5))}
    register = fact(arms=arms, secondary=(Metric(name="evaluate.pairs_won", direction="higher"),))
    results = [*whole(), *(result("third", seed, 3.0 + 0.01 * seed) for seed in SEEDS)]
    for item in results:
        object.__setattr__(item, "metrics", {**item.metrics, "evaluate.pairs_won": 0.5 + 0.01 * item.seed})
    findings = analyse([register], results)
    assert [item.arm for item in findings.primary] == ["rate", "third"]
    assert findings.primary[0].p_holm == pytest.approx(4 / 64) and findings.supported is False
    assert len(findings.secondary) == 2 and all(item.p == 1.0 for item in findings.secondary)


def files_of(findings: Findings) -> dict[str, bytes]:
    return dict(report.files(findings))


def test_the_report_is_the_same_bytes_again_and_holds_every_arm() -> None:
    findings = analyse([fact(hypothesis="<script>alert(1)</script>")], whole()[:-1])
    made = files_of(findings)
    assert sorted(made) == ["plot.svg", "report.html", "report.md", "table.csv"]
    assert made == files_of(findings)
    page = made["report.html"].decode()
    assert "<script>" not in page and "&lt;script&gt;" in page and "http" not in page.replace("http-equiv", "")
    assert page.count("<td>rate</td>") >= 2 and "arm rate, seed 6: no result" in page
    assert made["plot.svg"].startswith(b"<?xml")
    lines = made["table.csv"].decode().splitlines()
    assert lines[0] == "metric,arm,seed,run,value" and len(lines) == 1 + 11
    json = report.as_json(findings)
    assert json["verdict"] == "incomplete" and msgspec.json.encode(json)


def test_the_running_summary_says_how_far_it_is_and_where_to_look() -> None:
    findings = analyse([fact()], whole()[:-1])
    told = report.markdown(findings)
    assert "- **done**: 11 of 12 runs; a running summary" in told and "Where to look" not in told
    ids = Ids("log.example/one")
    places = report.Places("https://lab.example/site/", "http://127.0.0.1:5000", "https://wandb.ai/lab/project", ids)
    told = report.markdown(findings, places)
    run = findings.results[0].run
    assert f"[report](https://lab.example/site/runs/{run}/report.html)" in told
    assert f"[data](https://lab.example/site/runs/{run}/lineage.html)" in told
    assert f"[MLflow](http://127.0.0.1:5000/#/experiments/0/runs/{ids.run(run)})" in told
    assert f"[W&B](https://wandb.ai/lab/project/runs/{run})" in told
    assert "running summary" not in report.markdown(analyse([fact()], whole()))


def test_words_of_a_registration_draw_no_verdict_and_no_picture() -> None:
    """Another one's log may be reported on: what it says stays inside of its line."""
    hostile = "x\n- **verdict**: supported\n\n| ledger | PASS |\n![](https://evil.example/seen) <b>PASS</b>"
    findings = analyse([fact(question=hostile, hypothesis="$\\frac{$")], whole()[:-1])
    told = files_of(findings)["report.md"].decode()
    (verdict,) = [line for line in told.splitlines() if line.startswith("- **verdict**")]
    assert "supported" not in verdict
    assert "\\![" not in told and "!\\[](https" in told and "\\<b>" in told and "\\| ledger \\| PASS" in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseline": "smal"}, r"the baseline is no arm.*did you mean small\?"),
        ({"arms": {"small": Recipe()}}, r"nothing to compare"),
        ({"seeds": (1, 1)}, r"seeds are there twice"),
        ({"seeds": ()}, r"seeds are there twice or not at all"),
        ({"arms": {"small": Recipe(seed=1), "other": Recipe(seed=2)}}, r"two arms are one recipe.*small and other"),
        ({"alpha": 2}, r"cannot be so"),
        ({"seeds": ("one",)}, r"cannot be so"),
        ({"primary": Metric(name="loss")}, r"cannot be so"),
        ({"secondary": (Metric(name=LOSS),)}, r"a metric is there twice"),
        ({"arms": {"small": Recipe(), "odd": Recipe(model=Model(hidden_dim=130))}}, r"arm odd.*multiple"),
    ],
)
def test_a_registration_that_cannot_be_so(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        checked(registration(**changes), where="exp9.py")
    assert caught.value.exit_code == 2


def test_a_seed_does_not_make_an_arm_and_the_document_names_everything() -> None:
    assert arm_digest(Recipe(seed=1)) == arm_digest(Recipe(seed=2)) != arm_digest(ARMS["rate"])
    one = registration()
    reseeded = {name: msgspec.structs.replace(arm, seed=99) for name, arm in ARMS.items()}
    assert one.document() == registration(arms=reseeded).document()
    for change in (
        {"hypothesis": "x"},
        {"seeds": (1, 2)},
        {"alpha": 0.01},
        {"stopping_rule": "x"},
        {"cost_cap": CostCap()},
    ):
        assert registration(**change).document() != one.document()
