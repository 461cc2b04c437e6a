"""What an execution keeps: nothing that grows with the number of steps, whatever hangs on what; the file that holds the
rest."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import Draft, Event, StorageFailed, canonical_bytes
from marin.graph.execution.loop import Outcome
from marin.graph.rows import Rows, canonical_list
from marin.record import events
from marin.record.root import LedgerHistory, Root
from tests.marin.graph.conftest import Write

COUNTED = Path(__file__).with_name("execution_memory.py")
SMALL, LARGE = 300, 900
BYTES_A_STEP = 80
"""Below this nothing is kept of a step: one digest alone has 112 bytes. What remains are the parts of paths that Python
3.12 interns for good, a few for each commit: 20 to 50 bytes."""
BYTES_A_STEP_AT_THE_PEAK = 500
"""Caches that have a bound fill up to it meanwhile. A step that waits, with its identity and its inputs, has 2,000."""

SHAPES = {
    "side by side": "    inputs = {}",
    "in chains": '    inputs = {"last": made[-100]} if len(made) >= 100 else {}',
    "under one": '    inputs = {"first": made[0]} if made else {}',
}


@pytest.mark.long(seconds=10)
@pytest.mark.table
@pytest.mark.parametrize("shape", SHAPES)
def test_execution_adds_nothing_for_a_step_that_is_done(
    write: Write, tmp_path: Path, own_keys: Path, shape: str
) -> None:
    files: list[str] = []
    for number, size in enumerate((SMALL, SMALL, LARGE)):  # the first is for what is loaded once
        text = f"""
            def number(context):
                return context.config["n"]

            made = []
            for n in range({size}):
            {SHAPES[shape]}
                made.append(Step(f"number/{{n}}", number, {{"n": n}}, inputs, HERE))
            steps = made
        """
        files += [str(write(text, name=f"exp_{number}")), str(tmp_path / f"root-{number}")]
    done = subprocess.run([sys.executable, COUNTED, *files], stdout=subprocess.PIPE, check=True)
    _, (small, small_peak), (large, large_peak) = json.loads(done.stdout)
    assert (large - small) / (LARGE - SMALL) < BYTES_A_STEP
    assert (large_peak - small_peak) / (LARGE - SMALL) < BYTES_A_STEP_AT_THE_PEAK


def test_the_results_of_a_graph_are_read_back_as_they_were(execute: Callable[..., Outcome], root: Root) -> None:
    outcome = execute("""
        def number(context):
            return Result({"n": context.config["n"]}, metrics={"third": context.config["n"] / 3})

        one = Step("one", number, {"n": 1}, {}, HERE)
        steps = [Step("two", number, {"n": 2}, {"one": one}, HERE)]
    """)
    assert list(outcome.results) == ["one", "two"]
    assert len(outcome.results) == 2
    assert outcome.results["two"].metrics == {"third": 2 / 3}
    assert "three" not in outcome.results
    assert outcome.results.get("three") is None


@given(st.lists(st.binary(max_size=3000)))
def test_rows_are_read_as_they_were_written(written: list[bytes]) -> None:
    rows = Rows()
    places = [rows.append(row) for row in written]
    assert [rows.read(place) for place in reversed(places)] == written[::-1]
    assert list(rows) == written


MORE_THAN_IS_IN_MEMORY = [bytes(100_000)] * 20


def test_rows_have_no_name_and_go_with_their_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    rows = Rows()
    for row in MORE_THAN_IS_IN_MEMORY:
        rows.append(row)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert list(tmp_path.iterdir()) == []
    del rows
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_room_for_rows_is_said() -> None:
    rows, (soft, hard) = Rows(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(StorageFailed, match="TMPDIR"):
            for row in MORE_THAN_IS_IN_MEMORY:
                rows.append(row)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(
    st.lists(
        st.dictionaries(st.text(max_size=5), st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False))
    )
)
def test_a_list_in_pieces_is_the_list(items: list[dict[str, float]]) -> None:
    assert b"".join(canonical_list(items)) == canonical_bytes(items)


def test_a_claim_that_comes_too_late_settles_nothing_twice(
    write: Write, root: Root, execute: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps are claimed at once; meanwhile somebody else has made one of them, and the log refuses the claim,
    twice. The step that waits for both must not begin because the one has been found twice."""
    file = """
        def number(context):
            return context.config["n"] + sum(given.value for given in context.inputs.values())

        one, two = (Step(f"is/{n}", number, {"n": n}, {}, HERE) for n in (1, 2))
        steps = [Step("sum", number, {"n": 0}, {"one": one, "two": two}, HERE)]
    """
    append, interfered = Root.append, list[bool]()

    def refused(self: Root, drafts: list[Draft]) -> object:
        if len(interfered) < 2:
            interfered.append(True)
            with monkeypatch.context() as alone:
                alone.setattr(Root, "append", append)
                execute(
                    file.replace(
                        "steps = [",
                        "steps = [one] or ["
                        if len(interfered) == 1
                        else 'steps = [Step("other", number, {"n": 9}, {}, HERE)] or [',
                    )
                )
        return append(self, drafts)

    monkeypatch.setattr(Root, "append", refused)
    outcome = execute(file)
    assert outcome.failures == {}
    assert outcome.counts == {"cached": 1, "executed": 2}
    started = [event.body for _, event in root.history().events(type=events.STEP_STARTED)]
    (last,) = [body for body in started if body["address"] == "sum"]
    assert set(last["inputs"]) == {"one", "two"}
    assert root.store().read(outcome.results["sum"].output.artifact) == b"3"


@pytest.mark.long
def test_planning_reads_what_the_graph_asks_for_and_not_the_ledger(
    execute: Callable[..., Outcome], root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps that are recorded among 2,000 others: what is given out by the log does not grow with the others."""
    small = """
        def number(context):
            return context.config["n"]

        steps = [Step(f"is/{n}", number, {"n": n}, {}, HERE) for n in (1, 2)]
    """
    execute(small)
    given: list[int] = []
    found = LedgerHistory.events

    def counted(self: LedgerHistory, **asked: Any) -> Iterator[tuple[int, Event]]:
        for item in found(self, **asked):
            given.append(item[0])
            yield item

    def cost() -> int:
        given.clear()
        with monkeypatch.context() as counting:
            counting.setattr(LedgerHistory, "events", counted)
            assert execute(small).counts == {"cached": 2}
        return len(given)

    before = cost()
    execute(small.replace("(1, 2)", "range(3, 2003)"))
    leases = len(list(root.history().events(stream=events.LEASES)))
    assert before > 0
    assert cost() - before <= leases, "claims are one short event for each batch"
