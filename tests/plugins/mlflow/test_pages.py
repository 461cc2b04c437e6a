"""The pages: escaped whatever is in the data, self-contained, the same bytes for the same events."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import struct
import sys
import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from html.parser import HTMLParser
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from marin.history.run import Run
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.server.prerendering import Prerendering
from marin.process.text import visible
from marin.record import events as types
from marin.record.root import Root
from marin.record.verdicts import NAMES
from marin.reporting.lineage.graph import graph_of, layers
from marin.reporting.lineage.page import Samples, graph_page, lineage_page, read_samples
from marin.reporting.lineage.samples import Inspector, beginnings_of
from marin.reporting.runs.curve import loss_curve
from marin.reporting.runs.order import order_digest, order_page
from marin.reporting.runs.report import LONGEST_SAMPLE, beginning, run_page
from marin.reporting.template import OF_PLUGINS, TEMPLATES, templates
from marin.reporting.verification.page import page as verification_page
from marin.reporting.verification.recorded import report_of
from marin.reporting.verification.segments import Reproducer
from marin.verify.verdict import Report, TrainingSummary, Verdict

from .roots import HOSTILE, make_artifacts, make_root
from .story import INPUTS, ORIGIN, STEPS, Log, begin_step, digest, output, replay, start, whole_run


class Seen(HTMLParser):
    """What a browser would find: elements, attributes, text, and whether every element is closed."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "img", "br", "hr", "link", "input"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def safe(page: bytes) -> Seen:
    seen = Seen(page)
    assert not seen.open
    assert not {"iframe", "object", "embed", "base", "form"} & set(seen.elements)
    if "script" in seen.elements:
        scripts = [(TEMPLATES / "copy.js").read_bytes()]
        if b"// https://d3js.org v5" in page:
            d3 = distribution("mpld3").locate_file("mpld3/js/d3.v5.min.js")
            scripts = [Path(str(d3)).read_bytes(), files("marin.reporting.lineage").joinpath("browser.js").read_bytes()]
        assert seen.elements.count("script") == len(scripts)
        assert all(page.count(b"<script>" + script + b"</script>") == 1 for script in scripts)
        named = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in scripts)
        assert any(
            name == "content" and (value or "").endswith(f"; script-src {named}") for name, value in seen.attributes
        )
    for name, value in seen.attributes:
        assert not name.startswith("on")
        if name in ("src", "href"):
            assert (value or "").startswith(("data:image/png;base64,", "#"))
    assert any(name == "content" and (value or "").startswith("default-src 'none';") for name, value in seen.attributes)
    return seen


def hostile_record(text: str) -> Run:
    log = Log()
    start(log, "abcd2345", pipeline=text, recipe={"dataset": {"name": text}, text: text, "nested": {text: [text]}})
    begin_step(log, "abcd2345", "corpus")
    log.append(types.STEP_FAILED, types.StepFailed(run="abcd2345", step="corpus", identity=digest("i"), error=text))
    replay(log, "abcd2345", {"training": text, text: "FAIL"}, {"step": 3, "tensors": [text], "explanation": text})
    fold = Fold(ORIGIN, own=log)
    for index, event in log.events():
        fold.apply(index, replace(event, actor=text))
    return fold.runs["abcd2345"].run


@pytest.mark.parametrize(
    "text", [HOSTILE, "'\"><svg onload=alert(1)>", "<!--", "]]>", "\x00\x1b[31m", "&lt;script&gt;", "</style><b>"]
)
def test_hostile_names_tags_and_errors_stay_text(text: str):
    record = hostile_record(text)
    for page in (run_page(record, text), lineage_page(record, text, Samples([text], [[text, text]]))):
        shown = safe(page).text
        if text.isprintable():
            assert text in shown


@given(st.text(max_size=40))
def test_any_text_comes_back_as_what_can_be_seen_of_it(text: str):
    page = templates().from_string('<p title="{{ text }}"><b>{{ text }}</b></p>').render(text=text)
    seen = Seen(page.encode())
    assert seen.elements == ["p", "b"]
    assert seen.text == visible(text, keep="\n\t")
    assert seen.attributes == [("title", visible(text, keep="\n\t"))]


def test_no_template_takes_text_for_markup_or_misses_a_value():
    found = [(folder, path) for folder in (TEMPLATES, *OF_PLUGINS) for path in folder.rglob("*.j2")]
    assert len(found) > 12 and len({path.relative_to(folder) for folder, path in found}) == len(found)
    for folder, path in found:
        assert not re.search(r"\|\s*safe|Markup|autoescape", path.read_text("utf-8")), path.name
        templates().get_template(path.relative_to(folder).as_posix())
    with pytest.raises(UndefinedError):
        templates().get_template("runs/order.html.j2").render(origin="x")


@pytest.fixture
def record() -> Run:
    log = Log()
    whole_run(log, "abcd2345", steps=60)
    replay(log, "abcd2345")
    fold = Fold(ORIGIN, own=log)
    list(fold.apply_all(log.events()))
    return fold.runs["abcd2345"].run


def test_the_report_tells_state_steps_digests_and_verdicts(record: Run):
    shown = safe(run_page(record, ORIGIN)).text
    for word in ("completed", "PASS", "perplexity", "marin verify abcd2345", ORIGIN, *record.steps):
        assert word in shown
    for step in record.steps.values():
        assert step.output.digest in shown


def test_the_lineage_links_every_step_and_shows_what_each_was_made_of(record: Run):
    page = lineage_page(record, ORIGIN, Samples())
    seen = safe(page)
    links = {value for name, value in seen.attributes if name == "href"}
    targets = {f"#{value}" for name, value in seen.attributes if name == "id"}
    assert links == targets
    graph = graph_of([record])
    assert len(targets) == len(graph.nodes)
    assert [node.name for node in graph.nodes.values()] == list(record.steps), "each once, step and output in one"
    assert seen.attributes.count(("class", "edge")) == len(graph.edges)
    assert all(digest in seen.text for step in record.steps.values() for digest in step.inputs.values())


def test_a_graph_of_many_runs_shares_what_is_the_same_and_keeps_the_way_from_data_to_model():
    log = Log()
    for run in ("abcd2345", "efgh6723"):
        whole_run(log, run, steps=30, artifacts={"corpus": digest("one corpus")})
    fold = Fold(ORIGIN, own=log)
    list(fold.apply_all(log.events()))
    graph = graph_of(projected.run for projected in fold.runs.values())
    (corpus,) = [node for node in graph.nodes.values() if node.name == "corpus"]
    assert corpus.runs == ("abcd2345", "efgh6723")
    assert ("runs", "abcd2345, efgh6723") in corpus.facts
    model = next(key for key, node in graph.nodes.items() if node.step == "export")
    part = graph.before_and_after([model])
    assert {node.step for node in part.nodes.values()} >= {"corpus", "tokens", "train", "export"}
    place = {key: number for number, row in enumerate(layers(graph)) for key in row}
    assert place.keys() == graph.nodes.keys()
    assert all(place[source] < place[target] for source, target in graph.edges)


@pytest.mark.long(seconds=10)
def test_a_graph_of_two_thousand_nodes_is_a_sheet_and_every_node_is_on_it_once():
    log = Log()
    for number in range(340):
        run = "".join("abcdefghij"[int(digit)] for digit in f"{number:08}")
        start(log, run)
        for step in STEPS:
            begin_step(log, run, step)
            log.append(
                types.STEP_COMPLETED,
                types.StepCompleted(
                    run=run,
                    step=step,
                    identity=digest(f"{step} {run}"),
                    inputs={name: output(run, name).digest for name in INPUTS[step]},
                    output=output(run, step),
                    metrics={},
                    seconds=1.0,
                ),
            )
    fold = Fold(ORIGIN, own=log)
    list(fold.apply_all(log.events()))
    graph = graph_of(projected.run for projected in fold.runs.values())
    assert len(graph.nodes) == 340 * 6
    page = graph_page("many", graph, {name: projected.run for name, projected in fold.runs.items()}, {})
    places = re.findall(rb'<rect x="(\d+)" y="(\d+)"', page)
    assert len(places) == len(set(places)) == len(graph.nodes)
    width, height = (max(int(place[axis]) for place in places) for axis in (0, 1))
    assert height < 2 * width < 8 * height, (width, height)
    assert len(page) < 5_000_000
    safe(page)


def test_samples_come_from_verified_bytes_and_damage_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MARIN_KEY", "")
    monkeypatch.setenv("MARIN_ROOT", "")
    root = make_root(tmp_path)
    log = Log()
    whole_run(log, "abcd2345", steps=30, artifacts=make_artifacts(root, tmp_path / "made"))
    fold = Fold(ORIGIN, own=log)
    list(fold.apply_all(log.events()))
    record = fold.runs["abcd2345"].run
    samples = read_samples(record, root.store())
    assert samples.documents[0].startswith("The cat number 0 sleeps.")
    assert samples.tokens[0][:3] == ["T", "h", "e"]
    assert HOSTILE in safe(lineage_page(record, ORIGIN, samples)).text
    (blob,) = [
        path
        for path in (tmp_path / "root" / "store" / "blobs").rglob("*")
        if path.is_file() and b"number 0" in path.read_bytes()
    ]
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes().replace(b"number 0", b"number X"))
    damaged = read_samples(record, root.store())
    assert damaged.documents == ()
    assert damaged.missing == "a blob's bytes differ from its digest"


def test_the_parts_of_a_mixture_are_shown_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MARIN_KEY", "")
    monkeypatch.setenv("MARIN_ROOT", "")
    root, log = make_root(tmp_path), Log()
    made = make_artifacts(root, tmp_path / "made")
    for part in ("grammar", "letters"):
        path = tmp_path / "mixed" / "train" / f"{part}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": f"{part} {number}"}) + "\n" for number in range(9)))
    made["corpus"] = root.store().put_tree(tmp_path / "mixed").digest
    whole_run(log, "abcd2345", steps=30, artifacts=made)
    fold = Fold(ORIGIN, own=log)
    list(fold.apply_all(log.events()))
    samples = read_samples(fold.runs["abcd2345"].run, root.store(), steps=[])
    assert list(zip(samples.parts, samples.documents, strict=True)) == [
        ("grammar", "grammar 0"),
        ("grammar", "grammar 1"),
        ("letters", "letters 0"),
        ("letters", "letters 1"),
    ]
    assert "of the part letters" in safe(lineage_page(fold.runs["abcd2345"].run, ORIGIN, samples)).text
    assert beginnings_of(root.store(), made["corpus"], {("grammar", 3), ("letters", 8), ("letters", 99)}) == {
        ("grammar", 3): "grammar 3",
        ("letters", 8): "letters 8",
    }


def size_of(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def test_the_curve_is_the_same_bytes_for_the_same_numbers():
    losses = {step: 2 + 5 / (1 + step) for step in range(50)}
    first, again = (loss_curve(losses, title="run $a_b$ <x>", validation=2.5, seams=[30, 50]) for _ in range(2))
    assert first == again
    assert size_of(first) == (800, 450)
    assert loss_curve({**losses, 3: 9.0}, title="run $a_b$ <x>", validation=2.5, seams=[30, 50]) != first


@pytest.mark.parametrize("losses", [{0: 1.0}, {0: math.nan}, {0: 1.0, 1: math.inf, 2: 2.0}])
def test_a_curve_of_odd_numbers_is_drawn(losses: dict[int, float]):
    assert size_of(loss_curve(losses, title="odd", seams=[])) == (800, 450)


def test_the_verification_is_the_page_of_marin_verify_made_from_the_event():
    body = types.ReplayCompleted(
        run="abcd2345",
        verdicts={"ledger": "PASS", "training": "FAIL", "model": HOSTILE},
        training={"mode": "full", "seconds": 1.5},
        first_divergence={"step": 7, "tensors": [HOSTILE], "expected": "a", "found": "b", "explanation": HOSTILE},
        log_checkpoint={"origin": ORIGIN, "size": 9, "root": "r"},
        details={"training": [HOSTILE]},
        environment={},
    )
    report = report_of(body, 12)
    assert [report.verdicts[name].outcome for name in ("ledger", "artifacts", "training", "model")] == [
        "PASS",
        "NOT_RUN",
        "FAIL",
        "NOT_RUN",
    ]
    assert (report.divergence.step if report.divergence else None, report.training.mode, report.event) == (
        7,
        "full",
        12,
    )


def test_a_page_does_not_say_that_nothing_was_replayed_where_a_part_was(record: Run):
    """The event of a sample tells how many segments were executed, and not the losses that were found."""
    verdicts = {name: Verdict("PARTIAL" if name == "training" else "PASS") for name in NAMES}
    sampled = TrainingSummary("sampled", len(record.segments), 1, 1, 1.5, 0)
    (given,) = record.verdicts
    text = verification_page(Report(record.run, verdicts, sampled, None, "o", 1, "00", (), event=given.index), record)
    assert f"1 of {len(record.segments)}" in text and "0 replayed" not in text


def test_a_page_says_who_executed_earlier_what_was_not_executed_now(record: Run):
    """README's own second verification: everything was executed before, and the page said that nobody had done so."""
    steps, count = len(record.losses), len(record.segments)
    starts = frozenset(fact.body.start for fact in record.segments)
    (given,) = record.verdicts
    earlier = Reproducer(given.actor, "a machine, 2 cores", starts, "2026-11-20T10:00:00Z")
    verdicts = {name: Verdict("PASS") for name in NAMES}
    taken = TrainingSummary("full", count, 0, 1, 0.0, count)
    report = Report(record.run, verdicts, taken, None, "o", 1, "00", (), event=given.index)
    text = verification_page(report, record, [earlier])
    assert f"{steps} replayed, {steps} with the same bits" in text and "not replayed here" not in text
    assert (
        f"executed again by {given.actor} ({count}, since 2026-11-20)" in text
        and "executed again by nobody" not in text
    )
    said = (
        f"{count} of {count} segments had been executed again earlier, by {given.actor}, since 2026-11-20 10:00:00 UTC."
    )
    assert said in text
    now = TrainingSummary("full", count, count, 1, 2.0)
    report = Report(record.run, verdicts, now, None, "o", 1, "00", (), losses=record.losses)
    assert f"executed again by this verification ({count})" in verification_page(report, record), "recorded nowhere"
    assert "executed again earlier" not in verification_page(report, record)


def test_the_data_order_names_every_batch(record: Run):
    shown = safe(order_page(record, ORIGIN)).text
    assert order_digest(record) in shown
    assert "Train steps 30 to 59" in shown
    learned = {**record.started.body.recipe, "objective": {"name": "grpo"}}
    started = replace(record.started, body=msgspec.structs.replace(record.started.body, recipe=learned))
    of_completions = safe(order_page(replace(record, started=started), ORIGIN)).text
    assert order_digest(record) in of_completions and "stored record of its completions" in of_completions
    assert (
        "token stream" in shown
        and "token stream" not in of_completions
        and "passes over the data" not in of_completions
    )


STAND_IN = """
import json, os, sys
for line in sys.stdin:
    steps = json.loads(line)["steps"]
    if 9 in steps:
        sys.exit(3)
    print(json.dumps({"refused": "no cache"} if 8 in steps else {"found": [{"process": os.getpid()}]}), flush=True)
"""


def test_one_process_finds_the_batches_of_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that refuses goes on, one that is gone is followed by another."""
    monkeypatch.setattr(Inspector, "COMMAND", (sys.executable, "-c", STAND_IN))
    with Inspector() as inspector:
        first, second = (inspector.ask({}, tmp_path, [step]) for step in (1, 2))
        assert first == second and first[0]["process"] != os.getpid()
        with pytest.raises(ValueError, match="again: no cache"):
            inspector.ask({}, tmp_path, [8])
        assert inspector.ask({}, tmp_path, [1]) == first
        with pytest.raises(ValueError, match="the process is gone"):
            inspector.ask({}, tmp_path, [9])
        assert inspector.ask({}, tmp_path, [1]) != first


def test_nobody_draws_any_more_when_drawing_ahead_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Though the page waits for an answer that never comes: a thread of it would crash the interpreter that ends. The page
    is not drawn without the answer, and the next one is not begun."""
    asking, drawn = threading.Event(), list[str]()

    class Waiting:
        def __init__(self, root: Root, identity: str) -> None:
            self.identity = identity

        def draw_pages(self, inspector: Inspector, ended: threading.Event) -> None:
            asking.set()
            inspector.ask({}, tmp_path, [1])
            drawn.append(self.identity)

    monkeypatch.setattr(Inspector, "COMMAND", (sys.executable, "-c", "import sys; sys.stdin.read()"))
    monkeypatch.setattr("marin.plugins.mlflow.stores.repository.ShelfView", Waiting)
    monkeypatch.setattr(Prerendering, "_wanted", lambda self: [("first", 1), ("second", 1)])
    drawing = Prerendering(make_root(tmp_path))
    drawing.start()
    assert asking.wait(600)
    drawing.stop()
    assert not drawing.is_alive() and drawn == []
    with Inspector() as inspector:
        inspector.stop()
        with pytest.raises(CancelledError):
            inspector.ask({}, tmp_path, [1])


def test_no_page_is_drawn_of_a_server_that_ended_before_it_answered(tmp_path: Path):
    drawing = Prerendering(make_root(tmp_path))
    drawing.stop()
    drawing.start()
    assert drawing.ident is None


def test_counts_on_a_report_are_whole_and_of_a_sample_its_first_sentences_are_shown(record: Run):
    """2000105 bytes were 2.0001e+06 beside 100516, and a small model's whole sample is more than a report needs."""
    corpus = replace(
        record.states["corpus"], result=replace(record.steps["corpus"], metrics={"train_bytes": 2000105.0})
    )
    shown = safe(run_page(replace(record, states={**record.states, "corpus": corpus}), ORIGIN)).text
    assert "train_bytes 2000105" in shown and "e+06" not in shown
    told = "The cat sleeps. “Is it late?” asks the clock. " * 4
    assert beginning(told + "Then the wind came over the hill and did not stop.") == told.rstrip()
    assert beginning("x" * 300) == "x" * LONGEST_SAMPLE + "…" and beginning("It rains") == "It rains"
