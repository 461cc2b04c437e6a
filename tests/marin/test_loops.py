"""Loops of one's own: what they record, and what executing them again finds."""

# Taken by their commands: marin.plugins.sharing.

from __future__ import annotations

import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Mapping
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import marin
from ledger import Draft, state_digest, tensor_digest
from marin.cli import main
from marin.errors import UsageError
from marin.history.runs import facts, load, stream_of
from marin.loops.loop import EVERY, Loop
from marin.loops.tensors import arrays, batch_digest
from marin.plugins.mlflow.folding.fold import Fold
from marin.recipe.schema import Execution
from marin.record import events
from marin.record.root import Root, open_root
from marin.record.trust.evidence import NOBODY
from marin.reporting.lineage.graph import verdict_of
from marin.reporting.pages import draw
from marin.reporting.verification.recorded import verification_page
from marin.verify.verdict import Report
from marin.verify.verification import Options, Verification

PYTHON = shlex.quote(sys.executable)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "loops.md"
PROGRAM = """
import sys, time, numpy as np, marin
rng = np.random.default_rng(0)
weights = rng.normal(size=(4, 4))
other = np.zeros(3)
with marin.start_run("mine", recipe={{"lr": 0.1}}) as run:
    for step in range(6):
        batch = rng.normal(size=(8, 4))
        error = batch @ weights
        weights -= 0.1 * batch.T @ error / 8
        {change}
        run.log(step, loss=(error**2).mean(), batch=batch)
        if step % 3 == 2:
            run.state({{"weights": weights, "other": other}})
    np.save("model.npy", weights)
    run.save("model", "model.npy")
"""


@pytest.fixture
def folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project


def execute(folder: Path, change: str = "pass") -> Root:
    (folder / "train.py").write_text(PROGRAM.format(change=change))
    runpy.run_path("train.py")
    return open_root()


def judged(root: Root, by: str) -> Report:
    options = Options(execution=Execution(), remember=False, by=by, sources=NOBODY)
    report = Verification(root, "latest", options).report()
    assert words(report).get("evaluation", "NOT_RUN") == "NOT_RUN", "nothing was evaluated, and that is said so"
    return report


def words(report: Report) -> dict[str, str]:
    return {name: verdict.outcome for name, verdict in report.verdicts.items()}


def test_a_loop_is_a_run_like_others(folder: Path) -> None:
    execute(folder)
    run = marin.open().run()
    assert run.status == "completed" and run.verified == "never"
    assert list(run.losses.index) == list(range(6)) and run.metrics["loop.loss_last"] == run.losses[5]
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(4, 4))
    for step in range(6):
        batch = rng.normal(size=(8, 4))
        error = batch @ weights
        assert run.losses[step].hex() == (error**2).mean().hex()
        weights -= 0.1 * batch.T @ error / 8
    (first, second) = [fact.body for fact in load(open_root().history(), run.id).loop]
    assert first.end == 3 and second.batches[-1] == tensor_digest(batch)
    assert second.state == state_digest({"weights": tensor_digest(weights), "other": tensor_digest(np.zeros(3))})
    table = open_root().store_to_read().read(run.outputs["loop"]).decode().splitlines()
    assert table[0] == "step,loss" and float(table[-1].split(",")[1]) == run.losses[5]


def test_a_loop_may_count_in_numpy(folder: Path) -> None:
    with marin.start_run("counted") as run:
        for step in np.arange(2):
            run.log(step, loss=np.float32(0.5), rate=np.float32(0.25))
        run.state({"a": np.ones(2)})
    (segment,) = [fact.body for fact in load(open_root().history(), run.id).loop]
    assert (segment.start, segment.end) == (0, 2) and type(segment.start) is int
    with marin.start_run("halves") as run, pytest.raises(UsageError, match="not the number of a step"):
        run.log(0.5, loss=1.0)  # type: ignore[arg-type]


def test_two_loops_differ_by_batch_loss_or_state(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alterations = ("pass", "batch = batch + (step == 4)", "other[1] = 1.0 if step == 5 else 0.0")
    runs = []
    for change in alterations:
        execute(folder, change)
        runs.append(marin.open().run().id)
    capsys.readouterr()

    def first_difference(other: str) -> str:
        main.run(["-q", "diff", runs[0], other])
        return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("step"))

    assert first_difference(runs[0]).split() == ["step", "equal"]
    assert "train step 4: batch: " in first_difference(runs[1]) and "train step 5: state: " in first_difference(runs[2])


def test_labels_decide_no_verdict(folder: Path) -> None:
    root = execute(folder)
    for said in (("describe", "the first"), ("tag", "kept=yes")):
        assert main.run(["-q", "run", "latest", *said]) == 0
    assert words(judged(root, ""))["ledger"] == "PASS"
    assert marin.verify(marin.open().run(), only=["ledger"], record=False).verdicts["ledger"] == "PASS"


WRAPPED = """
import marin
import numpy as np

def loop(callback):
    for step in range(4):
        callback(step, 1.0 / (step + 1), batch=f"batch {step}", state={"w": np.full(2, step)} if step % 2 else None)

callback = marin.record("wrapped", recipe={"seed": 1}, tags={"team": "course"})
loop(callback)
callback.finish()
print(callback.id)
"""


def test_any_loop_is_wrapped_with_a_callback(folder: Path) -> None:
    """In a process of its own, in which nothing but ``marin`` was imported."""
    said = subprocess.run([sys.executable, "-c", WRAPPED], capture_output=True, text=True, check=True, cwd=folder)
    run = marin.open().run(said.stdout.strip())
    assert list(run.losses) == [1.0, 0.5, 1 / 3, 0.25]
    first, second = [fact.body for fact in load(open_root().history(), run.id).loop]
    assert (first.end, second.end) == (2, 4) and first.batches[0] == batch_digest("batch 0")
    assert second.state == state_digest({"w": tensor_digest(np.full(2, 3))})


def test_the_command_executed_again_gives_the_record(folder: Path) -> None:
    root = execute(folder)
    alone = judged(root, "")
    assert words(alone)["training"] == words(alone)["data"] == "NOT_RUN" and alone.exit_code() == 3
    report = judged(root, f"{PYTHON} train.py")
    assert {words(report)[name] for name in ("ledger", "artifacts", "training", "model")} == {"PASS"}
    assert report.exit_code() == 0 and report.losses == dict(marin.open().run().losses)


@pytest.mark.table
@pytest.mark.parametrize(
    ("change", "step", "what", "tensors"),
    [
        ("other[1] = step >= 4", 5, "state after it", ("other",)),
        ("weights += 1e-9 * (step == 1)", 2, "loss", ()),
        ("batch = batch * (1 + (step == 2))", 2, "batch", ()),
    ],
)
def test_another_bit_is_found_by_step_and_tensor(
    folder: Path, change: str, step: int, what: str, tensors: tuple[str, ...]
) -> None:
    root = execute(folder)
    (folder / "train.py").write_text(PROGRAM.format(change=change))
    report = judged(root, f"{PYTHON} train.py")
    assert words(report)["training"] == "FAIL" and report.exit_code() == 1
    assert report.divergence is not None
    assert (report.divergence.step, report.divergence.explanation) == (step, what)
    assert report.divergence.tensors == tensors
    assert "the same bits both times" in report.verdicts["training"].lines[1]


@pytest.mark.parametrize(
    "command",
    [
        ["sample", "latest", "The"],
        ["train", "--continue", "latest", "--dry-run"],
        ["export", "latest", "--eval-bundle", "bundle"],
        ["export", "latest", "--unlearning", "certificate"],
    ],
)
def test_what_needs_a_recipe_says_that_a_loop_has_none(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    execute(folder)
    assert main.run(command) == 2
    said = capsys.readouterr().err
    assert "a loop of its user's own recorded this run" in said and "unknown key" not in said


def test_a_program_that_differs_from_itself_is_told_apart(folder: Path) -> None:
    root = execute(folder, "other[0] = time.time_ns()")
    report = judged(root, f"{PYTHON} train.py")
    assert words(report)["training"] == "FAIL"
    assert "other bits each time" in report.verdicts["training"].lines[1]


@pytest.mark.parametrize("command", ["false", "no-such-program", f"{PYTHON} -c pass"])
def test_a_command_that_makes_no_run_is_no_verdict_on_the_run(folder: Path, command: str) -> None:
    report = judged(execute(folder), command)
    assert words(report)["training"] == "UNSUPPORTED" and words(report)["ledger"] == "PASS"
    assert "--by" in report.verdicts["training"].lines[0]


def test_losses_alone_are_no_proof_of_a_state(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import marin\nwith marin.start_run() as run:\n    for step in range(3):\n        run.log(step, loss=1 / (step + 1))\n"
    )
    runpy.run_path("train.py")
    report = judged(open_root(), f"{PYTHON} train.py")
    assert words(report)["training"] == "PARTIAL" and words(report)["model"] == "NOT_RUN"
    assert report.exit_code() == 4


def forged(root: Root, change: dict[str, object], others: Mapping[str, dict[str, object]] | None = None) -> Report:
    """The newest run once more, as another one, with fields of its last segment changed, and of ``others`` by their type."""
    run = load(root.history(), marin.open().run().id)
    drafts = []
    for _, event in root.history().events(stream=stream_of(run.run)):
        body = json.loads(json.dumps(event.body)) | {"run": "forged22"}
        if event.type == events.LOOP_SEGMENT and body["end"] == 6:
            body |= change
        body |= (others or {}).get(event.type, {})
        drafts.append(Draft(event.type, stream_of("forged22"), body))
    root.append(drafts)
    return judged(root, "")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"losses": [(0.5).hex()] * 3}, "output of step loop"),
        ({"start": 4}, "expected train step 3"),
        ({"batches": []}, "expected one for each"),
        ({"manifest": ""}, "the list of tensors, or neither"),
    ],
)
def test_a_record_that_contradicts_itself_fails(folder: Path, change: dict[str, object], found: str) -> None:
    report = forged(execute(folder), change)
    assert words(report)["ledger"] == "FAIL" and found in " ".join(report.verdicts["ledger"].lines)


def test_another_state_than_the_listed_tensors_fails(folder: Path) -> None:
    report = forged(execute(folder), {"state": "sha256:" + "0" * 64})
    assert words(report)["artifacts"] == "FAIL" and "list of tensors" in report.verdicts["artifacts"].lines[0]


def test_a_loop_that_raises_leaves_a_failed_run_with_what_was_logged(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), marin.start_run("broken") as run:
        run.log(0, loss=2.5)
        _ = 1 / 0
    seen = marin.open().run(run.id)
    assert seen.status == "failed" and list(seen.losses) == [2.5]


def test_steps_go_on_one_by_one_and_runs_end_once(folder: Path) -> None:
    with marin.start_run() as run:
        run.log(7, loss=1.0)
        for step in (7, 9):
            with pytest.raises(UsageError, match="train step 8"):
                run.log(step, loss=1.0)
        with pytest.raises(UsageError, match="not a name"):
            run.save("train", PAGE)
        with pytest.raises(UsageError, match="not a number"):
            run.log(8, loss="low")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has ended"):
        run.log(8, loss=1.0)
    with pytest.raises(UsageError, match="not a recipe"):
        marin.start_run(recipe={"model": object()})


def test_the_number_of_a_metric_is_that_of_its_greatest_step(folder: Path) -> None:
    """As MLflow's latest metric is (3.17.2, ``latest_metrics`` by step): what was logged of another step later takes nothing
    from it. A last value that is no number leaves no number, as the last loss does."""
    with marin.start_run() as run:
        run.log(0, val=3.0)  # before the first train step, whatever number that has
        for step in range(1, 7):
            run.log(step, loss=1.0 / step, acc=0.9 if step < 5 else float("nan"))
        run.log(6, top=0.9)
        run.log(2, top=0.5)
        run.log(3, twice=0.1)
        run.log(3, twice=0.7)
    found = load(open_root().history(), run.id)
    assert found.metrics == {"loop.val": 3.0, "loop.top": 0.9, "loop.twice": 0.7, "loop.loss_last": 1 / 6}
    assert list(found.losses) == [1, 2, 3, 4, 5, 6]
    assert words(judged(open_root(), "true"))["ledger"] == "PASS"


def test_what_the_machine_measured_meanwhile_is_no_number_of_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a training: shown of an open run and over the curves, and claimed by nothing. What a loop itself measures under
    such a name stands."""
    name, own = "system/peak_memory_megabytes", "system/cpu_utilization_percentage"
    with marin.start_run() as run:
        for step in range(4):
            run.log(step, loss=1.0)
            if step % 2:
                run.tell(step, None, None, {own: 12.5})
                run.state({"a": np.ones(2)})
        assert main.run(["show", run.id]) == 0
        assert re.search(r"machine +processor 12%, memory .* at most", capsys.readouterr().out)
    found = load(open_root().history(), run.id)
    assert found.metrics == {"loop.loss_last": 1.0}
    recorded = facts(open_root().history(), events.MetricsRecorded, stream=stream_of(run.id))
    series = [one for fact in recorded for one in fact.body.series]
    assert [one.steps for one in series if one.key == name] == [[1], [3]]
    assert [float.fromhex(one.values[0]) for one in series if one.key == own] == [12.5, 12.5]
    assert {one.key for one in series} <= {name, own, "system/seconds_per_step", "system/energy_joules"}
    assert words(judged(open_root(), "true"))["ledger"] == "PASS"
    assert main.run(["verify", run.id, "--only", "ledger", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert any("measured meanwhile" in str(claim) and name in str(claim) for claim in claims)


def claims_follow(numbers: Mapping[str, float]) -> bool:
    """Whether the newest run, were these its numbers, would agree with itself."""
    told = {name: value.hex() for name, value in numbers.items()}
    changed: dict[str, dict[str, object]] = {
        events.STEP_COMPLETED: {"metrics": told},
        events.RUN_COMPLETED: {"metrics": {f"loop.{name}": value for name, value in told.items()}},
    }
    return "metrics" not in " ".join(forged(open_root(), {}, changed).verdicts["ledger"].lines)


@pytest.mark.parametrize(
    ("claimed", "follows"), [({}, True), ({"system/load": 3.0}, True), ({"system/load": 2.0}, False)]
)
def test_a_run_of_before_keeps_what_it_claims_of_its_machine(
    folder: Path, claimed: dict[str, float], follows: bool
) -> None:
    with marin.start_run() as run:
        run.log(0, loss=1.0)
        run.tell(0, None, None, {"system/load": 3.0})
    assert claims_follow({**claimed, "loss_last": 1.0}) == follows


@pytest.mark.parametrize(("acc", "follows"), [(0.9, True), (0.5, True), (0.7, False)])
def test_a_run_of_before_keeps_the_number_that_was_logged_last(folder: Path, acc: float, follows: bool) -> None:
    """0.9 is that of the greatest step, 0.5 what an older release recorded, and 0.7 follows from neither rule."""
    with marin.start_run() as run:
        run.log(0, loss=1.0)
        run.log(5, acc=0.9)
        run.log(2, acc=0.5)
    assert claims_follow({"acc": acc, "loss_last": 1.0}) == follows


def test_two_of_one_name_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"two tensors of one name.*a/b"):
        arrays({"a/b": np.zeros(2), "a": {"b": np.ones(2)}})
    with pytest.raises(UsageError, match="two keys of a recipe"):
        marin.start_run(recipe={1: "a", "1": "b"})  # type: ignore[dict-item]
    with marin.start_run() as run:
        with pytest.raises(UsageError, match="loss's own name"):
            run.log(0, loss=1.0, **{"train/loss": 2.0})
        for value in ("0.5", 10**400, 1j):
            with pytest.raises(UsageError, match=r"not a number.*tokens"):
                run.log(0, tokens=value)  # type: ignore[arg-type]


def test_a_refused_call_leaves_nothing_of_a_step(folder: Path) -> None:
    """Corrected, the same step is logged again; and a loop that goes on without it has a record that holds."""
    with marin.start_run() as run:
        run.log(0, loss=1.0)
        for wrong in ({"batch": lambda: None}, {"acc": "high"}, {"train/loss": 2.0}):
            with pytest.raises(UsageError):
                run.log(1, loss=0.5, **wrong)
        run.log(1, loss=0.25, batch=b"seen")
    found = load(open_root().history(), run.id)
    assert list(found.losses.values()) == [1.0, 0.25] and found.metrics == {"loop.loss_last": 0.25}
    assert words(judged(open_root(), "true"))["ledger"] == "PASS"


def test_what_a_crash_can_lose_is_bounded(folder: Path) -> None:
    run = marin.start_run()
    for step in range(2 * EVERY + 1):
        run.log(step, loss=float(step))
    assert len(marin.open().run(run.id).losses) == 2 * EVERY


def test_states_are_named_arrays_of_any_library() -> None:
    import jax.numpy as jnp

    values = np.arange(4, dtype=np.float32)
    nested = arrays({"a": {"b": values}, "c": [values, 2]})
    assert list(nested) == ["a/b", "c/0", "c/1"]
    assert batch_digest(jnp.asarray(values)) == batch_digest(values) == tensor_digest(values)
    assert batch_digest(b"text") == batch_digest("text") != batch_digest(values)
    with pytest.raises(UsageError, match="without tensors"):
        arrays({})
    with pytest.raises(UsageError, match="no tensor"):
        arrays({"a": object()})


def test_levanter_reports_by_its_own_tracker(folder: Path) -> None:
    import levanter.tracker
    from levanter.tracker import TrackerConfig

    from marin.loops.levanter import MarinTrackerConfig

    assert TrackerConfig.get_choice_class("marin") is MarinTrackerConfig
    tracker = MarinTrackerConfig(title="lev").init("abc")
    with tracker:
        levanter.tracker.log({"train/loss": np.float32(2.0), "throughput": 3, "batch": 8}, step=0)
        levanter.tracker.log({"train/loss": np.float32(1.5)}, step=1)
        levanter.tracker.log(
            {"train/loss": np.float32(1.5)}, step=1
        )  # as run_hooks(info, force=True) at the end of train
        with pytest.raises(UsageError, match="out of order"):
            levanter.tracker.log({"train/loss": np.float32(1.25)}, step=1)
        levanter.tracker.log({"eval/acc": 0.25}, step=None)
        levanter.tracker.log_summary({"parameter_count": 7})
    tracker.finish()
    run = marin.open().run()
    assert run.status == "completed" and list(run.losses) == [2.0, 1.5]
    told = {
        "loop.throughput": 3.0,
        "loop.batch": 8.0,
        "loop.eval/acc": 0.25,
        "loop.parameter_count": 7.0,
        "loop.loss_last": 1.5,
    }
    assert load(open_root().history(), run.id).metrics == told


def test_of_processes_that_train_as_one_the_first_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from levanter.tracker import NoopTracker

    from marin.loops.levanter import MarinTrackerConfig

    monkeypatch.setattr("jax.process_index", lambda: 1)
    assert isinstance(MarinTrackerConfig(title="lev").init("abc"), NoopTracker)


def test_the_trainer_reports_by_a_callback(folder: Path) -> None:
    from transformers import IntervalStrategy
    from transformers.trainer_callback import TrainerControl, TrainerState

    from marin.loops.trainer import MarinCallback

    class Arguments:
        logging_steps = 1
        logging_strategy = IntervalStrategy.STEPS
        logging_nan_inf_filter = True
        load_best_model_at_end = False

        def to_dict(self) -> dict[str, object]:
            told = {"lr_scheduler_kwargs": {"min_lr": 0.5}, "betas": (1, 2), "device": object(), "report_to": []}
            nested = {"stages": [{"stage": 2, "cache_dir": "/home/ada"}], "hub": {"token": "s"}, "api_token": "s"}
            return {"learning_rate": 0.25, "output_dir": "x", "seed": 3, "parallel": nested, **told}

    class Model:
        weights = 1.0

        def state_dict(self) -> dict[str, object]:
            return {"weights": np.full(3, self.weights)}

    callback, control = MarinCallback("hf"), TrainerControl()
    given = Arguments()
    callback.on_train_begin(given, TrainerState(), control)
    assert not given.logging_nan_inf_filter, "a trainer logs 0 for a loss that is NaN, where it logs each step"
    for step in (1, 2):
        callback.on_log(Arguments(), TrainerState(global_step=step), control, logs={"loss": 3.0 / step, "lr": 0.1})
    callback.on_train_end(Arguments(), TrainerState(global_step=2), control, model=Model())
    assert isinstance(callback.run, Loop)
    run = marin.open().run(callback.run.id)
    assert list(run.losses) == [3.0, 1.5] and run.status == "completed"
    recorded = load(open_root().history(), run.id).started.body.recipe
    told = {"learning_rate": (0.25).hex(), "seed": 3, "lr_scheduler_kwargs": {"min_lr": (0.5).hex()}, "betas": [1, 2]}
    told["parallel"] = {"stages": [{"stage": 2}]}  # nothing of a machine, nor what opens a door, however deep
    assert {name: value for name, value in recorded.items() if name != "loop"} == told
    (segment,) = [fact.body for fact in load(open_root().history(), run.id).loop]
    assert segment.state == state_digest({"weights": tensor_digest(np.ones(3))})
    callback.on_train_begin(Arguments(), TrainerState(), control)  # the same callback, trained with again
    callback.on_log(Arguments(), TrainerState(global_step=1), control, logs={"loss": np.float32(0.5), "n": np.int64(3)})
    with pytest.raises(UsageError, match="not a number"):
        callback.on_log(Arguments(), TrainerState(global_step=2), control, logs={"loss": "0.53"})
    callback.on_train_end(Arguments(), TrainerState(global_step=1), control)
    assert list(marin.open().run(callback.run.id).losses) == [0.5]
    given = Arguments()
    given.load_best_model_at_end = True  # what is in place of the last state when training has ended
    best = Model()
    best.weights = 0.0
    for stops in (True, False):
        callback.on_train_begin(given, TrainerState(), control)
        callback.on_log(given, TrainerState(global_step=1), control, logs={"loss": 0.5})
        callback.on_epoch_end(
            given, TrainerState(global_step=1), TrainerControl(should_training_stop=stops), model=Model()
        )
        callback.on_train_end(given, TrainerState(global_step=1), control, model=best)
        (segment,) = [fact.body for fact in load(open_root().history(), callback.run.id).loop]
        assert segment.state == (state_digest({"weights": tensor_digest(np.ones(3))}) if stops else "")
    other_process = MarinCallback("hf")
    follower = TrainerState(is_world_process_zero=False, global_step=1)
    other_process.on_train_begin(Arguments(), follower, control)
    other_process.on_log(Arguments(), follower, control, logs={"loss": 3.0})
    assert other_process.run is None, "a run for each process would be that many"
    for name, other in (("logging_steps", 10), ("logging_steps", 0.5), ("logging_strategy", IntervalStrategy.EPOCH)):
        given = Arguments()
        setattr(given, name, other)
        with pytest.raises(UsageError, match="logging_steps=1"):
            MarinCallback().on_train_begin(given, TrainerState(), control)


def test_the_page_of_docs_is_executed(folder: Path) -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
    (folder / "page.py").write_text(program)
    runpy.run_path("page.py")
    report = judged(open_root(), f"{PYTHON} page.py")
    assert words(report)["training"] == words(report)["model"] == "PASS"


def drawn(folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and page of `marin verify latest` with these options, as text without markup."""
    status = main.run(["-q", "verify", "latest", "--html", "by.html", *options])
    return status, as_text((folder / "by.html").read_text("utf-8"))


def as_text(page: str) -> str:
    body = re.sub(r"<style.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def said_in_lists(root: Root, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """What `marin ls`, Python, MLflow's tags and the lineage say of the only run, in one word."""
    capsys.readouterr()
    assert main.run(["ls"]) == 0
    listed = re.findall(r"  (PASS|PARTIAL, .*)$", capsys.readouterr().out.rstrip())
    fold = Fold("marin.local/x", own=root.reader())
    assert list(fold.apply_all(root.reader().events()))
    (projected,) = fold.runs.values()
    assert listed
    words = [*listed, marin.open().run().verified, verdict_of(projected.run), projected.verified]
    return {word.split()[0] for word in words} | {str(projected.passes)}


@pytest.mark.long
def test_the_pages_of_a_loop_that_was_executed_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = execute(folder)
    run, by = marin.open().run().id, f"{PYTHON} train.py"
    status, text = drawn(folder, "--by", by)
    assert status == 0 and "Executed again, bit for bit" in text and "Not established" not in text
    assert said_in_lists(root, capsys) == {"PASS", "True"}
    assert "training PASS model PASS" in text and "losses with the same bits 6 of 6" in text
    again = f"marin verify {run} --by {shlex.quote(by)}"
    assert f"Executed by {by} ." in text and f"Do it yourself: {again} ," in text
    assert f"By {root.verifier.name} on 2" in text
    assert "what it saw to what it saved: batches PASS, loop PASS, model PASS" in text
    assert "data NOT_RUN it was recorded by a loop" in text
    assert "Segments" not in text and " 0.0 s by" not in text and "worker(s)" not in text
    assert drawn(folder)[0] == 3  # anyone who looks at less later takes nothing back
    recorded = as_text(verification_page(root, run).decode())  # what `marin publish` shows
    assert "Executed again, bit for bit" in recorded and again in recorded and f"Executed by {by} ." in recorded
    report = as_text(draw(root, run, "report.html").decode())
    assert "Verified: PASS on 2" in report and f"executed again by {by}" in report and "PARTIAL" not in report
    assert f"compare every bit: {again}" in report and f"This page is a view: {again} is the check" in report


def test_the_pages_of_a_loop_that_nothing_executed_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = execute(folder)
    run = marin.open().run().id
    status, text = drawn(folder)
    assert status == 3 and "Not established here Nothing was executed:" in text and "Executed" not in text
    assert said_in_lists(root, capsys) == {"PARTIAL,", "PARTIAL", "False"}
    assert f"Do it yourself: marin verify {run} --by " in text and "train.py" in text
    report = as_text(draw(root, run, "report.html").decode())
    assert "Verified: PARTIAL on 2" in report and "nothing was executed" in report
    assert f"compare every bit: marin verify {run} --by " in report


def test_a_loop_that_saved_nothing_can_have_no_verdict_on_a_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(
        "import marin\nwith marin.start_run() as run:\n    for step in range(3):\n"
        "        run.log(step, loss=1 / (step + 1))\n    run.state({'weights': [1.0]})\n"
    )
    runpy.run_path("train.py")
    status, text = drawn(folder, "--by", f"{PYTHON} train.py")
    assert status == 0 and "Executed again, bit for bit" in text and "model NOT_RUN the loop saved no output" in text
    assert "what it saw to what it saved: loop PASS" in text
    assert said_in_lists(open_root(), capsys) == {"PASS", "True"}


@pytest.mark.long
def test_the_pages_of_a_loop_that_is_another_say_so(folder: Path) -> None:
    root = execute(folder)
    (folder / "train.py").write_text(PROGRAM.format(change="weights += 1e-9 * (step == 1)"))
    status, text = drawn(folder, "--by", f"{PYTHON} train.py")
    assert status == 1 and "Not what it claims to be" in text and "First divergence train step 2" in text
    assert "Verified: FAIL" in as_text(draw(root, marin.open().run().id, "report.html").decode())
    assert main.run(["-q", "verify", "latest", "--html", "by.html", "--by", "false"]) == 3
    text = as_text((folder / "by.html").read_text("utf-8"))
    assert "Nothing was executed" not in text and "Not established here" in text
