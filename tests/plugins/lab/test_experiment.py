"""`marin experiment`: register, again, report; and what is not a registration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ledger import Draft
from marin.history.runs import stream_of
from marin.kinds.families.experiment import EXPERIMENT_REPORTED
from marin.preregistration.arms import citation
from marin.recipe.schema import Optimizer, Recipe, digest, recorded
from marin.record import events
from marin.record.root import open_root

Marin = Any

FILE = '''"""Does a higher rate help?"""
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Optimizer, Recipe

experiment = Registration(
    name="exp9_rate", question="Does a higher rate help?", hypothesis="{hypothesis}", primary=Metric(name="evaluate.loss"),
    arms={{"base": Recipe(), "high": Recipe(optimizer=Optimizer(learning_rate=0.01))}}, baseline="base", seeds=(1, 2, 3, 4, 5),
    alternative="one-sided", cost_cap=CostCap(seconds=100))
'''
ARMS = {"base": Recipe(), "high": Recipe(optimizer=Optimizer(learning_rate=0.01))}


@pytest.fixture
def file(root: Path) -> Path:
    path = Path("exp9_rate.py")
    path.write_text(FILE.format(hypothesis="The loss falls."))
    return path


def record(arm: str, seed: int, loss: float) -> None:
    """A run as the executor would record it."""
    import msgspec

    opened, run = open_root(), f"{arm}{seed}"
    recipe = msgspec.structs.replace(ARMS[arm], seed=seed)
    some = "sha256:" + "a" * 64
    opened.append(
        [
            Draft(
                events.RUN_STARTED,
                stream_of(run),
                events.write(
                    events.RunStarted(
                        run=run,
                        pipeline="default",
                        plan=some,
                        recipe_digest=digest(recipe),
                        recipe=recorded(recipe),
                        code={},
                        environment={},
                        experiment=citation(opened.history(), recipe),
                    )
                ),
            ),
            Draft(
                events.STEP_COMPLETED,
                stream_of(run),
                events.write(
                    events.StepCompleted(
                        run=run,
                        step="evaluate",
                        identity=some,
                        inputs={},
                        seconds=2.0,
                        metrics={"loss": loss.hex(), "bits_per_byte": (loss / 2).hex()},
                        output=events.Output(kind="evaluation", digest=some, size=1, artifact=some),
                    )
                ),
            ),
        ]
    )


def run_all() -> None:
    for seed in range(1, 6):
        record("base", seed, 3.0 + seed / 100)
        record("high", seed, 2.5 + seed / 90)


def test_registered_run_and_reported(marin: Marin, file: Path) -> None:
    said = marin("experiment", "register", file)
    assert said.status == 0 and "event         0" in said.out and "about" in said.err
    run_all()
    for name in ("exp9_rate", "exp9", "exp9_rate.py"):
        shown = marin("experiment", "report", name, "--html", "report.html", "--json")
        assert shown.status == 0, shown.err
    found = shown.json
    assert (found["verdict"], found["supported"], found["deviations"]) == ("confirmatory", True, [])
    assert found["comparisons"]["primary"][0]["p"] == pytest.approx(1 / 32)
    assert {run["cites"] for run in found["runs"]} == {found["registration"]["registration"]}
    assert Path("report.html").read_bytes().startswith(b"<!DOCTYPE html>")
    files = marin("show", found["artifact"], "--json").json["files"]
    assert [item["path"] for item in files] == ["plot.svg", "report.html", "report.md", "table.csv"]
    reported = [event for _, event in open_root().history().events(type=EXPERIMENT_REPORTED)]
    assert len(reported) == 1, "the same report is not recorded again"
    (listed,) = marin("ls", "experiments", "--json").json
    assert listed["verdict"] == "confirmatory" and listed["report"] == found["artifact"]
    assert "exp9_rate" in marin("ls", "experiments").out and "confirmatory" in marin("experiment", "ls").out


@pytest.mark.parametrize(
    ("asked", "verdict", "told"),
    [
        ((), "confirmatory", {"evaluate.loss": True, "evaluate.bits_per_byte": False}),
        (("--metric", "bits_per_byte"), "exploratory", {"evaluate.bits_per_byte": False}),
        (("--baseline", "high"), "exploratory", {"evaluate.loss": False, "evaluate.bits_per_byte": False}),
        (("--filter", "seed < 4"), "exploratory", {"evaluate.loss": False, "evaluate.bits_per_byte": False}),
    ],
)
def test_a_comparison_calls_registered_what_was_registered_and_the_rest_exploratory(
    marin: Marin, file: Path, asked: tuple[str, ...], verdict: str, told: dict[str, bool]
) -> None:
    """In the table, as JSON and on the page; the test and its side are the registered ones, and those that nobody registered
    are two-sided."""
    marin("experiment", "register", file)
    run_all()
    shown = marin("compare", "--experiment", "exp9", *asked, "--html", "compared.html")
    found = marin("compare", "--experiment", "exp9", *asked, "--json").json
    assert found["verdict"] == verdict, found["because"]
    by_number = {one["metric"]: one for one in found["differences"]}
    assert {name: one["registered"] for name, one in by_number.items()} == told
    for name, one in by_number.items():
        assert one["exploratory"] is not told[name] and one["baseline"] == found["baseline"]
        assert one["p"] == pytest.approx(1 / 32 if told[name] else 2 / 2 ** (3 if "--filter" in asked else 5))
    page = Path("compared.html").read_text()
    against = [line for line in shown.out.splitlines() if line.startswith("against ")]
    assert [f"<h2>{line[:1].upper()}{line[1:]}</h2>" in page for line in against] == [True] * len(against)
    assert against == [
        *["against base, registered and confirmatory: registered at event 0, before the runs"] * any(told.values()),
        f"against {found['baseline']}, exploratory: {'not registered' if any(told.values()) else found['because']}",
    ]


def test_the_same_is_not_registered_twice_and_a_change_is_seen(marin: Marin, file: Path) -> None:
    marin("experiment", "register", file)
    assert marin("experiment", "register", file, "--json").json["action"] == "present"
    run_all()
    file.write_text(FILE.format(hypothesis="It rises, as I always said."))
    sys.modules.pop("exp9_rate")  # a command is a process of its own, and loads the file anew
    again = marin("experiment", "register", file, "--json").json
    assert again["action"] == "registered again" and "exploratory" in again["warnings"][0]
    found = marin("experiment", "report", "exp9", "--json").json
    assert found["verdict"] == "exploratory" and any("registered again" in line for line in found["deviations"])


def test_a_dry_run_appends_nothing(marin: Marin, file: Path) -> None:
    assert marin("experiment", "register", file, "--dry-run", "--json").json["event"] is None
    assert marin("experiment", "ls", "--json").json == []


def test_an_incomplete_experiment_ends_with_3(marin: Marin, file: Path) -> None:
    marin("experiment", "register", file)
    record("base", 1, 3.0)
    ended = marin("experiment", "report", "exp9")
    assert ended.status == 3 and "Incomplete" in ended.out and "arm high, seed 5: no result" in ended.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "the file states no registration"),
        ("experiment = 3\n", "found int"),
        ("1/0\n", "ZeroDivisionError"),
        (FILE.format(hypothesis="h").replace('baseline="base"', 'baseline="bas"'), "did you mean base?"),
    ],
)
def test_a_file_that_states_nothing_right(marin: Marin, root: Path, text: str, message: str) -> None:
    Path("wrong.py").write_text(text)
    ended = marin("experiment", "register", "wrong.py")
    assert ended.status == 2 and message in ended.err and len(ended.err.strip().splitlines()) == 1


def test_an_unknown_experiment(marin: Marin, file: Path) -> None:
    assert marin("experiment", "report", "exp9").status == 2
    marin("experiment", "register", file)
    ended = marin("experiment", "report", "exp8_rate")
    assert ended.status == 2 and "did you mean exp9_rate?" in ended.err


def test_a_file_that_is_not_written_is_not_registered(marin: Marin, root: Path) -> None:
    Path("experiments").mkdir()
    file = marin("experiment", "new", "https://git.example/lab/marin/issues/12", "Is it so?").out.strip()
    for words in ([], ["--dry-run"]):
        refused = marin("experiment", "register", file, *words)
        assert refused.status == 2 and "Question is not written yet: TODO" in refused.err
    assert marin("experiment", "ls", "--json").json == []
    Path("exp9_rate.py").write_text(FILE.format(hypothesis="TODO"))
    assert "exp9_rate.py:6: " in (refused := marin("experiment", "register", "exp9_rate.py")).err
    assert 'hypothesis="TODO"' in refused.err
    Path("exp9_rate.py").write_text(
        f"from exp9_words import FOUND\n{FILE.format(hypothesis='x')}".replace('"x"', "FOUND")
    )
    Path("exp9_words.py").write_text('FOUND = "TODO"\n')
    assert "the registration is not written yet" in marin("experiment", "register", "exp9_rate.py").err


@pytest.mark.long
def test_check_asks_whether_the_ledger_has_the_registration(marin: Marin, root: Path) -> None:
    Path("experiments").mkdir()
    file = marin("experiment", "new", "https://git.example/lab/marin/issues/12", "Is it so?").out.strip()
    text = Path(file).read_text().replace("TODO: ", "Is it? ").replace("TODO", "Does it end lower?")
    Path(file).write_text(text)

    def lacking() -> set[tuple[str, str]]:
        return {(lack["what"], lack["cure"]) for lack in marin("experiment", "check", file, "--json").json[file]}

    not_there = ("it is not registered in the ledger", f"marin experiment register {file}")
    assert not_there in lacking()
    assert marin("experiment", "register", file).status == 0
    assert {what for what, _ in lacking()} == {"as it is now it was not run from start to end"}
