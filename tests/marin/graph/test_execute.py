"""The executor on real roots: what is executed, what is a hit, what a failure takes down, what is recorded."""

from __future__ import annotations

import json
import os
import pty
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from marin.graph.execution.loop import Outcome, execute_graph
from marin.graph.files import load_graph
from marin.kinds.families.graph import ARTIFACT_ADOPTED, GRAPH_COMPLETED, GRAPH_STARTED, STEP_CHECKED
from marin.record import events
from marin.record.root import Root
from tests.marin.graph.conftest import HEAD, Write

Execute = Callable[..., Outcome]
Tally = Callable[[], list[str]]

TWO = """
    def count(context):
        tally("count")
        return {"letters": context.config["letters"]}

    def tell(context):
        tally("tell")
        (context.out / "report.md").write_text(f"{context.inputs['counts'].value['letters']} letters")
        return Result(kind="report", metrics={"letters": context.inputs["counts"].value["letters"]})

    counts = Step("counts/x", count, {"letters": 26}, resources=HERE)
    steps = [Step("report/x", tell, {}, {"counts": counts}, HERE)]
"""


def recorded(root: Root, kind: str) -> list[dict[str, object]]:
    return [dict(event.body) for _, event in root.reader().events() if event.type == kind]


def actions(outcome: Outcome) -> dict[str, str]:
    return {address: item.action for address, item in outcome.results.items()}


def test_executed_once_and_then_a_hit(execute: Execute, root: Root, tally: Tally) -> None:
    first = execute(TWO)
    assert actions(first) == {"counts/x": "executed", "report/x": "executed"}
    report = first.results["report/x"]
    with root.store().open_file(report.output.artifact, "report.md") as file:
        assert file.read() == b"26 letters"
    assert (report.output.kind, report.metrics) == ("report", {"letters": 26.0})
    size = root.reader().checkpoint().size
    second = execute(TWO)
    assert actions(second) == {"counts/x": "cached", "report/x": "cached"}
    assert tally() == ["count", "tell"]
    assert root.reader().checkpoint().size == size, "nothing happened, so nothing is recorded"


def test_the_graph_is_recorded_with_all_its_results(execute: Execute, root: Root) -> None:
    outcome = execute(TWO)
    (started,), (completed,) = recorded(root, GRAPH_STARTED), recorded(root, GRAPH_COMPLETED)
    assert (started["name"], started["steps"], started["ends"]) == ("exp_test", 2, ["report/x"])
    assert (completed["outcome"], completed["counts"], completed["failed"]) == ("completed", {"executed": 2}, [])
    rows = json.loads(root.store().read(str(completed["results"])))
    assert [row["address"] for row in rows] == ["counts/x", "report/x"]
    assert rows[1]["completed_at"] == outcome.results["report/x"].completed_at
    assert root.reader().event(rows[1]["completed_at"]).type == events.STEP_COMPLETED
    begun = recorded(root, events.STEP_STARTED)
    assert [item["address"] for item in begun] == ["counts/x", "report/x"]
    assert all(root.store().read(str(item["code"])) for item in begun), "the list of code files is kept"


def test_a_change_executes_what_depends_on_it_and_an_equal_result_nothing_more(execute: Execute, tally: Tally) -> None:
    execute(TWO)
    execute(TWO.replace('"letters": 26}', '"letters": 27}'))
    assert tally() == ["count", "tell"] * 2
    # other code, equal result: what depends on it sees the same content
    outcome = execute(TWO.replace('return {"letters"', 'letters = 1; return {"letters"'))
    assert actions(outcome) == {"counts/x": "executed", "report/x": "cached"}


def test_a_result_is_believed_for_its_bytes_only(execute: Execute, root: Root, tally: Tally) -> None:
    digest = execute(TWO).results["counts/x"].output.digest
    tail = digest.removeprefix("sha256:")[4:]
    (path,) = [file for file in Path(root.location).rglob("*") if file.is_file() and tail in file.name]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"26", b"62"))
    again = execute(TWO)
    assert actions(again) == {"counts/x": "executed", "report/x": "cached"}
    assert tally() == ["count", "tell", "count"]
    assert root.store().verify(digest) == []


FAILING = """
    def good(context):
        tally(context.address)
        return 1

    def bad(context):
        tally(context.address)
        raise ValueError("no such luck")

    a = Step("a", bad, {}, {}, HERE)
    b = Step("b", good, {"n": 1}, {"a": a}, HERE)
    c = Step("c", good, {"n": 2}, {"b": b}, HERE)
    d = Step("d", good, {"n": 3}, {}, HERE)
    steps = [c, Step("e", good, {"n": 4}, {"d": d}, HERE)]
"""


def test_a_failed_step_takes_down_its_dependents_only(execute: Execute, root: Root, tally: Tally) -> None:
    outcome = execute(FAILING)
    assert actions(outcome) == {"d": "executed", "e": "executed"}
    assert {name: item.because for name, item in outcome.failures.items()} == {"a": "", "b": "a", "c": "a"}
    assert "ValueError: no such luck" in outcome.failures["a"].error
    assert outcome.counts == {"executed": 2, "failed": 1, "skipped": 2}
    (failed,) = recorded(root, events.STEP_FAILED)
    assert (failed["address"], failed["lasting"]) == ("a", True)
    again = execute(FAILING)
    assert "it failed before" in again.failures["a"].error
    assert tally().count("a") == 1
    execute(FAILING, force_failed=True)
    assert tally().count("a") == 2
    healed = execute(FAILING.replace('raise ValueError("no such luck")', "return 2"))
    assert healed.failures == {}
    assert actions(healed)["d"] == "cached"


def test_retries_by_policy(execute: Execute, tally: Tally) -> None:
    text = """
        def flaky(context):
            tally("flaky")
            if TALLY.read_text().count("flaky") < 3:
                raise OSError("not yet")
            return 1

        steps = [Step("flaky", flaky, {}, {}, Resources(in_process=%s, retries=2))]
    """
    assert actions(execute(text % True)) == {"flaky": "executed"}
    assert tally() == ["flaky"] * 3
    outcome = execute((text % False).replace("< 3", "< 5"))
    assert actions(outcome) == {"flaky": "executed"}, outcome.failures
    assert tally() == ["flaky"] * 5


def test_force_executes_what_has_a_result(execute: Execute, tally: Tally) -> None:
    execute(TWO)
    assert actions(execute(TWO, force=True)) == {"counts/x": "executed", "report/x": "executed"}
    assert tally() == ["count", "tell"] * 2


def test_files_values_and_single_files_as_inputs(execute: Execute, root: Root) -> None:
    text = """
        def many(context):
            (context.out / "deep").mkdir()
            (context.out / "deep" / "a.txt").write_text("A")
            (context.out / "b.txt").write_text("B%s")
            return {"n": 2}

        def read(context):
            whole, one = context.inputs["whole"], context.inputs["one"]
            return [whole.value, (whole.path / "b.txt").read_text(), one.path.read_text(), one.read().decode()]

        def only(context):
            return context.inputs["one"].read().decode()

        made = Step("many", many, {}, {}, HERE)
        steps = [Step("read", read, {}, {"whole": made, "one": made.file("deep/a.txt")}, HERE),
                 Step("only", only, {}, {"one": made.file("deep/a.txt")}, HERE)]
    """
    outcome = execute(text % "")
    assert outcome.failures == {}
    assert json.loads(root.store().read(outcome.results["read"].output.digest)) == [{"n": 2}, "B", "A", "A"]
    changed = execute(text % "!")
    assert actions(changed) == {"many": "executed", "read": "executed", "only": "cached"}, "the one file is the same"


def test_a_missing_input_is_named(execute: Execute) -> None:
    outcome = execute("""
        def make(context):
            (context.out / "a.txt").write_text("A")

        def number(context):
            return 1

        many = Step("many", make, {}, {}, HERE)
        one = Step("one", number, {}, {}, HERE)
        steps = [Step("read", number, {}, {"x": many.file("b.txt")}, HERE),
                 Step("value", number, {"n": 2}, {"x": one.file("b.txt")}, HERE)]
    """)
    assert "a missing input: read: x: b.txt: expected a file of the output: a.txt" in outcome.failures["read"].error
    assert "a single value" in outcome.failures["value"].error


def test_steps_in_processes_of_their_own(execute: Execute, tally: Tally) -> None:
    outcome = execute("""
        def square(context):
            tally(str(os.getpid()))
            return context.config["n"] ** 2

        def total(context):
            tally(str(os.getpid()))
            return sum(given.value for given in context.inputs.values())

        steps = [Step("total", total, {}, {str(n): Step(f"square/{n}", square, {"n": n}) for n in (2, 3)})]
    """)
    assert outcome.failures == {}
    assert len(set(tally())) == 3
    assert outcome.results["total"].output.size == len("13")


def test_a_step_that_kills_its_process_fails_and_the_rest_goes_on(execute: Execute) -> None:
    outcome = execute("""
        import signal

        def dies(context):
            os.kill(os.getpid(), signal.SIGKILL)

        def lives(context):
            return 1

        steps = [Step("dies", dies), Step("lives", lives)]
    """)
    assert "killed by SIGKILL" in outcome.failures["dies"].error
    assert actions(outcome) == {"lives": "executed"}


def test_pinned_and_adopted_outputs(execute: Execute, root: Root, tally: Tally) -> None:
    foreign = root.store().put_bytes(b"7").digest
    text = f"""
        def make(context):
            tally("make")
            return 1

        def read(context):
            return [given.value for given in context.inputs.values()]

        made = override_output(Step("made", make, {{}}, {{}}, HERE), "{foreign}")
        taken = adopt("taken", "{foreign}", kind="number", vouched_by="a friend", note="from last year")
        steps = [Step("read", read, {{}}, {{"a": made, "b": taken}}, HERE)]
    """
    outcome = execute(text)
    assert actions(outcome) == {"made": "pinned", "taken": "adopted", "read": "executed"}
    assert json.loads(root.store().read(outcome.results["read"].output.digest)) == [7, 7]
    assert tally() == []
    (adopted,) = recorded(root, ARTIFACT_ADOPTED)
    assert (adopted["vouched_by"], adopted["note"], adopted["artifact"]) == ("a friend", "from last year", foreign)
    execute(text)
    assert len(recorded(root, ARTIFACT_ADOPTED)) == 1
    absent = execute(text.replace(foreign, "sha256:" + "1" * 64))
    assert "its artifact is not here" in absent.failures["made"].error


def test_a_step_whose_second_result_differs_is_marked_for_ever(execute: Execute, root: Root) -> None:
    text = """
        import time

        def clock(context):
            return str(time.time_ns())

        def steady(context):
            return 1

        steps = [Step("after", steady, {}, {"x": Step("clock", clock, {}, {}, HERE)}, HERE), Step("steady", steady, {"n": 1})]
    """
    outcome = execute(text, check=True)
    assert outcome.nondeterministic == ["clock"]
    checked = {str(item["address"]): item["deterministic"] for item in recorded(root, STEP_CHECKED)}
    assert checked == {"clock": False, "after": True, "steady": True}
    later = execute(text)
    assert later.nondeterministic == ["clock"]
    assert actions(later) == dict.fromkeys(("clock", "after", "steady"), "cached")
    again = execute(text, check=True)
    assert again.results["clock"].completed_at == outcome.results["clock"].completed_at, "the first result stands"


def test_a_graph_of_this_process_needs_no_file(write: Write, root: Root, tally: Tally) -> None:
    outcome = execute_graph(load_graph(write(TWO.replace("resources=HERE", "resources=Resources()"))), root)
    assert actions(outcome) == {"counts/x": "executed", "report/x": "executed"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("steps = []", "without steps"),
        ("pass", "the file has no steps"),
        ("steps = 3", "the file has no steps"),
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        ("raise SystemExit", "stops with an error"),
    ],
)
def test_an_experiment_file_that_is_none(write: Write, text: str, what: str) -> None:
    from marin.errors import UsageError

    path = write(text, head="\n\n")
    with pytest.raises(UsageError, match=what) as caught:
        load_graph(path)
    if "Error" in what:
        assert f"{path}:3" in caught.value.where
    with pytest.raises(UsageError, match="not an experiment file"):
        load_graph(path.with_name("absent.py"))


def test_a_function_without_a_name_is_refused_before_anything_is_executed(execute: Execute, root: Root) -> None:
    from marin.errors import UsageError

    with pytest.raises(UsageError, match=r"not at the top of its file.*define it there by `def`"):
        execute("steps = [Step('a', lambda context: 1)]")
    assert root.reader().checkpoint().size == 0


def test_the_head_of_test_files_is_a_head() -> None:
    compile(HEAD, "head", "exec")


def test_an_executor_draws_nothing_live_where_its_steps_may(
    execute: Execute, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    master, slave = pty.openpty()
    with open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        execute(TWO)
        terminal.write("the end")
    drawn = b""
    with suppress(OSError):  # what a terminal says when its last writer is gone
        while part := os.read(master, 1 << 16):
            drawn += part
    os.close(master)
    assert drawn.endswith(b"the end") and b"\x1b" not in drawn, (
        "a bar of the executor's stands where a step draws its own"
    )
    assert [line.rpartition(" in ")[0] for line in caplog.messages if line.startswith("[")] == [
        "[1/2] counts/x executed",
        "[2/2] report/x executed",
    ]
