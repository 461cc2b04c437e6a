"""Attribution by leaving out: what is measured is the training without the documents, to the bit, and is measured once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sessions import new_cache

from marin.errors import UsageError
from marin.plugins.unlearning.attribution.groups import read_groups
from marin.plugins.unlearning.kinds import attribution_stream
from marin.record.root import open_root
from tests.e2e.conftest import Project
from tests.e2e.training.unlearned import LATE, READ, Unlearned


def attributed(project: Project, run: str, *more: str, code: int = 0) -> Any:
    done = project.marin("attribute", run, "--json", *more)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def measured(unlearned: Unlearned, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Any, Path]:
    """The unlearned document, one that no train step read, and both together, left out; as a data set too."""
    base = tmp_path_factory.mktemp("attributed")
    project = unlearned.project.copy(base)
    used = json.loads(project.forked(READ, unlearned.run).stdout)["used"]
    unread = next(name for name, steps in sorted(used.items()) if not steps)
    lines = [json.dumps({"id": unlearned.document}), unread, f"{unread} {unlearned.document}"]
    (project.folder / "documents").write_text("\n".join(lines))
    (project.folder / "questions.jsonl").write_text('{"text": "The farmer sleeps."}\n{"text": "A dog barks."}\n')
    asked = ("--documents", "documents", "--on", "questions.jsonl", "--out", str(base / "dataset"))
    return project, attributed(project, unlearned.run, *asked), base / "dataset"


@pytest.mark.long(together="attribution", seconds=45)
def test_it_is_the_training_without_the_document(unlearned: Unlearned, measured: tuple[Project, Any, Path]) -> None:
    """The state is that of the run that unlearned it, which is that of a training from the start without it."""
    _, told, _ = measured
    alone, unread, both = told["groups"]
    forked, before = unlearned.view(unlearned.forked), unlearned.view(unlearned.run)
    assert alone["end_state"] == forked.output("train").digest
    assert (alone["first_use"], alone["executed_from"], alone["same_tokenizer"]) == (LATE, 4, True)
    assert told["state"] == unread["end_state"] == before.output("train").digest
    assert unread["change"] == {"validation": 0.0, "questions": 0.0} and unread["first_use"] is None
    assert both["end_state"] == alone["end_state"] and both["losses"] == alone["losses"]
    assert all(value != 0.0 for value in alone["change"].values())


@pytest.mark.long(together="attribution")
def test_the_data_set_says_what_was_measured(measured: tuple[Project, Any, Path]) -> None:
    project, told, folder = measured
    rows = [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]
    assert rows == told["groups"]
    sums, run = np.load(folder / "sums.npy"), json.loads((folder / "run.json").read_text())
    counts = [len(one["documents"]) for one in run["sets"].values()]
    assert sums.shape == (4, sum(counts)) and sums.dtype == np.float64
    assert (sums[1:, counts[0] :].sum(axis=1) - sums[0, counts[0] :].sum() != 0).tolist() == [True, False, True]
    history = open_root(str(project.root)).history()
    events = [event.body for _, event in history.events(stream=attribution_stream(run["run"]))]
    assert sorted(event["documents"] for event in events) == sorted([[], *(row["documents"] for row in rows)])


@pytest.mark.long(together="attribution")
def test_it_is_measured_once_and_comes_out_the_same_again(
    unlearned: Unlearned, measured: tuple[Project, Any, Path]
) -> None:
    project, told, _ = measured
    size = open_root(str(project.root)).reader().checkpoint().size
    asked = ("--documents", "documents", "--on", "questions.jsonl")
    assert attributed(project, unlearned.run, *asked) == told
    assert attributed(project, unlearned.run, *asked, "--again") == told
    assert open_root(str(project.root)).reader().checkpoint().size == size


@pytest.mark.long(together="attribution")
def test_a_forged_measurement_is_found(
    unlearned: Unlearned, measured: tuple[Project, Any, Path], tmp_path: Path
) -> None:
    """Somebody wrote another loss into the log; anyone who executes it again finds that."""
    project = measured[0].copy(tmp_path)
    history = open_root(str(project.root)).history()
    *_, (_, event) = history.events(stream=attribution_stream(unlearned.run))
    body = dict(event.body)
    body["sets"]["questions"] = body["sets"]["questions"] | {"loss": (1.0).hex()}
    (project.folder / "body.json").write_text(json.dumps(body))
    command = ("ledger", "append", "--type", event.type, "--stream", event.stream, "--body", "body.json")
    assert project.marin(*command).returncode == 0
    done = project.marin("attribute", unlearned.run, "--documents", "documents", "--on", "questions.jsonl", "--again")
    assert done.returncode == 1 and "losses of questions: expected 0x1.0000000000000p+0" in done.stderr
    stranger = replace(project, home=tmp_path / "stranger")
    new_cache(stranger.home / "cache")
    asked = ("--documents", "documents", "--on", "questions.jsonl", "--no-record")
    done = stranger.marin("attribute", unlearned.run, *asked)
    assert done.returncode == 1 and "losses of questions: expected 0x1.0000000000000p+0" in done.stderr, done.stdout


@pytest.mark.long(together="attribution")
def test_what_cannot_be_attributed(unlearned: Unlearned, tmp_path: Path) -> None:
    for text, says in (
        ("0" * 64, "a document that is not in the training data"),
        (unlearned.held_out, "it is held out: nothing is trained on it"),
        ("", "no documents to leave out"),
        ('{"id": 3}', "not a group of documents"),
        ('["a"', "not a group of documents"),
    ):
        (tmp_path / "documents").write_text(text)
        done = unlearned.project.marin("attribute", unlearned.run, "--documents", str(tmp_path / "documents"))
        assert done.returncode == 2 and says in done.stderr, done.stderr
    (tmp_path / "documents").write_text(unlearned.document)
    done = unlearned.project.marin("attribute", unlearned.forked, "--documents", str(tmp_path / "documents"))
    assert done.returncode == 2 and "a document that is excluded already" in done.stderr


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("b a\n\nb\na b\n", [("a", "b"), ("b",)]),
        ('{"id": "c", "split": "validation"}\n{"id": "d", "split": "train"}', [("d",)]),
        ('"a"\n["b", "a", "a"]\n{"id": "c", "source": "x"}', [("a",), ("a", "b"), ("c",)]),
    ],
)
def test_groups_of_a_file(tmp_path: Path, text: str, groups: list[tuple[str, ...]]) -> None:
    (tmp_path / "documents").write_text(text)
    assert read_groups(tmp_path / "documents") == groups
    with pytest.raises(UsageError, match="cannot be read"):
        read_groups(tmp_path)
