"""What is of a track of BabyLM, and what is not: the track's own text, and nothing else."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ledger import Draft
from marin.errors import UsageError
from marin.execution.phases import successor
from marin.history.run import Run
from marin.history.runs import load, stream_of
from marin.plugins.evaluation.babylm.submission import check_epochs, check_track, checkpoints, words_before
from marin.recipe.schema import (
    Artifact,
    GrammarDataset,
    Initial,
    Mixture,
    MixtureDataset,
    Model,
    Recipe,
    Tokenizer,
    Tokens,
    Trainer,
    digest,
    recorded,
)
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import Root

SOME, OTHER = ("sha256:" + letter * 64 for letter in "ab")
TRACK = "strict-small"
MOST = 10_000_000


def trained(root: Root, name: str, text: str = SOME, **changed: Any) -> Run:
    """A run with a corpus of this digest, as its events say."""
    recipe = replace(Recipe(), **changed)
    started = events.RunStarted(
        run=name,
        pipeline="default",
        plan=SOME,
        recipe_digest=digest(recipe),
        recipe=recorded(recipe),
        code={},
        environment={},
    )
    output = events.Output(kind="corpus", digest=text, size=1, artifact=text)
    corpus = events.StepCompleted(
        run=name, step="corpus", identity=text, inputs={}, seconds=1.0, metrics={}, output=output
    )
    for kind, body in ((events.RUN_STARTED, started), (events.STEP_COMPLETED, corpus)):
        root.append([Draft(kind, stream_of(name), events.write(body))])
    return load(root.history(), name)


@pytest.fixture
def root(own_keys: Path, tmp_path: Path) -> Root:
    return create_root(str(tmp_path / ".marin"), origin="test.example/log")


def test_as_many_words_as_the_track_has(root: Root) -> None:
    run = trained(root, "whole")
    check_track([run], MOST, TRACK)
    check_track([run], 10 * MOST, "strict")
    with pytest.raises(UsageError, match=r"too many words.*expected 10,000,000 at most, found 10,000,001"):
        check_track([run], MOST + 1, TRACK)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("initial", {"initial": Initial(name="trained on more", model=SOME, tokenizer=SOME)}),
        ("tokenizer", {"tokenizer": Tokenizer(artifact=SOME)}),
        ("tokens", {"tokens": Tokens(artifact=Artifact(address="a", digest=SOME))}),
    ],
)
def test_what_was_made_elsewhere_is_of_no_track(root: Root, name: str, changed: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"made elsewhere.*found {name}"):
        check_track([trained(root, "elsewhere", **changed)], MOST, TRACK)


def test_an_earlier_phase_read_the_same_text(root: Root) -> None:
    last = trained(root, "last")
    check_track([trained(root, "same"), last], MOST, TRACK)
    with pytest.raises(UsageError, match=rf"other text.*run other.*expected {SOME}, found {OTHER}"):
        check_track([trained(root, "other", OTHER), last], MOST, TRACK)


def test_ten_epochs_at_most(root: Root) -> None:
    """Ten train steps of 8 sequences of 100 tokens: ten epochs of 800 words, one for each token."""
    run = trained(root, "ten", model=Model(seq_len=100), trainer=Trainer(num_steps=10, batch_size=8))
    check_epochs(run, 800, Fraction(1))
    with pytest.raises(
        UsageError, match=r"too many epochs.*expected 10 epochs at most: 7,990 words, found 8,000 words"
    ):
        check_epochs(run, 799, Fraction(1))


@pytest.mark.parametrize(
    ("words", "steps", "there"),
    [
        (9_900_000, 1980, True),  # 1980 train steps of 50,000 words are ten epochs
        (9_900_000, 1979, False),  # one more had fitted
        (9_400_000, 1880, False),  # ten epochs of another text than the track's
        (100_000, 20, False),
    ],
)
def test_the_last_checkpoint_is_ten_epochs_of_what_is_not_held_out(words: int, steps: int, there: bool) -> None:
    recipe = Recipe(model=Model(seq_len=1000), trainer=Trainer(num_steps=steps, batch_size=50))
    facts = [SimpleNamespace(body=SimpleNamespace(step=step)) for step in (0, 10, steps)]
    run: Any = SimpleNamespace(recipe=recipe, checkpoints=facts)
    assert (checkpoints(run, Fraction(1), TRACK, words).get("chck_100M") == (steps, steps * 50_000)) is there
    assert "chck_100M" not in checkpoints(run, Fraction(1), TRACK)


def test_words_of_earlier_phases_are_those_of_their_own_cut(root: Root) -> None:
    """The first phase read ten epochs of 800 words in sequences of 100; the second reads in sequences of 1, eight of them."""
    first = Recipe(model=Model(seq_len=100), trainer=Trainer(num_steps=10, batch_size=8))
    second = successor(first, replace(first, model=Model(seq_len=1), trainer=Trainer(num_steps=1, batch_size=8)))
    phases: list[Any] = [
        SimpleNamespace(
            run=name,
            recipe=recipe,
            steps={"tokens": SimpleNamespace(metrics={"train_tokens": 800.0})},
            checkpoints=[SimpleNamespace(body=SimpleNamespace(step=recipe.last_step))],
        )
        for name, recipe in (("first", first), ("second", second))
    ]
    assert words_before(phases[:1], 800) == 0 and words_before(phases, 800) == 8000
    check_epochs(phases[0], 800, Fraction(1), words_before(phases[:1], 800))
    with pytest.raises(UsageError, match=r"too many epochs.*8,000 words, found 8,008 words"):
        check_epochs(phases[1], 800, Fraction(1), words_before(phases, 800))


def test_a_state_of_a_later_phase_is_not_the_first_of_what_an_earlier_one_saw() -> None:
    recipe = Recipe(model=Model(seq_len=1000), trainer=Trainer(num_steps=20, batch_size=50))
    run: Any = SimpleNamespace(recipe=recipe, checkpoints=[SimpleNamespace(body=SimpleNamespace(step=20))])
    found = checkpoints(run, Fraction(1), TRACK, 0, Fraction(1_500_000))
    assert found == {"chck_2M": (20, 2_500_000)}


def test_a_mixture_is_of_no_track(root: Root) -> None:
    parts = {name: GrammarDataset(name=name) for name in ("once", "often")}
    mixed = trained(
        root, "mixed", dataset=MixtureDataset(parts=parts), mixture=Mixture(weights={"once": 1.0, "often": 100.0})
    )
    with pytest.raises(UsageError, match=r"more often than others.*found parts often, once"):
        check_track([mixed], MOST, TRACK)
