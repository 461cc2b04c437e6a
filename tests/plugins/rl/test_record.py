"""What is stored of an update: read again as it was, and the first thing in which two differ is named."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from ledger import Store
from marin.cli.looking.show import show_data
from marin.errors import DataError, UsageError
from marin.plugins.rl.record import (
    CompletionRecord,
    PromptRecord,
    UpdateRecord,
    first_difference,
    first_of_each,
    hex_floats,
    read_record,
)
from marin.recipe.schema import Execution
from marin.verify.judges.training import training_lines
from marin.verify.segments.sampling import Selection
from tests.ledger.memory import MemoryStorage
from tests.plugins.rl.conftest import recipe_with


def completion(tokens: tuple[int, ...], reward: float = 1.0) -> CompletionRecord:
    bits = hex_floats(np.arange(len(tokens), dtype=np.float32) - 3)
    return CompletionRecord(tokens, f"text {tokens}", bits, bits, reward.hex(), (reward - 0.5).hex())


RECORD = UpdateRecord(
    4,
    (PromptRecord(8, 2, (0, 5, 6)), PromptRecord(9, 0, (0, 7))),
    (completion((11, 12)), completion((13,), 0.0), completion((14, 15, 16), 0.0), completion((17,))),
)


def changed(place: int, **changes: object) -> UpdateRecord:
    completions = list(RECORD.completions)
    completions[place] = msgspec.structs.replace(completions[place], **changes)
    return msgspec.structs.replace(RECORD, completions=tuple(completions))


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_record(RECORD.encode()) == RECORD


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (changed(1, tokens=(12,)), "completion 1 of prompt 0, position 0: recorded token 12, found token 13"),
        (changed(2, tokens=(14, 15)), "completion 0 of prompt 1, position 2: recorded no token, found token 16"),
        (changed(2, text="other"), "completion 0 of prompt 1, text: recorded other"),
        (changed(0, logprobs="0" * 16), "completion 0 of prompt 0, position 0: log-probability: recorded 00000000"),
        (changed(3, reference=""), "completion 1 of prompt 1, position 0: log-probability under the reference"),
        (changed(1, reward="\x1b[2J"), "completion 1 of prompt 0, reward: recorded \\x1b[2J, found 0x0.0p+0"),
        (changed(3, reward="0x0p+0"), "completion 1 of prompt 1, reward: recorded 0x0p+0, found 0x1.0000000000000p+0"),
        (changed(0, advantage="0x0p+0"), "completion 0 of prompt 0, advantage: recorded 0x0p+0"),
        (msgspec.structs.replace(RECORD, update=5), "update: recorded 5, found 4"),
        (msgspec.structs.replace(RECORD, completions=RECORD.completions[:3]), "completions: recorded 3, found 4"),
        (
            msgspec.structs.replace(RECORD, prompts=(PromptRecord(8, 3, (0, 5, 6)), RECORD.prompts[1])),
            "prompt 0: recorded question 3 as number 8, found 2 as 8",
        ),
    ],
)
def test_the_first_difference_is_named(other: UpdateRecord, said: str) -> None:
    assert first_difference(other.encode(), RECORD.encode()).startswith(said)


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, RECORD.encode()[:-1], b'{"update": "x"}', b"\xff"])
def test_what_is_no_record_is_said(data: bytes) -> None:
    assert read_record(data) is None
    assert first_difference(data, RECORD.encode()) == "what is stored is no record of completions"


def test_a_record_that_is_not_there_and_one_that_is_written_otherwise_are_said() -> None:
    assert first_difference(None, RECORD.encode()) == "the recorded ones are not in the store"
    assert first_difference(b" " + RECORD.encode(), RECORD.encode()) == "the record is written otherwise"


def test_people_read_prompts_first_completions_and_rewards() -> None:
    recipe, store = recipe_with(), Store(MemoryStorage())
    assert first_of_each(recipe, store, RECORD.encode()) == [
        ("0+2=", "text (11, 12)", "1"),
        ("0+0=", "text (14, 15, 16)", "0"),
    ]
    far = msgspec.structs.replace(RECORD, prompts=(PromptRecord(8, 2**50, (0, 5, 6)),))
    for data in (b"", RECORD.encode()[:-1], far.encode(), changed(0, reward="much").encode()):
        with pytest.raises(DataError, match="a record of another recipe"):
            first_of_each(recipe, store, data)


def test_what_a_train_step_saw_are_the_completions_of_its_update(capsys: pytest.CaptureFixture[str]) -> None:
    """And no sequences of the token stream, which this run never saw."""
    store = Store(MemoryStorage())
    kept = store.put_bytes(RECORD.encode()).digest
    segment = SimpleNamespace(body=SimpleNamespace(start=6, batches=[kept, kept]))
    view = SimpleNamespace(run="abcd2345", recipe=recipe_with(), segments=[segment])
    root = SimpleNamespace(store=lambda: store)
    show_data(root, view, 7, as_json=False)  # type: ignore[arg-type]
    lines = capsys.readouterr().out.splitlines()
    assert kept in lines[2] and lines[-2].split() == ['"0+2="', '"text', "(11,", '12)"', "1"]
    show_data(root, view, 7, as_json=True)  # type: ignore[arg-type]
    shown = json.loads(capsys.readouterr().out)
    assert shown["completions"][1] == {"prompt": "0+0=", "completion": "text (14, 15, 16)", "reward": "0"}
    with pytest.raises(UsageError, match="no completions are recorded of this train step"):
        show_data(root, view, 8, as_json=True)  # type: ignore[arg-type]


def test_a_sample_says_how_many_updates_were_made_again() -> None:
    """Of train steps, so many are one update; segments are what is drawn."""
    segments = [SimpleNamespace(body=SimpleNamespace(start=at, end=at + 4)) for at in (0, 4, 8)]
    run = SimpleNamespace(segments=segments, recipe=recipe_with(objective={"num_iterations": 2}))
    case: Any = SimpleNamespace(run=run, processes=1, workers=1, execution=Execution())
    first, drawn = training_lines(case, Selection((1,), 3, "sampled"), [1], (), {}, "abc")
    assert first.startswith("4 train steps (2 updates) in 1 of 3 segments executed again")
    assert drawn.startswith("1 segment drawn from 3 by the log's root abc")
