"""The catalog: what it finds is what the runs themselves say, however often and in whatever pieces the log was
folded."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import Draft
from marin.errors import UsageError
from marin.history import runs
from marin.history.catalog import open_catalog
from marin.history.runs import stream_of
from marin.history.table.metric_query import answer, parse
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import Root


def digest(character: str) -> str:
    return "sha256:" + character * 64


def begin(run: str, **changes: Any) -> Draft:
    values: dict[str, Any] = {
        "run": run,
        "pipeline": "default",
        "plan": digest("a"),
        "recipe_digest": digest("b"),
        "recipe": {
            "dataset": {"name": "grammar"},
            "trainer": {"num_steps": 4},
            "model": {"architecture": "llama", "num_layers": 2, "hidden_dim": 32},
        },
        "code": {},
        "environment": {},
    }
    return Draft(events.RUN_STARTED, stream_of(run), events.write(events.RunStarted(**(values | changes))))


def output(character: str, step: str) -> events.Output:
    return events.Output(kind=step, digest=digest(character), size=5, artifact=digest(character))


def done(run: str, step: str, character: str, **metrics: float) -> Draft:
    return Draft(
        events.STEP_COMPLETED,
        stream_of(run),
        events.write(
            events.StepCompleted(
                run=run,
                step=step,
                identity=digest("1"),
                inputs={},
                output=output(character, step),
                seconds=1.0,
                metrics={name: value.hex() for name, value in metrics.items()},
            )
        ),
    )


def taken(run: str, step: str, character: str, at: int) -> Draft:
    return Draft(
        events.STEP_CACHED,
        stream_of(run),
        events.write(
            events.StepCached(
                run=run, step=step, identity=digest("1"), inputs={}, output=output(character, step), completed_at=at
            )
        ),
    )


def failed(run: str) -> Draft:
    return Draft(
        events.STEP_FAILED,
        stream_of(run),
        events.write(events.StepFailed(run=run, step="train", identity=digest("1"), error="no")),
    )


@pytest.fixture
def root(tmp_path: Path, own_keys: Path) -> Root:
    return create_root(str(tmp_path / ".marin"), origin="marin.test/catalog")


LOG = [
    begin("aaa1"),
    done("aaa1", "train", "1", loss_last=4.5),
    done("aaa1", "evaluate", "2", perplexity=12.31, loss=2.5),
    begin("bbb2"),
    taken("bbb2", "train", "1", 1),
    done("bbb2", "evaluate", "3", perplexity=12.27, loss=2.6),
    begin("ccc3"),
    failed("ccc3"),
    begin("ddd4"),
    failed("ddd4"),
    done("ddd4", "train", "4", loss_last=9.0),
]


def contents(root: Root) -> object:
    with open_catalog(root) as catalog:
        return (catalog.runs(), catalog.results(), catalog.all_metrics(), catalog.metric_names(), catalog.checkpoints())


def test_it_says_what_the_runs_say(root: Root) -> None:
    root.append(LOG)
    with open_catalog(root) as catalog:
        listed, metrics = catalog.runs(), catalog.all_metrics()
    for view, run in zip(runs.load_all(root.history()), listed, strict=True):
        assert (run.run, run.status, run.started, run.plan) == (view.run, view.status, view.started.time, view.plan)
        assert metrics.get(run.run, {}) == view.metrics
    assert [run.status for run in listed] == ["open", "open", "failed", "open"]
    assert {run.pipeline for run in listed} == {"pipeline"}, "and not default, as it was recorded"


@pytest.mark.parametrize("pieces", [[1] * len(LOG), [4, 1, 2, 4], [6, 5]])
def test_pieces_give_what_the_whole_gives(root: Root, tmp_path: Path, pieces: list[int]) -> None:
    rest = list(LOG)
    for size in pieces:
        root.append(rest[:size])
        del rest[:size]
        contents(root)
    kept = contents(root)
    for file in root.views().glob("catalog-*"):
        file.unlink()
    times = [run.started for run in kept[0]]  # type: ignore[index]
    assert contents(root) == kept and len(times) == 4


def test_a_damaged_or_foreign_file_is_folded_again(root: Root, tmp_path: Path) -> None:
    root.append(LOG)
    kept = contents(root)
    (file,) = root.views().glob("catalog-events.sqlite")
    file.write_bytes(b"no database at all" * 100)
    assert contents(root) == kept
    other = create_root(str(tmp_path / "other"), origin="marin.test/other")
    other.append([begin("zzz9")])
    contents(other)
    (foreign,) = other.views().glob("catalog-events.sqlite")
    for stale in root.views().glob("catalog-*"):
        stale.unlink()
    file.write_bytes(foreign.read_bytes())
    assert contents(root) == kept


def test_who_made_a_digest_and_the_steps_of_a_name(root: Root) -> None:
    root.append(LOG)
    with open_catalog(root) as catalog:
        makers = [(made.run, made.index, made.completed_at) for made in catalog.made(digest("1"))]
        assert makers == [("aaa1", 1, 1), ("bbb2", 4, 1)]
        assert [made.run for made in catalog.named("evaluate")] == ["bbb2", "aaa1"]
        assert {made.run for made in catalog.by_identity("sha256:11")} == {"aaa1", "bbb2", "ddd4"}
        assert catalog.run_ids("b") == ["bbb2"] and catalog.run_ids() == ["aaa1", "bbb2", "ccc3", "ddd4"]


@pytest.mark.parametrize(
    ("text", "found", "exact"),
    [
        ("eval/perplexity=12.3", ["aaa1", "bbb2"], True),
        ("evaluate.perplexity=12.31", ["aaa1"], True),
        ("perplexity=12.27", ["bbb2"], True),
        ("eval/perplexity=13", ["aaa1", "bbb2"], False),
        ("train.loss_last=4.5", ["aaa1", "bbb2"], True),
        ("loss_last", ["ddd4", "bbb2", "aaa1"], True),
    ],
)
def test_a_number_as_a_report_has_it(root: Root, text: str, found: list[str], exact: bool) -> None:
    root.append(LOG)
    with open_catalog(root) as catalog:
        (only,) = answer(catalog, parse(text))
    assert [number.run for number in only.found] == found and only.exact is exact


def test_a_wrong_name_or_number_is_named(root: Root) -> None:
    root.append(LOG)
    with open_catalog(root) as catalog, pytest.raises(UsageError, match=r"did you mean evaluate.perplexity\?"):
        answer(catalog, parse("evaluate/perplexiti=3"))
    for text in ("perplexity=abc", "perplexity=nan", "=3", "perplexity=inf"):
        with pytest.raises(UsageError, match="not a number"):
            parse(text)


@given(
    st.decimals(min_value="-1e6", max_value="1e6", allow_nan=False, allow_infinity=False, places=4), st.integers(0, 4)
)
def test_a_number_rounds_to_the_one_that_is_asked_for(value: Any, places: int) -> None:
    written = f"{value:.{places}f}"
    query = parse(f"loss={written}")
    assert query.value is not None
    assert query.low <= float(value) <= query.high
    assert query.tolerance == pytest.approx(0.5 * 10**-places)


@pytest.mark.parametrize("kind", ["", "catalog-"])
def test_runs_are_listed_while_a_stopped_process_holds_what_is_folded(
    root: Root, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Stopped within a transaction, it holds the file until it goes on."""
    root.append(LOG)
    with open_catalog(root) as catalog:
        listed = catalog.run_ids()
    monkeypatch.setattr("ledger.log.projection._WAIT_SECONDS", 0.05)
    monkeypatch.setattr("marin.history.catalog._WAIT", 0.05)
    path = root.projection_path()
    assert path is not None and listed
    held = sqlite3.connect(path.with_name(f"{kind}{path.name}"), isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    with open_catalog(root) as catalog:
        assert catalog.run_ids() == listed
    held.execute("ROLLBACK")
