"""`marin run RUN archive|describe|tag`: events beside the run, which lists follow and no verdict looks at."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import marin as library
from ledger import Draft
from marin.history.labels import label_stream
from marin.history.runs import stream_of
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.folding.intents import Lifecycle, Tags, TagsGone
from marin.record import events
from marin.record.root import open_root

Marin = Any


def second(run: str) -> str:
    """Another run of the same beginning, begun later."""
    root = open_root()
    ((_, first),) = list(root.history().events(type=events.RUN_STARTED))
    root.append([Draft(events.RUN_STARTED, stream_of("zzzz2345"), {**first.body, "run": "zzzz2345"})])
    return "zzzz2345"


def test_an_archived_run_leaves_lists_and_never_the_log(marin: Marin, run: str) -> None:
    other, before = second(run), list(open_root().history().events(stream=stream_of(run)))
    assert marin("show", "latest", "--json").json["run"] == other
    assert (
        marin("run", other, "archive").out
        == f"{other}: archived: lists leave it out, the log and `marin show` have it\n"
    )
    assert [line["run"] for line in marin("ls", "--json").json] == [run]
    assert [(line["run"], line["archived"]) for line in marin("ls", "--archived", "--json").json] == [
        (run, False),
        (other, True),
    ]
    assert [line.rpartition("  ")[2] for line in marin("ls", "--archived").out.splitlines()[1:]] == [
        "open",
        "open · archived",
    ]
    assert marin("run", run, "archive").status == 0
    assert marin("ls").err == "no run but 2 archived: `marin ls --archived`\n"
    assert marin("run", run, "restore").status == 0
    assert list(library.open().runs().index) == [run]
    assert list(library.open().runs(archived=True).index) == [run, other]
    assert marin("show", "latest", "--json").json["run"] == run
    assert "archived  yes: lists leave it out" in marin("show", other).out
    assert marin("run", other, "restore").out == f"{other}: no labels\n"
    assert marin("show", "latest", "--json").json["run"] == other
    assert list(open_root().history().events(stream=stream_of(run))) == before


def test_what_is_said_of_a_run_is_shown_and_the_last_word_holds(marin: Marin, run: str) -> None:
    assert marin("run", run, "describe", "warm-up was too short").status == 0
    assert marin("run", run, "tag", "team=data", "baseline").status == 0
    told = marin("run", run[:3], "tag", "team=models", "--json").json
    assert told == {
        "run": run,
        "archived": False,
        "description": "warm-up was too short",
        "tags": {"team": "models", "baseline": ""},
    }
    assert marin("run", run, "untag", "baseline", "--json").json["tags"] == {"team": "models"}
    shown = marin("ls", "--columns", "run,tags,description").out.splitlines()
    assert shown[1].split(None, 2) == [run, "team=models", "warm-up was too short"]
    assert marin("show", run, "--json").json["tags"] == {"team": "models"}
    seen = library.open().run(run)
    assert (seen.description, seen.tags) == ("warm-up was too short", {"team": "models"})
    assert library.open().runs()["tag.team"].to_list() == ["models"]


def test_saying_again_what_holds_is_no_event(marin: Marin, run: str) -> None:
    marin("run", run, "tag", "team=data")
    size = open_root().reader().checkpoint().size
    assert marin("run", run, "tag", "team=data").status == 0
    assert marin("run", run, "restore").status == 0
    assert open_root().reader().checkpoint().size == size


def test_a_tag_that_is_not_there_is_no_tag_to_take_off(marin: Marin, run: str) -> None:
    refused = marin("run", run, "untag", "nope")
    assert refused.status == 2 and "no such tag" in refused.err and "it has none" in refused.err
    marin("run", run, "tag", "team=data", "baseline")
    size = open_root().reader().checkpoint().size
    refused = marin("run", run, "untag", "team", "basline")
    assert refused.status == 2 and "did you mean baseline?" in refused.err
    assert open_root().reader().checkpoint().size == size, "all or nothing"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("tag", "marin.verified=PASS"), "not verified, marin.… or mlflow.…"),
        (("tag", "mlflow.user=x"), "not verified, marin.… or mlflow.…"),
        (("tag", "a b=1"), "write NAME=VALUE"),
        (("tag",), "expected NAME=VALUE"),
        (("describe", "two", "words"), "stands in quotes"),
        (("describe", "x" * 5000), "at most 4000 letters"),
        (("archive", "now"), "expected nothing after it"),
        (("archiv",), "did you mean archive?"),
    ],
)
def test_what_is_no_label_is_refused(marin: Marin, run: str, given: tuple[str, ...], told: str) -> None:
    size = open_root().reader().checkpoint().size
    refused = marin("run", run, *given)
    assert refused.status == 2 and told in refused.err
    assert open_root().reader().checkpoint().size == size


def test_mlflow_is_told_and_labels_in_another_stream_say_nothing(marin: Marin, run: str) -> None:
    root = open_root()
    fold = Fold(root.verifier.name, own=root.reader())
    list(fold.apply_all(root.history().events()))
    marin("run", run, "tag", "team=data")
    marin("run", run, "archive")
    marin("run", run, "untag", "team")
    forged = events.RunLabelled(run=run, archived=False, tags={"team": "forged"})
    root.append([Draft(events.RUN_LABELLED, label_stream("elsewhere"), events.write(forged))])
    size = fold.runs[run].at
    intents = [
        intent for index, event in root.history().events() if index > size for intent in fold.apply(index, event)
    ]
    mine = fold.ids.run(run)
    assert Tags(mine, {"team": "data"}) in intents and TagsGone(mine, ["team"]) in intents
    stages = {(intent.run, intent.stage) for intent in intents if isinstance(intent, Lifecycle)}
    assert stages == {(fold.ids.run(run, step), "deleted") for step in ("", "train", "evaluate", "export")}
    assert marin("show", run, "--json").json["archived"] is True


def test_a_run_of_equal_bytes_points_at_the_one_that_was_verified(marin: Marin, run: str, root: Path) -> None:
    opened = open_root()
    found = dict(enumerate(event for _, event in opened.history().events(stream=stream_of(run))))
    other = "zzzz2345"
    copies = [
        Draft(event.type, stream_of(other), {**event.body, "run": other})
        for event in found.values()
        if event.type in (events.RUN_STARTED, events.STEP_COMPLETED)
    ]
    opened.append(copies)
    for name in (run, other):
        done = events.RunCompleted(run=name, outputs={}, metrics={})
        opened.append([Draft(events.RUN_COMPLETED, stream_of(name), events.write(done))])
    checkpoint = opened.reader().checkpoint()
    replayed = events.ReplayCompleted(
        run=run,
        verdicts=dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS"),
        details={},
        training={"mode": "full"},
        first_divergence=None,
        log_checkpoint={"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()},
        environment={},
    )
    opened.append([Draft(events.REPLAY_COMPLETED, f"replay/{run}", events.write(replayed))])
    words = {line["run"]: line["same_as"] for line in marin("ls", "--json").json}
    assert words == {run: None, other: run}
    assert [line.split()[-3:] for line in marin("ls", "--columns", "run,verified").out.splitlines()[2:]] == [
        ["PASS", "as", run]
    ]
    assert re.search(rf"^verified +PASS as {run}$", marin("show", other).out, re.M)
    assert [marin("show", name, "--json").json["same_as"] for name in (other, run)] == [run, None]
    assert re.search(rf"^verified +PASS as {run}$", marin("show", other, "--summary").out, re.M)
    fold = Fold(opened.verifier.name, own=opened.reader())
    told = [intent for intent in fold.apply_all(opened.history().events()) if isinstance(intent, Tags)]
    ends = {intent.run: intent.values["marin.verified"] for intent in told if "marin.verified" in intent.values}
    assert ends[fold.ids.run(other)] == f"PASS as {run}"
    assert ends[fold.ids.run(run)].startswith("PASS 20")
    more = events.StepFailed(run=run, step="train", identity="sha256:" + "1" * 64, error="later")
    opened.append([Draft(events.STEP_FAILED, stream_of(run), events.write(more))])
    assert {line["same_as"] for line in marin("ls", "--json").json} == {None}, "what went on passes no more"


def test_another_loss_or_number_beside_equal_bytes_has_no_part_in_the_verdict(marin: Marin, run: str) -> None:
    opened = open_root()
    found = [event for _, event in opened.history().events(stream=stream_of(run))]
    kept = (events.RUN_STARTED, events.STEP_COMPLETED, events.TRAIN_SEGMENT)

    def copy_of(name: str, change: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        bodies = [
            (event.type, change(event.type, {**event.body, "run": name})) for event in found if event.type in kept
        ]
        opened.append([Draft(kind, stream_of(name), body) for kind, body in bodies])
        done = events.RunCompleted(run=name, outputs={}, metrics={})
        opened.append([Draft(events.RUN_COMPLETED, stream_of(name), events.write(done))])

    def number(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        return (
            body | {"metrics": {"loss": (0.5).hex()}} if body.get("step") == "evaluate" and "output" in body else body
        )

    def loss(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        return body | {"losses": [(0.5).hex() for _ in body["losses"]]} if kind == events.TRAIN_SEGMENT else body

    copy_of("eqal2345", lambda _, body: body)
    copy_of("nmbr2345", number)
    copy_of("lose2345", loss)
    done = events.RunCompleted(run=run, outputs={}, metrics={})
    opened.append([Draft(events.RUN_COMPLETED, stream_of(run), events.write(done))])
    checkpoint = opened.reader().checkpoint()
    replayed = events.ReplayCompleted(
        run=run,
        verdicts=dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS"),
        details={},
        training={"mode": "full"},
        first_divergence=None,
        log_checkpoint={"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()},
        environment={},
    )
    opened.append([Draft(events.REPLAY_COMPLETED, f"replay/{run}", events.write(replayed))])
    same = {run: None, "eqal2345": run, "nmbr2345": None, "lose2345": None}
    assert {line["run"]: line["same_as"] for line in marin("ls", "--json").json} == same
    fold = Fold(opened.verifier.name, own=opened.reader())
    told = [intent for intent in fold.apply_all(opened.history().events()) if isinstance(intent, Tags)]
    ends = {intent.run: intent.values["marin.verified"] for intent in told if "marin.verified" in intent.values}
    assert [ends[fold.ids.run(name)] for name in list(same)[1:]] == [f"PASS as {run}", "never", "never"]


@pytest.mark.parametrize(
    "name",
    [
        "marin.verified",
        "Marin.Verified",
        "m\u0430rin.verified",
        "ma\u200brin.verified",
        "verified",
        "mlflow.note.content",
    ],
)
def test_a_label_of_a_copied_log_is_no_verdict(marin: Marin, run: str, name: str) -> None:
    label = events.RunLabelled(run=run, tags={name: "PASS 2030-01-01"})
    opened = open_root()
    opened.append([Draft(events.RUN_LABELLED, label_stream(run), events.write(label))])
    (listed,) = [line for line in marin("ls", "--json").json if line["run"] == run]
    assert listed["tags"] == {f"label:{name}": "PASS 2030-01-01"}
    assert library.open().run(run).tags == {f"label:{name}": "PASS 2030-01-01"}
    fold = Fold(opened.verifier.name, own=opened.reader())
    told = [intent for intent in fold.apply_all(opened.history().events()) if isinstance(intent, Tags)]
    assert not any(
        "2030" in value for intent in told for key, value in intent.values.items() if not key.startswith("label:")
    )
    gone = events.RunLabelled(run=run, untagged=[name])
    opened.append([Draft(events.RUN_LABELLED, label_stream(run), events.write(gone))])
    assert [line["tags"] for line in marin("ls", "--json").json if line["run"] == run] == [{}]


def test_what_a_loop_is_tagged_with_is_a_tag_of_its_run(marin: Marin, run: str) -> None:
    """It was a key of the recipe alone: no filter, no list and no page had it as a tag."""
    with library.start_run(
        "mine", recipe={"lr": 0.1}, tags={"team": "course", "marin.verified": "PASS 2030-01-01"}
    ) as loop:
        loop.log(0, loss=1.0)
    tags = {"team": "course", "label:marin.verified": "PASS 2030-01-01"}
    (listed,) = [line for line in marin("ls", "--json").json if line["run"] == loop.id]
    assert listed["tags"] == library.open().run(loop.id).tags == marin("show", loop.id, "--json").json["tags"] == tags
    assert not any(key.startswith("loop.tags") for key in listed["differs"]), "a label is nothing that a run did"
    assert [line["run"] for line in marin("ls", "--filter", "tags.team = course", "--json").json] == [loop.id]
    root = open_root()
    fold = Fold(root.verifier.name, own=root.reader())
    told = [one for one in fold.apply_all(root.history().events()) if isinstance(one, Tags)]
    mine = {key: value for one in told if one.run == fold.ids.run(loop.id) for key, value in one.values.items()}
    assert mine["team"] == "course" and mine["marin.verified"] == "never"
    assert marin("run", loop.id, "untag", "team", "--json").json["tags"] == {"label:marin.verified": "PASS 2030-01-01"}
    assert marin("ls", "--filter", "tags.team = course", "--json").json == []
