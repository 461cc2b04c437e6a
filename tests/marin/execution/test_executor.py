"""The executor: what it records, what it takes over, what it refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ledger import LedgerError, Malformed, Refused, StorageFailed, Tampered, Unavailable, create_key, parse_digest
from marin.errors import Interrupted, MissingEvidence, StepFailed, UsageError
from marin.execution.plan import Plan
from marin.execution.pointer import read_pointer
from marin.execution.step import StepResult, Task
from marin.execution.workspace import explained
from marin.history.run import Run
from marin.history.runs import load, load_all
from marin.provenance.processor import X86_64_V3
from marin.record.root import open_root

ALL = ("words", "upper", "count")


def types(project: Path) -> list[str]:
    """What runs say; who executes their steps is told beside it."""
    return [kind for kind in all_types(project) if not kind.startswith("lease.")]


def all_types(project: Path) -> list[str]:
    return [event.type.removesuffix("/v1") for _, event in open_root(str(project / ".marin")).reader().events()]


def views(project: Path) -> list[Run]:
    return list(load_all(open_root(str(project / ".marin")).history()))


def pipeline(tiny: ModuleType, project: Path, **recipe: Any) -> list[Any]:
    return [tiny.run(name, project, **recipe) for name in ALL]


def visible(project: Path) -> dict[str, bytes]:
    """Every file that Git or DVC would see."""
    found = {}
    for folder in (project / "artifacts", project / ".marin" / "receipts"):
        for path in sorted(folder.rglob("*")) if folder.exists() else []:
            if path.is_file():
                found[str(path.relative_to(project))] = path.read_bytes()
    return found


def stored(project: Path, step: str, name: str) -> Path:
    """The blob in the store that holds one file of a step's output."""
    store = open_root(str(project / ".marin")).store()
    entry = store.manifest(views(project)[-1].steps[step].output.artifact).entry(name)
    digest = parse_digest(entry.digest).hex()
    return next((project / ".marin" / "store").rglob(digest[2:]))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def test_three_stages_are_one_run_with_every_fact_in_order(tiny: ModuleType, project: Path) -> None:
    outcomes = pipeline(tiny, project)
    assert tiny.executed == list(ALL)
    assert [outcome.action for outcome in outcomes] == ["executed"] * 3
    assert [outcome.completed for outcome in outcomes] == [False, False, True]
    assert len({outcome.run for outcome in outcomes}) == 1
    assert types(project) == ["run.started", *["step.started", "step.completed"] * 3, "run.completed"]
    step = ["lease.taken", "step.started", "step.completed", "lease.released"]
    assert [kind for kind in all_types(project) if not kind.startswith("run.")] == step * 3
    (view,) = views(project)
    assert view.status == "completed"
    assert view.steps["count"].inputs == {"upper": view.output("upper").digest, "words": view.output("words").digest}
    assert view.metrics == {"words.words": 20.0, "words.third": 1 / 3, "upper.steps": 3.0}
    assert view.recipe == tiny.from_mapping({}, where="test")
    assert not (project / ".marin" / "work" / "inputs").exists()


def test_a_folder_of_a_project_that_has_our_name_is_not_another_code(tiny: ModuleType, project: Path) -> None:
    """Such as a clone of this repository, or texts; a checkout has the package there, and DVC watches its files."""
    (project / "marin").mkdir()
    (project / "marin" / "notes.txt").write_text("of a harbour\n", encoding="utf-8")
    assert [outcome.action for outcome in pipeline(tiny, project)] == ["executed"] * 3
    (project / "marin" / "__init__.py").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="the code that is installed is not that of this checkout"):
        tiny.run("words", project)


def test_pointers_metrics_tables_and_receipts_are_exact(tiny: ModuleType, project: Path) -> None:
    pipeline(tiny, project)
    files = visible(project)
    output = views(project)[0].output("words")
    pointer = (f'{{\n  "digest": "{output.digest}",\n  "kind": "words",\n  "size": {output.size}\n}}\n').encode()
    assert files["artifacts/words.json"] == pointer
    identity = views(project)[0].steps["words"].identity
    assert json.loads(files[".marin/receipts/words.json"]) == {**json.loads(pointer), "identity": identity}
    assert files["artifacts/metrics/words.json"] == b'{\n  "third": 0.3333333333333333,\n  "words": 20.0\n}\n'
    assert files["artifacts/plots/lengths.csv"] == b"n,length\n0,8\n"
    assert "artifacts/metrics/count.json" not in files


def test_receipts_of_what_is_not_here_go_so_that_dvc_has_it_made(
    tiny: ModuleType, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of a step changed, and the result of the one after it is gone."""
    pipeline(tiny, project)
    gone = views(project)[0].output("count").artifact
    (path,) = [
        path for path in (project / ".marin" / "store").rglob("*") if gone.endswith(path.name) and path.is_file()
    ]
    path.unlink()
    changed = (replace(step, starts=("marin/errors.py",)) if step.name == "upper" else step for step in tiny.PLAN.steps)
    monkeypatch.setattr(tiny, "PLAN", Plan("tiny", tuple(changed)))
    tiny.run("upper", project)
    assert sorted(path.name for path in (project / ".marin" / "receipts").iterdir()) == ["upper.json", "words.json"]
    tiny.run("count", project)
    assert views(project)[-1].status == "completed"


def test_a_second_time_nothing_runs_and_nothing_is_recorded(tiny: ModuleType, project: Path) -> None:
    pipeline(tiny, project)
    before, events = visible(project), types(project)
    shutil.rmtree(project / "artifacts")
    shutil.rmtree(project / ".marin" / "receipts")
    tiny.executed.clear()
    assert [outcome.action for outcome in pipeline(tiny, project)] == ["present"] * 3
    assert tiny.executed == []
    assert types(project) == events
    assert visible(project) == before


def test_another_recipe_takes_over_what_does_not_depend_on_it(tiny: ModuleType, project: Path) -> None:
    pipeline(tiny, project)
    tiny.executed.clear()
    # As DVC would: only the stages whose parameters changed are called.
    outcome = tiny.run("count", project, tokenizer={"vocab_size": 300})
    assert tiny.executed == ["count"]
    assert outcome.completed
    first, second = views(project)
    assert second.steps["words"].cached and second.steps["upper"].cached and not second.steps["count"].cached
    assert second.steps["upper"].origin == first.run
    assert second.steps["upper"].completed_at == first.steps["upper"].index
    assert second.steps["upper"].metrics == {"steps": 3.0}
    assert types(project)[-6:] == [
        "run.started",
        "step.cached",
        "step.cached",
        "step.started",
        "step.completed",
        "run.completed",
    ]


def test_going_back_to_an_old_recipe_is_a_run_of_hits(tiny: ModuleType, project: Path) -> None:
    pipeline(tiny, project)
    before = visible(project)
    pipeline(tiny, project, seed=5)
    tiny.executed.clear()
    outcomes = pipeline(tiny, project)
    assert tiny.executed == []
    assert outcomes[-1].completed and outcomes[-1].run == views(project)[-1].run
    assert visible(project) == before
    assert all(step.origin == views(project)[0].run for step in views(project)[-1].steps.values())


def test_steps_that_dvc_skips_still_complete_the_run(tiny: ModuleType, project: Path) -> None:
    """The changed step gives the same bits, so that DVC does not call the step behind it."""
    pipeline(tiny, project)
    tiny.executed.clear()
    outcome = tiny.run("upper", project, optimizer={"learning_rate": 0.5})
    assert tiny.executed == ["upper"]
    assert outcome.completed
    assert views(project)[-1].steps["count"].cached


def test_force_executes_and_begins_a_run(tiny: ModuleType, project: Path) -> None:
    pipeline(tiny, project)
    tiny.executed.clear()
    outcomes = [tiny.run(name, project, force=True) for name in ALL]
    assert tiny.executed == list(ALL)
    assert [outcome.completed for outcome in outcomes] == [False, False, True]
    first, second = views(project)
    assert {outcome.run for outcome in outcomes} == {second.run}
    assert {name: step.output.digest for name, step in first.steps.items()} == {
        name: step.output.digest for name, step in second.steps.items()
    }


def test_a_forced_step_never_joins_the_run_that_has_its_output(tiny: ModuleType, project: Path) -> None:
    tiny.run("words", project)
    tiny.run("words", project, force=True)
    assert tiny.executed == ["words", "words"]
    assert len(views(project)) == 2


def test_other_bits_for_one_identity_are_recorded_and_said(
    tiny: ModuleType, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tiny.run("words", project)
    tiny.run("upper", project)
    tiny.before_upper.append(lambda task: (task.inputs["words"] / "words.txt").chmod(0o600))
    tiny.before_upper.append(lambda task: void((task.inputs["words"] / "words.txt").write_text("tampered")))
    tiny.run("upper", project, force=True)
    assert "other bits than event" in caplog.text


def void(_: object) -> None:
    """A lambda's result that nobody wants."""


def test_a_failure_is_recorded_and_leaves_the_old_pointer(tiny: ModuleType, project: Path) -> None:
    pipeline(tiny, project)
    before = visible(project)

    def fail(task: Task) -> None:
        raise ValueError("no such\nluck")

    tiny.before_upper.append(fail)
    with pytest.raises(StepFailed, match="step upper: found ValueError: no such luck"):
        tiny.run("upper", project, optimizer={"learning_rate": 0.5})
    assert visible(project) == before
    view = views(project)[-1]
    assert view.status == "failed"
    assert [fact.body.error for fact in view.failures] == [
        "the step stopped: step upper: found ValueError: no such luck; MARIN_DEBUG=1 shows where"
    ]
    tiny.before_upper.clear()
    assert tiny.run("upper", project, optimizer={"learning_rate": 0.5}).action == "executed"
    assert views(project)[-1].run == view.run
    assert views(project)[-1].attempts["upper"] == 2


def test_a_keyboard_interrupt_is_recorded_and_resumed(
    tiny: ModuleType, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def interrupt(task: Task) -> None:
        (task.work / "saved").write_text("state")
        raise KeyboardInterrupt

    tiny.run("words", project)
    tiny.before_upper.append(interrupt)
    with pytest.raises(Interrupted, match="run the same command again"):
        tiny.run("upper", project)
    assert types(project)[-1] == "step.failed"
    seen: list[str] = []
    tiny.before_upper[:] = [lambda task: seen.append(f"{task.attempt} {(task.work / 'saved').read_text()}")]
    tiny.run("upper", project)
    assert seen == ["2 state"]
    assert list((project / ".marin" / "work").glob("upper-*")) == []
    assert "and was not completed" in caplog.text


def test_a_full_disk_in_a_step_says_so(tiny: ModuleType, project: Path) -> None:
    def full(task: Task) -> None:
        raise OSError(28, "No space left on device", str(task.out / "upper.txt"))

    tiny.run("words", project)
    tiny.before_upper.append(full)
    with pytest.raises(StorageFailed, match=r"disk full: step upper: .*free some space"):
        tiny.run("upper", project)


def test_a_metric_that_is_not_a_number_fails_the_step(tiny: ModuleType, project: Path) -> None:
    tiny_step = tiny.step("bad", (), lambda task: result_with_nan(task))
    with pytest.raises(StepFailed, match="step bad: loss: expected a finite number, found nan"):
        run_one(tiny, tiny_step, project)


def result_with_nan(task: Task) -> StepResult:
    (task.out / "file").write_text("x")
    return StepResult(kind="bad", metrics={"loss": float("nan")})


def test_an_empty_output_fails_the_step(tiny: ModuleType, project: Path) -> None:
    with pytest.raises(StepFailed, match="made nothing"):
        run_one(tiny, tiny.step("empty", (), lambda task: StepResult(kind="empty")), project)


def run_one(tiny: ModuleType, step: Any, project: Path) -> None:
    tiny.run_stage(
        step.name,
        plan=tiny.Plan("one", (step,)),
        recipe=tiny.from_mapping({}, where="test"),
        root=open_root(str(project / ".marin")),
        project=project,
    )


def test_an_input_that_was_never_made_is_named(tiny: ModuleType, project: Path) -> None:
    with pytest.raises(MissingEvidence, match=r"step words: .*run `marin stage words`"):
        tiny.run("upper", project)
    assert types(project) == []


def test_committed_pointers_do_not_replace_the_ledger(tiny: ModuleType, project: Path) -> None:
    """A fresh clone has every pointer and an empty root."""
    pipeline(tiny, project)
    shutil.rmtree(project / ".marin")
    from marin.record.creation import create_root

    create_root(str(project / ".marin"), origin="marin.test/second")
    with pytest.raises(MissingEvidence):
        tiny.run("count", project)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"size"', '"sizes"'),
        lambda text: text[:-3],
        lambda text: text.replace("sha256:", "sha255:"),
        lambda text: json.dumps(json.loads(text)),
        lambda text: text.replace('"words",', "7,"),
    ],
)
def test_a_damaged_pointer_is_malformed(tiny: ModuleType, project: Path, change: Any) -> None:
    tiny.run("words", project)
    path = project / "artifacts" / "words.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(Malformed, match=r"words\.json.*dvc repro"):
        tiny.run("upper", project)
    assert tiny.executed == ["words"]


def test_a_flipped_digit_in_a_pointer_is_tampered(tiny: ModuleType, project: Path) -> None:
    tiny.run("words", project)
    path = project / "artifacts" / "words.json"
    pointer = read_pointer(path)
    other = pointer.digest[:-1] + ("0" if pointer.digest[-1] != "0" else "1")
    path.write_text(path.read_text().replace(pointer.digest, other))
    with pytest.raises(Tampered, match=rf"expected {pointer.digest} \(words.*found {other} \(words"):
        tiny.run("upper", project)
    tiny.run("words", project)
    assert read_pointer(path) == pointer


def test_a_flipped_byte_in_an_input_is_found_and_the_step_heals_it(tiny: ModuleType, project: Path) -> None:
    tiny.run("words", project)
    flip(stored(project, "words", "words.txt"))
    with pytest.raises(Tampered, match=r"input words: .*marin stage words"):
        tiny.run("upper", project)
    assert tiny.executed == ["words"]
    assert types(project)[-1] == "step.failed"
    assert tiny.run("words", project).action == "executed"
    assert tiny.run("upper", project).action == "executed"


def test_a_flipped_byte_in_a_recorded_result_is_no_hit(
    tiny: ModuleType, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline(tiny, project)
    flip(stored(project, "upper", "state.json"))
    tiny.executed.clear()
    assert tiny.run("upper", project).action == "executed"
    assert tiny.executed == ["upper"]
    assert "is not whole" in caplog.text


def test_a_lost_blob_is_no_hit(tiny: ModuleType, project: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tiny.run("words", project)
    stored(project, "words", "deep/more.txt").unlink()
    assert tiny.run("words", project).action == "executed"
    assert "and its result is not whole here" in caplog.text


def test_a_missing_root_names_the_cure(tiny: ModuleType, tmp_path: Path, own_keys: Path) -> None:
    with pytest.raises(Unavailable, match="marin init"):
        tiny.run("words", tmp_path)


def test_a_missing_key_is_said_before_any_work(tiny: ModuleType, project: Path, own_keys: Path) -> None:
    shutil.rmtree(own_keys)
    with pytest.raises(Unavailable, match=r"no signing key.*MARIN_KEY"):
        tiny.run("words", project)
    assert tiny.executed == []


def test_a_wrong_key_is_said_before_any_work(
    tiny: ModuleType, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_key(tmp_path / "other.key", "marin.test/tiny")
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "other.key"))
    with pytest.raises(Refused, match=r"not the one of this root.*MARIN_KEY"):
        tiny.run("words", project)
    assert tiny.executed == []


def test_a_damaged_verifier_key_is_named(tiny: ModuleType, project: Path) -> None:
    (project / ".marin" / "vkey").write_text("nonsense\n")
    with pytest.raises(Malformed, match="vkey"):
        tiny.run("words", project)


def test_the_run_says_where_the_code_and_the_machine_are(tiny: ModuleType, project: Path) -> None:
    tiny.run("words", project)
    started = views(project)[0].started.body
    assert set(started.code) == {"commit", "tree", "dirty", "diff", "steps"}
    with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        flags = next((set(line.split()[2:]) for line in file if line.startswith("flags")), set())
    assert set(started.environment["processor"]["features"]) == flags
    assert started.environment["processor"]["x86_64_v3"] is (flags >= set(X86_64_V3))
    assert started.environment["versions"]["msgspec"]
    assert str(project) not in json.dumps([started.code, started.environment])


def test_errors_of_a_step_keep_their_kind(tiny: ModuleType, project: Path) -> None:
    def refuse(task: Task) -> None:
        raise MissingEvidence("a package is away", where="here")

    tiny.run("words", project)
    tiny.before_upper.append(refuse)
    with pytest.raises(LedgerError) as caught:
        tiny.run("upper", project)
    assert (type(caught.value), caught.value.exit_code) == (MissingEvidence, 3)


def test_loading_an_unknown_run_is_missing_evidence(project: Path) -> None:
    with pytest.raises(MissingEvidence, match="run/nothing"):
        load(open_root(str(project / ".marin")).history(), "nothing")


def test_a_full_disk_is_heard_out_of_what_tensorstore_says() -> None:
    told = (
        'RESOURCE_EXHAUSTED: Error writing local file "/data/c/0": Failed writing: "/data/c/0.__lock": Failed to write 9 bytes '
        "to file 7: No space left on device [os_error_code='28'] [source locations='tensorstore/internal/os/file_util.cc:387']"
    )
    found = explained("tokens", ValueError(told))
    assert isinstance(found, StorageFailed)
    assert str(found) == (
        "disk full: step tokens: /data/c/0: found No space left on device; free some space and run the same command again"
    )
    assert isinstance(explained("tokens", ValueError(told.replace("'28'", "'5'"))), StepFailed)
