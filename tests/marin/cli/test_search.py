"""A sweep that searches: Hydra's plugin chooses, trials are tried by somebody else, and all of them are one experiment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from ledger import Draft
from marin.cli.running.search import search_trials
from marin.cli.running.trained import Trained
from marin.errors import UsageError
from marin.kinds.families.experiment import EXPERIMENT_REGISTERED
from marin.plugins.lab.analysis import examine
from marin.preregistration.arms import arm_digest, citation, registrations
from marin.recipe.composition import Composed, compose
from marin.recipe.schema import digest
from marin.recipe.search import Words, first_trial, plan, search, searches
from marin.record import events
from marin.record.root import Root, open_root

METRIC = "evaluate.loss"
WORDS = (
    "model=nano",
    "hydra/sweeper=optuna",
    "hydra.sweeper.n_trials=6",
    "hydra.sweeper.n_jobs=2",
    "optimizer.learning_rate=tag(log,interval(1e-4,1e-1))",
    "trainer.batch_size=choice(8,16)",
)


@pytest.mark.long
def test_optunas_own_words_are_not_the_users(tmp_path: Path) -> None:
    """In a process that has not imported it yet: what it says of a study would stand among Marin's own lines."""
    asked = f"from marin.cli.running.search import planned_trial; planned_trial({WORDS!r}, {METRIC!r})"
    done = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def rate(words: Words) -> float:
    return float(next(word for word in words if word.startswith("optimizer.learning_rate=")).partition("=")[2])


def tried(words: Sequence[str] = WORDS) -> list[Words]:
    """The trials of a search for the rate 0.01."""
    found: list[Words] = []

    def attempt(batch: Sequence[Words], first: int) -> list[float | None]:
        assert first == len(found)
        found.extend(batch)
        return [abs(rate(one) - 0.01) for one in batch]

    search(plan(words, METRIC), attempt)
    return found


def test_hydras_words_are_the_plan() -> None:
    assert searches(WORDS) and not searches(("model=nano", "seed=1,2"))
    asked = plan(WORDS, METRIC)
    assert asked.space == WORDS[-2:] and asked.fixed == ("model=nano",)
    assert (asked.trials, asked.at_once, asked.direction) == (6, 2, "lower")
    assert asked.sampler == "TPESampler, seed 0" and asked.name == plan(WORDS, METRIC).name
    other = plan((*WORDS, "hydra.sweeper.direction=maximize", "hydra/sweeper/sampler=random"), METRIC)
    assert other.direction == "higher" and other.sampler == "RandomSampler, seed 0" and other.name != asked.name
    assert plan((*WORDS, "hydra.sweeper.study_name=mine"), METRIC).name == "mine"


def test_the_same_command_makes_the_same_trials_in_their_space() -> None:
    first = tried()
    assert len(first) == 6 and first == tried()
    assert all(1e-4 <= rate(one) <= 1e-1 and one[-1] == "model=nano" for one in first)
    assert {word for one in first for word in one if word.startswith("trainer")} <= {
        "trainer.batch_size=8",
        "trainer.batch_size=16",
    }
    assert first != tried((*WORDS, "hydra.sweeper.sampler.seed=1"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hydra/sweeper=optuna", "seed=range(1,9)"), "a seed is no hyperparameter"),
        (("hydra/sweeper=optuna", "training.seed=range(1,9)"), "a seed is no hyperparameter"),
        (("hydra/sweeper=optuna", "model=nano"), "nothing to search"),
        ((*WORDS, "hydra.sweeper.storage=sqlite:////tmp/trials.db"), "trials that the ledger does not have"),
        ((*WORDS, "hydra.sweeper.study_name='../../other'"), "not a name of an experiment"),
        ((*WORDS, "hydra.sweeper.params.seed='range(1,5)'"), "the search cannot be read"),
        (("hydra/sweeper=optuna", "hydra.sweeper.n_trial=3", "trainer.batch_size=8,16"), "the search cannot be read"),
        (("hydra/sweeper=nobody", "trainer.batch_size=8,16"), "the search cannot be read"),
        (("hydra/sweeper=optuna", "trainer.batch_size=interval(8"), "argument cannot be read"),
        ((*WORDS, "hydra.sweeper.n_jobs=0"), "a search without trials: hydra.sweeper.n_jobs"),
        ((*WORDS, "hydra.sweeper.n_jobs=-1"), "a search without trials: hydra.sweeper.n_jobs"),
        ((*WORDS, "hydra.sweeper.n_trials=0"), "a search without trials: hydra.sweeper.n_trials"),
        ((*WORDS, "hydra.sweeper.max_failure_rate=2"), "not a share of trials"),
        ((*WORDS, "hydra.sweeper.max_failure_rate=nan"), "not a share of trials"),
        (("hydra/sweeper=optuna", "trainer.batch_size=interval(nan,16)"), "a space without bounds"),
        (("hydra/sweeper=optuna", "trainer.batch_size=interval(8,inf)"), "a space without bounds"),
        (("hydra/sweeper=optuna", "trainer.batch_size=range(1.0,8,nan)"), "a space without bounds"),
        (("hydra/sweeper=optuna", "trainer.batch_size=interval(16,8)"), "smaller than or equal to the `high`"),
        (("hydra/sweeper=optuna", "trainer.batch_size=tag(log,interval(0,8))"), "larger than 0 for a log"),
        (("hydra/sweeper=optuna", "trainer.batch_size=range(1,8,0)"), "the search ended.*step"),
        (("hydra/sweeper=optuna", "model=glob(*)"), "a search takes no pattern"),
        (("hydra/sweeper=basic", "trainer.batch_size=8,16"), "not a sweeper that searches"),
        ((*WORDS, "hydra.sweeper.sampler.seed=-1"), "the search ended.*Seed must be between"),
        ((*WORDS, "hydra.sweeper.sampler._target_=nobody.Sampler"), "the search ended.*nobody.Sampler"),
        ((*WORDS, "hydra/sweeper/sampler=grid"), "GridSampler only supports discrete"),
    ],
)
def test_what_is_no_search_is_refused(words: Words, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan(words, METRIC)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("evaluate.los", r"did you mean evaluate.loss\?"),
        ("loss", "no step ends"),
        ("seed", "no step ends"),
        ("", "no step"),
    ],
)
def test_a_metric_that_no_step_ends_with_is_said_before_anything_is_trained(root: Root, metric: str, said: str) -> None:
    def execute(batch: Sequence[Composed]) -> list[Trained]:
        raise AssertionError("nothing is trained")

    with pytest.raises(UsageError, match=said):
        search_trials(open_root(), WORDS, metric, prepare, execute, json=False)
    assert not list(registrations(open_root().history(), plan(WORDS, metric).name))


def test_what_a_trial_raises_is_not_the_sweepers() -> None:
    def attempt(batch: Sequence[Words], first: int) -> list[float | None]:
        raise ValueError("a defect of ours")

    with pytest.raises(ValueError, match="a defect of ours"):
        search(plan(WORDS, METRIC), attempt)


def test_the_first_trial_is_the_one_that_is_tried_first() -> None:
    assert first_trial(plan(WORDS, METRIC)) == tried()[0]


def prepare(words: Words) -> Composed:
    (one,) = [compose(words)]
    return Composed(one.recipe, tuple(words))


def outcome(one: Composed) -> Trained:
    """As a training would end: rates above 0.05 fail."""
    value = abs(one.recipe.optimizer.learning_rate - 0.01)
    failed = "train/x" if value > 0.04 else ""
    metrics = {} if failed else {METRIC: value}
    return Trained(one.overrides, digest(one.recipe), None, {}, metrics, failed, "not finite" if failed else "")


def test_every_trial_is_registered_before_it_is_tried(root: Root, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    words = (*WORDS, "hydra.sweeper.max_failure_rate=1.0", "hydra.sweeper.study_name=lowest")
    batches = []

    def execute(batch: Sequence[Composed]) -> list[Trained]:
        (*_, newest) = registrations(open_root().history(), "lowest")
        arms = set(newest.body.arms.values())
        assert all(arm_digest(one.recipe) in arms for one in batch)
        assert all(citation(open_root().history(), one.recipe) == newest.body.registration for one in batch)
        batches.append(len(batch))
        return [outcome(one) for one in batch]

    outcomes = search_trials(open_root(), words, METRIC, prepare, execute, json=False)
    assert batches == [2, 2, 2] and len(outcomes) == 6
    findings = examine(open_root(), "lowest")
    assert len(findings.registration.body.arms) == 6 and findings.verdict == "incomplete", "nothing was trained here"
    told = capsysbinary.readouterr()
    assert told.out.count(b"best of all") == 1 and b"marin experiment report lowest" in told.err
    before = len(list(registrations(open_root().history(), "lowest")))
    search_trials(open_root(), words, METRIC, prepare, lambda batch: [outcome(one) for one in batch], json=True)
    assert len(list(registrations(open_root().history(), "lowest"))) <= before + 3


def test_what_was_tried_once_stays_an_arm(root: Root) -> None:
    """A trial that fails the second time leads the sweeper to others: those of the first time were tried all the same."""
    words = (
        *WORDS,
        "hydra.sweeper.max_failure_rate=1.0",
        "hydra.sweeper.study_name=lowest",
        "hydra.sweeper.n_trials=16",
        "hydra.sweeper.sampler.n_startup_trials=2",
    )
    tried: list[set[str]] = []
    for wanted in (1e-4, 1e-1):

        def execute(batch: Sequence[Composed], wanted: float = wanted) -> list[Trained]:
            losses = [abs(one.recipe.optimizer.learning_rate - wanted) for one in batch]
            return [
                Trained(one.overrides, "", None, {}, {METRIC: loss}, "", "")
                for one, loss in zip(batch, losses, strict=True)
            ]

        ran = search_trials(open_root(), words, METRIC, prepare, execute, json=True)
        tried.append({arm_digest(prepare(one.overrides).recipe) for one in ran})
    (*_, newest) = registrations(open_root().history(), "lowest")
    assert tried[0] != tried[1] and set(newest.body.arms.values()) == tried[0] | tried[1]


def test_a_search_does_not_take_another_experiments_name(root: Root) -> None:
    named = (*WORDS, "hydra.sweeper.max_failure_rate=1.0", "hydra.sweeper.study_name=lowest")

    def execute(batch: Sequence[Composed]) -> list[Trained]:
        return [outcome(one) for one in batch]

    search_trials(open_root(), named, METRIC, prepare, execute, json=True)
    (first, *_) = registrations(open_root().history(), "lowest")
    for words, metric in (((*named, "hydra.sweeper.direction=maximize"), METRIC), (named, "train.loss_last")):
        with pytest.raises(UsageError, match="the name is another experiment's"):
            search_trials(open_root(), words, metric, prepare, execute, json=True)
    body = msgspec.structs.replace(first.body, experiment="mine", file="mine.py")
    open_root().append([Draft(EXPERIMENT_REGISTERED, "experiment/mine", events.write(body))])
    with pytest.raises(UsageError, match=r"the name is another experiment's.*found mine: mine\.py"):
        search_trials(open_root(), (*named[:-1], "hydra.sweeper.study_name=mine"), METRIC, prepare, execute, json=True)


def test_trials_have_one_seed(root: Root) -> None:
    def prepare_with_another(words: Words) -> Composed:
        one = prepare(words)
        return Composed(msgspec.structs.replace(one.recipe, seed=round(rate(words) * 1e6)), one.overrides)

    def execute(batch: Sequence[Composed]) -> list[Trained]:
        raise AssertionError("nothing is trained")

    with pytest.raises(UsageError, match="a seed is no hyperparameter"):
        search_trials(open_root(), WORDS, METRIC, prepare_with_another, execute, json=False)


def test_too_many_failures_end_it_and_what_was_tried_is_shown(
    root: Root, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    def execute(batch: Sequence[Composed]) -> list[Trained]:
        return [Trained(one.overrides, "", None, {}, {}, "train/x", "not finite") for one in batch]

    with pytest.raises(UsageError, match="the search ended"):
        search_trials(open_root(), WORDS, METRIC, prepare, execute, json=False)
    assert b"failed at train/x" in capsysbinary.readouterr().out
