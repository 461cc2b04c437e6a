"""`marin run --dry-run`: hit or run, and what changed: field, seed, input, code, packages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest

from marin.graph.execution.loop import execute_graph
from marin.graph.files import load_graph
from marin.graph.planning import Planner
from marin.graph.why import StepReason, explain
from marin.history.measured import MeasuredThroughput
from marin.recipe.cost import Device, Prices
from marin.record.root import Root
from tests.marin.graph.conftest import Write

TEXT = """
    import neighbour

    def make(context):
        return [context.config["x"], context.seed, neighbour.VALUE]

    def read(context):
        return sum(given.value[0] for given in context.inputs.values())

    made = Step("made", make, {"x": 1.5, "seed": 3, "deep": {"y": [1, 2]}}, {}, HERE)
    steps = [Step("read", read, {"z": 1}, {"made": made}, HERE)]
"""
PRICES = Prices(
    date=date(2026, 11, 1),
    currency="USD",
    devices={
        "here": Device(
            note="", peak={"float32": 1e11}, memory_bytes=None, utilisation=0.5, hourly=0.1, seen=date(2026, 11, 1)
        )
    },
)

Ask = Callable[..., dict[str, StepReason]]


@pytest.fixture
def ask(write: Write, root: Root, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The answers for a file of this text, after TEXT was executed."""
    folder = write(TEXT).parent
    (folder / "neighbour.py").write_text("VALUE = 1\n")
    path = write(TEXT)
    execute_graph(load_graph(path), root, file=path)

    def answers(*changes: tuple[str, str], neighbour: str = "VALUE = 1\n", **options: bool) -> dict[str, StepReason]:
        text = TEXT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / "neighbour.py").write_text(neighbour)
        graph = load_graph(write(text))
        size = root.reader().checkpoint().size
        found = {item.address: item for item in explain(Planner(graph, root), PRICES, MeasuredThroughput(), **options)}
        assert root.reader().checkpoint().size == size
        return found

    return answers


def test_unchanged_is_a_hit_that_costs_nothing(ask: Ask) -> None:
    found = ask()
    assert [(item.address, item.action, item.estimate.seconds) for item in found.values()] == [
        ("made", "hit", 0.0),
        ("read", "hit", 0.0),
    ]
    assert found["made"].why[0].startswith(f"event {found['made'].event} of ")


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        (('"x": 1.5', '"x": 2.25'), "config", "x 1.5 -> 2.25"),
        (('"seed": 3', '"seed": 4'), "seed", "seed 3 -> 4"),
        (('"y": [1, 2]', '"y": [1, 3]'), "config", "deep.y [1, 2] -> [1, 3]"),
        (('"deep": {"y": [1, 2]}', '"new": 1'), "config", "new nothing -> 1"),
        (("context.seed,", "context.seed + 1,"), "code", "exp_test.py::make"),
    ],
)
def test_what_changed_is_named(ask: Ask, change: tuple[str, str], kind: str, told: str) -> None:
    found = ask(change)
    assert found["made"].action == "run"
    assert told in found["made"].changes[kind]
    assert set(found["made"].changes) == {kind}
    assert found["read"].why == ("after made",)


def test_a_changed_file_of_the_code_is_named(ask: Ask) -> None:
    assert ask(neighbour="VALUE = 2\n")["made"].changes == {"code": ("neighbour.py",)}


def test_a_changed_input_is_named(ask: Ask, write: Write, root: Root) -> None:
    path = write(TEXT.replace('"x": 1.5', '"x": 7.5'))
    execute_graph(load_graph(path).only("made"), root, file=path)
    (told,) = ask(('"x": 1.5', '"x": 7.5'))["read"].changes["input"]
    assert told.startswith("made ")
    assert " -> " in told


def test_new_packages_are_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marin.graph.planning.lock_digest", lambda folder: "sha256:" + "7" * 64)
    assert set(ask()["made"].changes) == {"lock"}


def test_never_made_forced_failed_and_damaged(ask: Ask, root: Root, write: Write) -> None:
    assert ask(("def make", "def produce"), ('made", make', 'made", produce'))["made"].why == ("never made here",)
    assert ask(force=True)["made"].why == ("forced",)
    digest = execute_graph(load_graph(write(TEXT)), root).results["made"].output.artifact
    for name in list(root.storage.list("store/")):
        if digest.removeprefix("sha256:")[4:] in name:
            root.storage.remove(name)
    assert ask()["made"].why[0].endswith("is not whole")
    path = write(TEXT.replace("return [context", "raise ValueError('x'); return [context"))
    execute_graph(load_graph(path), root, file=path)
    assert "it failed before" in ask(("return [context", "raise ValueError('x'); return [context"))["made"].why[0]


def test_the_time_of_functions_is_what_they_took(ask: Ask) -> None:
    estimate = ask(('"x": 1.5', '"x": 2.5'))["made"].estimate
    assert estimate.basis == "measured 1 times"
    assert estimate.seconds is not None
