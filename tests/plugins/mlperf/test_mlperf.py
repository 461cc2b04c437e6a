"""MLPerf: the lines of a log, the one seed, reference points. The checkers of MLPerf
itself judge real logs in tests/foreign/submissions/test_mlperf.py."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments import exp006_rcp as rcp
from ledger import Draft, Tampered
from marin.errors import DataError, MarinError, MissingEvidence, UsageError
from marin.execution.phases import successor
from marin.execution.seeds import with_seed
from marin.history.run import Run
from marin.history.runs import load, stream_of
from marin.plugins.mlperf.benchmark import GRAMMAR_LM, Submission, check_closed, submission_of
from marin.plugins.mlperf.checkers import REFERENCE_POINTS, check_results
from marin.plugins.mlperf.hyperparameters import Range, values_of, violations
from marin.plugins.mlperf.judgement import compare, differences, judge_result, read_submission
from marin.plugins.mlperf.lines import Line, check_agreed, lines, number_format, write_log
from marin.plugins.mlperf.result import ResultLine, read_result, repeated_seeds
from marin.plugins.mlperf.seeding import seeding
from marin.plugins.mlperf.system import stated_in
from marin.recipe import schema
from marin.recipe.schema import Recipe, Trainer, digest, recorded
from marin.recipe.seeds import seeds_of
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import Root
from marin.record.verdicts import NAMES
from marin.verify.verdict import Verdict
from tests.plugins.mlperf.test_hyperparameters import REFERENCE, TABLE, changed

PROJECT = Path(__file__).resolve().parents[3]
TRAIN_SAMPLES = 5545
"""Sequences of the benchmark's train split."""
SHA = "sha256:" + "a" * 64
PROCESSOR = {"processor": {"model": "a processor"}}

# A record of two phases


class Record:
    """A root in which the benchmark was trained in two phases: the events alone, without a training."""

    def __init__(self, folder: Path, losses: tuple[float, float] = (5.0, 4.4), seed: int | None = None) -> None:
        self.root: Root = create_root(str(folder / ".marin"), origin="test.example/log")
        first = msgspec.structs.replace(REFERENCE, seed=seed, trainer=Trainer(num_steps=4, batch_size=8))
        self.first = with_seed(self.root, first)
        phase = successor(self.first, msgspec.structs.replace(self.first, trainer=Trainer(num_steps=2, batch_size=8)))
        self.second = phase
        self.run("first000", self.first, {"loss": losses[0]})
        self.run("second00", self.second, {"loss": losses[1]}, continues="first000")

    def append(self, run: str, kind: str, body: events.Body) -> None:
        self.root.append([Draft(kind, stream_of(run), events.write(body))])

    def run(
        self,
        run: str,
        recipe: Recipe,
        metrics: dict[str, float],
        *,
        continues: str = "",
        tokens: dict[str, float] | None = None,
        **trained: Any,
    ) -> None:
        link = events.Continues(run=continues, step=recipe.first_step, state=SHA, checkpoint=SHA)
        self.append(
            run,
            events.RUN_STARTED,
            events.RunStarted(
                run=run,
                pipeline="default",
                plan=SHA,
                recipe_digest=digest(recipe),
                recipe=recorded(recipe),
                code={},
                environment=PROCESSOR,
                continues=link if continues else None,
            ),
        )
        counted = {"train_tokens": 3200.0, "validation_tokens": 640.0} if tokens is None else tokens
        self.step(run, "tokens", {}, counted)
        config = {"seed": str(recipe.seed), "dataset": schema.plain(recipe.dataset)}
        self.begin(run, "train", config)
        self.trained(run, recipe, **trained)
        self.end(run, "train", {})
        self.begin(run, "evaluate", {"seed": str(recipe.seed)})
        measured = {name: value.hex() for name, value in metrics.items()}
        self.append(run, events.EVAL_COMPLETED, events.EvalCompleted(run=run, model=SHA, metrics=measured))
        self.end(run, "evaluate", metrics)

    def trained(
        self, run: str, recipe: Recipe, seeds: Any = None, devices: int = 1, device: dict[str, Any] | None = None
    ) -> None:
        started = events.TrainStarted(
            run=run,
            first_step=recipe.first_step,
            num_steps=recipe.last_step,
            state=SHA,
            manifest=SHA,
            program={},
            seeds=seeds or seeds_of(recipe),
            devices=devices,
            attempt=1,
            device=device or {"kind": "cpu"},
        )
        self.append(run, events.TRAIN_STARTED, started)
        count = recipe.trainer.num_steps
        segment = events.TrainSegment(
            run=run,
            start=recipe.first_step,
            end=recipe.last_step,
            losses=[(6.0).hex()] * count,
            batches=[SHA] * count,
            fingerprints=[SHA] * count,
            start_state=SHA,
            end_state=SHA,
            trace=SHA,
        )
        self.append(run, events.TRAIN_SEGMENT, segment)

    def step(self, run: str, step: str, config: dict[str, Any], metrics: dict[str, float]) -> None:
        self.begin(run, step, config)
        self.end(run, step, metrics)

    def begin(self, run: str, step: str, config: dict[str, Any]) -> None:
        started = events.StepStarted(
            run=run,
            step=step,
            identity=identity(run, step),
            config_digest=SHA,
            config=config,
            inputs={},
            code=SHA,
            attempt=1,
        )
        self.append(run, events.STEP_STARTED, started)

    def end(self, run: str, step: str, metrics: dict[str, float]) -> None:
        completed = events.StepCompleted(
            run=run,
            step=step,
            identity=identity(run, step),
            inputs={},
            output=events.Output(kind=step, digest=SHA, size=1, artifact=SHA),
            metrics={name: value.hex() for name, value in metrics.items()},
            seconds=1.0,
        )
        self.append(run, events.STEP_COMPLETED, completed)

    @property
    def last(self) -> Run:
        return load(self.root.history(), "second00")

    def log(self, division: Any = "open", run: str = "second00") -> list[Line]:
        history = self.root.history()
        view = load(history, run)
        given = Submission(division=division)
        return lines(history, view, GRAMMAR_LM, given, seeding(history, view), origin="test.example/log")


def identity(run: str, step: str) -> str:
    return f"sha256:{(run + step).encode().hex():0<64}"[:71]


@pytest.fixture
def record(own_keys: Path, tmp_path: Path) -> Record:
    return Record(tmp_path)


# The log


def only(log: list[Line], key: str) -> Line:
    (line,) = [line for line in log if line.key == key]
    return line


def test_a_log_of_two_phases(record: Record) -> None:
    log = record.log("closed")
    keys = [line.key for line in log]
    timed = [key for key in keys if key.endswith(("_start", "_stop", "accuracy"))]
    block = ["block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    assert timed == ["init_start", "init_stop", "run_start", *block, *block, "run_stop"]
    values = values_of(TABLE, record.second)
    assert {name: only(log, name).value for name in values} == values
    assert only(log, "submission_org").value == "test.example/log"
    assert only(log, "submission_platform").value == "1 x a processor"
    assert (only(log, "train_samples").value, only(log, "eval_samples").value) == (100, 20)
    assert only(log, "gradient_accumulation_steps").value == 8
    accuracies = [line for line in log if line.key == "eval_accuracy"]
    assert [(line.value, line.metadata["samples_count"]) for line in accuracies] == [(5.0, 32), (4.4, 48)]
    assert [line.metadata["epoch_num"] for line in accuracies] == [0.32, 0.48]
    assert only(log, "run_stop").metadata == {"status": "success", "samples_count": 48}
    assert only(log, "trained_samples").value == 48
    seed = only(log, "seed")
    assert seed.value == record.first.seed and seed.metadata["source"] == "system"
    assert seed.metadata["derived"] == ["data", "model", "train"]
    by_place = [line.time for line in log if line.key in ("init_start", "run_start", "block_start", "run_stop")]
    assert by_place == sorted(by_place) and by_place[0] > 1_700_000_000_000


def test_devices_that_share_matrices_are_said(record: Record) -> None:
    assert only(record.log(), "tensor_parallelism").value == 1
    shared = {"devices": 4, "device": {"kind": "cpu", "tensor_parallel": 2}}
    record.run("third000", record.second, {"loss": 4.4}, continues="first000", **shared)
    log = record.log(run="third000")
    assert only(log, "tensor_parallelism").value == 2
    assert only(log, "gradient_accumulation_steps").value == 4, "eight sequences, by two groups"


@pytest.mark.parametrize("said", [0, -1, 3, True, "2", None, 2.5])
def test_no_training_shares_matrices_so(record: Record, said: object) -> None:
    shared = {"devices": 4, "device": {"kind": "cpu", "tensor_parallel": said}}
    record.run("third000", record.second, {"loss": 4.4}, continues="first000", **shared)
    with pytest.raises(DataError, match=r"device.tensor_parallel: expected a divisor of 4 devices, found"):
        record.log(run="third000")


@pytest.mark.parametrize(
    ("said", "changed"),
    [
        ("fp32", {}),
        ("fp32", {"profile": "gpu"}),
        ("bfloat16", {"profile": "gpu", "compute_dtype": "bfloat16", "matmul_precision": "default"}),
        ("int8", {"profile": "exact"}),
        ("int8", {"profile": "exact", "factor_bits": 8}),
        ("int4", {"profile": "exact", "factor_bits": 7}),
    ],
)
def test_formats_are_those_that_were_multiplied(said: str, changed: dict[str, Any]) -> None:
    assert number_format(msgspec.structs.replace(REFERENCE.arithmetic, **changed)) == said


def test_a_format_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="no name for numbers of so few bits"):
        number_format(msgspec.structs.replace(REFERENCE.arithmetic, profile="exact", factor_bits=3))


def test_a_log_ends_where_the_target_was_reached(own_keys: Path, tmp_path: Path) -> None:
    log = Record(tmp_path, (4.4, 4.0)).log("closed")
    assert only(log, "eval_accuracy").value == 4.4
    assert only(log, "run_stop").metadata == {"status": "success", "samples_count": 32}
    assert only(log, "max_steps").value == 4


def test_a_run_that_does_not_reach_it_is_aborted(own_keys: Path, tmp_path: Path) -> None:
    log = Record(tmp_path, (5.0, 4.8)).log()
    assert only(log, "run_stop").metadata == {"status": "aborted", "samples_count": 48}


def test_the_closed_division_draws_its_seed_and_keeps_the_contract(own_keys: Path, tmp_path: Path) -> None:
    given = Record(tmp_path, seed=7)
    assert only(given.log("open"), "seed").metadata["source"] == "recipe"
    with pytest.raises(UsageError, match=r"draws its seeds.*found 7, given in the recipe"):
        given.log("closed")
    given.run("wide0000", changed("optimizer.beta1", 0.5, given.first), {"loss": 4.0})
    assert only(given.log("open", "wide0000"), "opt_adamw_beta_1").value == 0.5
    with pytest.raises(
        UsageError, match=r"closed division: opt_adamw_beta_1 \(optimizer.beta1\): expected 0.9, found 0.5"
    ):
        given.log("closed", "wide0000")


@pytest.mark.parametrize(
    ("path", "recipe"),
    [
        (
            "initial.model",
            msgspec.structs.replace(REFERENCE, initial=schema.Initial(name="x", model=SHA, tokenizer=SHA)),
        ),
        ("tokenizer.artifact", changed("tokenizer.artifact", SHA)),
        ("tokenizer.min_frequency", changed("tokenizer.min_frequency", 3)),
        ("tokens.append_eos", changed("tokens.append_eos", False)),
        ("trainer.z_loss", changed("trainer.z_loss", 1e-4)),
        ("model.tie_word_embeddings", changed("model.tie_word_embeddings", True)),
        ("exclude", msgspec.structs.replace(REFERENCE, exclude=("a-document",))),
    ],
)
def test_what_the_table_does_not_name_is_the_references(
    own_keys: Path, tmp_path: Path, path: str, recipe: Recipe
) -> None:
    assert violations(TABLE, recipe) == []
    given = Record(tmp_path)
    given.run("other000", with_seed(given.root, msgspec.structs.replace(recipe, trainer=recipe.trainer)), {"loss": 4.0})
    assert given.log("open", "other000")
    with pytest.raises(UsageError, match=rf"does not name is the reference's.*closed division: {path}"):
        given.log("closed", "other000")
    check_closed(GRAMMAR_LM, changed("trainer.steps_per_segment", 16), where="here")


def test_phases_have_the_same_hyperparameters(record: Record) -> None:
    faster = changed("optimizer.learning_rate", 0.01, record.second)
    record.run("faster00", faster, {"loss": 4.0}, continues="first000")
    with pytest.raises(UsageError, match=r"a phase changes.*opt_base_learning_rate: expected 0\.006, found 0\.01"):
        record.log(run="faster00")


def test_what_was_not_trained_or_measured_is_not_logged(record: Record) -> None:
    first = next(line for line in record.log() if line.key == "block_start")
    assert first.metadata["run"] == "first000"
    record.root.append([Draft(events.RUN_STARTED, stream_of("open0000"), events.write(record.last.started.body))])
    with pytest.raises(MissingEvidence, match="not trained to its end"):
        record.log(run="open0000")


@pytest.mark.parametrize(
    ("metrics", "tokens", "said"),
    [
        ({"perplexity": 3.0}, {"train_tokens": 320.0, "validation_tokens": 64.0}, "nothing was measured"),
        ({"loss": 4.0}, {"train_tokens": 31.0, "validation_tokens": 64.0}, "how much data"),
        ({"loss": 4.0}, {"train_tokens": math.inf, "validation_tokens": 64.0}, "how much data"),
        ({"loss": 4.0}, {"train_tokens": math.nan, "validation_tokens": 64.0}, "how much data"),
        ({"loss": 4.0}, {}, "how much data"),
    ],
)
def test_a_record_that_lacks_something_is_refused_in_words(
    record: Record, metrics: dict[str, float], tokens: dict[str, float], said: str
) -> None:
    record.run("lacking0", record.first, metrics, tokens=tokens)
    with pytest.raises(MissingEvidence, match=said):
        record.log(run="lacking0")


def test_a_loss_that_is_no_number_reaches_no_target(record: Record) -> None:
    record.run("diverged", record.first, {"loss": math.nan})
    assert only(record.log(run="diverged"), "run_stop").metadata["status"] == "aborted"


def test_without_the_logger_the_cure_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_logging", None)
    with pytest.raises(MissingEvidence, match=r"--require-hashes -r docker/requirements-mlperf\.lock"):
        write_log([], tmp_path / "result_0.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_submission_is_read_strictly(tmp_path: Path) -> None:
    file = tmp_path / "submission.json"
    file.write_text('{"org": "a lab", "division": "closed"}')
    assert submission_of(str(file)) == Submission(org="a lab", division="closed")
    deep = '{"org":' * 100_000
    for wrong in ('{"division": "half"}', '{"organisation": "x"}', "[]", "{", deep, str(tmp_path / "nothing.json")):
        with pytest.raises(UsageError, match="the submission cannot be read"):
            submission_of(wrong)


@pytest.mark.parametrize(
    "text", ['{"cooling": "\\ud800"}', '{"cooling": 1}', '{"cooling":' * 100_000, "[]", '{"warmth": "a"}']
)
def test_a_description_that_no_file_can_have_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "system.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"cannot be read|does not have"):
        stated_in(file)


def test_a_run_that_never_converges_ends(tmp_path: Path) -> None:
    """In the open division too, where the export refuses no number of train steps."""
    said, result = tmp_path / "said", tmp_path / "result_0.txt"
    for name, text in {"marin": f'echo "$*" >>{said}; echo aborted >{result}', "python": "exit 9"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = PROJECT / "benchmarks" / "grammar_lm" / "run_and_time.sh"
    most = next(row.constraint for row in TABLE if row.name == "max_steps")
    assert isinstance(most, Range)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "STEPS": str(int(most.high) // 3)}
    done = subprocess.run([script, result], env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"after {int(most.high) // 3 * 3} train steps" in done.stderr
    assert sum(line.startswith("-q train ") for line in said.read_text().splitlines()) == 3


# Seeds


def test_one_seed_and_no_other(record: Record) -> None:
    found = seeding(record.root.history(), record.last)
    assert (found.seed, found.source, found.attempts) == (record.first.seed, "system", 2)
    assert {(place.step, place.path) for place in found.places} == {("train", "seed"), ("evaluate", "seed")}
    assert {(place.path, place.seed) for place in found.data} == {("dataset.seed", "0")}
    assert not found.replayed


def pass_all(record: Record, run: str, mode: str, **words: str) -> None:
    """Somebody verified ``run``, and everything passed but for ``words``."""
    seen = record.root.reader().checkpoint()
    passed = events.ReplayCompleted(
        run=run,
        verdicts={**dict.fromkeys(NAMES, "PASS"), **words},
        training={"mode": mode},
        first_divergence=None,
        log_checkpoint={"origin": seen.origin, "size": seen.size, "root": seen.root.hex()},
        details={},
        environment={},
    )
    record.append(run, events.REPLAY_COMPLETED, passed)


def test_a_verification_of_the_last_phase_establishes_it(record: Record) -> None:
    """It executes the phases before it too; that of an earlier one says nothing of what came later."""
    for run, mode, replayed in (("first000", "full", False), ("second00", "sample", False), ("second00", "full", True)):
        pass_all(record, run, mode)
        assert seeding(record.root.history(), record.last).replayed is replayed


def test_it_alone_is_enough(record: Record) -> None:
    pass_all(record, "second00", "full")
    assert seeding(record.root.history(), record.last).replayed
    pass_all(record, "second00", "full", training="FAIL")
    assert not seeding(record.root.history(), record.last).replayed, "the newest answer counts"


@pytest.mark.parametrize("what", ["attempt", "configuration", "several", "derived", "data", "phase"])
def test_another_seed_in_the_record_is_found(record: Record, what: str) -> None:
    other = str(int(record.first.seed or 0) ^ 1)
    seeds = seeds_of(record.second)
    if what == "attempt":
        record.trained("second00", record.second, seeds | {"root": other})
    elif what == "derived":
        record.trained("second00", record.second, seeds | {"derived": [*seeds["derived"], "dropout"]})
    elif what == "configuration":
        record.step("second00", "export", {"deep": [{"shuffle_seed": other}]}, {})
    elif what == "several":
        record.step("second00", "export", {"seeds": [str(record.second.seed), other]}, {})
    elif what == "data":
        record.step("second00", "corpus", {"dataset": {"seed": "1"}}, {})
    else:
        stranger = msgspec.structs.replace(record.second, seed=int(other))
        record.run("third000", stranger, {"loss": 4.0}, continues="second00")
    history = record.root.history()
    last = load(history, "third000" if what == "phase" else "second00")
    with pytest.raises(MarinError, match="the record has another seed: event "):
        seeding(history, last)


def test_a_seed_is_drawn_before_the_run_and_once(own_keys: Path, tmp_path: Path) -> None:
    late = Record(tmp_path, seed=5)
    wanted = digest(msgspec.structs.replace(late.first, seed=None))
    body = events.SeedDrawn(recipe=wanted, seed="5")
    late.root.append([Draft(events.SEED_DRAWN, "seeds", events.write(body), id="late")])
    with pytest.raises(MarinError, match="a seed is drawn first"):
        seeding(late.root.history(), late.last)
    twice = events.SeedDrawn(recipe=wanted, seed="6")
    late.root.append([Draft(events.SEED_DRAWN, "seeds", events.write(twice), id="twice")])
    with pytest.raises(MarinError, match="drawn once"):
        seeding(late.root.history(), late.last)


# Reference points


def test_samples_to_converge_is_the_first_measurement_at_the_target() -> None:
    curve = [rcp.Measured(768, 4.7), rcp.Measured(256, 5.5), rcp.Measured(512, 4.71), rcp.Measured(1024, 4.9)]
    assert rcp.samples_to_converge(curve, 4.7) == 768
    assert rcp.samples_to_converge(curve, 4.0) is None


def test_reference_points_are_in_epochs_and_whole() -> None:
    point = rcp.Point(8, {1: 768, 2: 512, 3: 1024, 4: 768}, {"opt_base_learning_rate": 0.006})
    assert point.reached == [512, 768, 768, 1024] and point.olympic_mean == 768
    told = {"creator": "us", "when": "now", "platform": "here", "precision": "FP32"}
    record = rcp.as_json([point], benchmark="grammar_lm", train_samples=TRAIN_SAMPLES, **told)["grammar_lm_ref_8"]
    assert record["Epochs to converge"] == [0.092, 0.139, 0.139, 0.185] and record["BS"] == 8
    for samples in ({1: 768, 2: None, 3: 512}, {1: 768, 2: 512}):
        with pytest.raises(DataError, match="no reference point"):
            rcp.as_json([replace(point, samples=samples)], benchmark="grammar_lm", train_samples=TRAIN_SAMPLES, **told)
    assert math.isnan(replace(point, samples={1: 768}).olympic_mean)


def test_the_experiment_measures_where_it_says() -> None:
    assert len(rcp.numbers) == len(rcp.SEEDS) * sum(rcp.PHASES.values())
    for name, evaluated in rcp.numbers.items():
        size, seed, samples = map(int, re.findall(r"\d+", name))
        recipe: Recipe = evaluated.config
        before = recipe.phase.first_sequence if recipe.phase is not None else 0
        assert (recipe.trainer.batch_size, recipe.seed) == (size, seed)
        assert before + size * recipe.trainer.num_steps == samples
        assert violations(TABLE, recipe) == []


def test_the_kept_reference_points_are_of_this_benchmark() -> None:
    kept = json.loads((REFERENCE_POINTS / "rcps_grammar_lm.json").read_text("utf-8"))
    assert {record["BS"] for record in kept.values()} == rcp.FIRST.keys()
    for record in kept.values():
        size, samples = record["BS"], record["Samples to converge"]
        measured = {rcp.FIRST[size] + rcp.EVERY * phase for phase in range(rcp.PHASES[size])}
        assert len(samples) == len(rcp.SEEDS) and set(samples) <= measured
        assert record["Epochs to converge"] == [round(count / TRAIN_SAMPLES, rcp.ROUNDED) for count in samples]
        assert record["Hyperparams"] == rcp.hyperparameters[str(size)]


# A result held against its record


def as_written(log: list[Line], **code: object) -> list[dict[str, Any]]:
    """The objects that MLPerf's logger writes; its own bytes are compared in tests/foreign."""
    form = {"event": "POINT_IN_TIME", "start": "INTERVAL_START", "end": "INTERVAL_END"}
    return [
        {"namespace": "", "time_ms": line.time, "event_type": form[line.kind], "key": line.key, "value": line.value}
        | {"metadata": {"file": "logfile.py", "lineno": 7} | code | line.metadata}
        for line in log
    ]


def said(entries: list[dict[str, Any]]) -> list[ResultLine]:
    return read_result("".join(f":::MLLOG {json.dumps(entry)}\n" for entry in entries).encode(), "result_0.txt")


def test_a_result_is_compared_with_its_record_line_by_line(record: Record) -> None:
    log = record.log()
    written = as_written(log)
    assert differences(said(written), log) == []
    assert differences(said(as_written(log, file="elsewhere.py", lineno=8)), log) == [], "another version exported it"
    (place,) = [number for number, line in enumerate(log) if line.key == "eval_accuracy" and line.value == 4.4]

    def edited(**fields: object) -> list[str]:
        return differences(said([*written[:place], written[place] | fields, *written[place + 1 :]]), log)

    line = f"line {place + 1}: "
    assert edited(value=4.3) == [f"{line}eval_accuracy: value: recorded 4.4, here 4.3"]
    assert edited(time_ms=log[place].time - 1) == [
        f"{line}eval_accuracy: time_ms: recorded {log[place].time}, here {log[place].time - 1}"
    ]
    half = log[place].metadata | {"samples_count": 24}
    assert edited(metadata=half) == [f"{line}eval_accuracy: metadata.samples_count: recorded 48, here 24"]
    assert edited(metadata=None)[0].startswith(f"{line}eval_accuracy: metadata")
    assert edited(key="eval_error") == [f"{line}key: recorded eval_accuracy, here eval_error"]
    count = f"{len(log) - 1} lines, the record has {len(log)}"
    assert differences(said([*written[:place], *written[place + 1 :]]), log) == [
        f"{line}key: recorded eval_accuracy, here eval_stop",
        count,
    ]
    assert differences(said(written[:-1]), log) == [count]
    assert differences(said([*written, written[0]]), log) == [f"{len(log) + 1} lines, the record has {len(log)}"]


def test_a_line_is_found_where_the_checkers_find_it() -> None:
    entry = b':::MLLOG {"key": "a", "value": 1, "metadata": {"lineno": 3, "more": 4}}'
    found = read_result(b"words\r\nbefore it " + entry + b"\rmore words", "here")
    assert [(one.number, one.entry) for one in found] == [(2, {"key": "a", "value": 1, "metadata": {"more": 4}})]
    for wrong in (b':::MLLOG {"key" "a"}', b":::MLLOG []", b':::MLLOG {"key": 1}', b':::MLLOG {"a":' * 100_000):
        with pytest.raises(DataError, match="no line of a log: here:1"):
            read_result(wrong, "here")


def test_what_a_submitter_says_of_himself_is_taken_from_the_result() -> None:
    def lines_with(**fields: object) -> list[ResultLine]:
        return said([{"key": f"submission_{name}", "value": value} for name, value in fields.items()])

    given = {"benchmark": "grammar_lm", "org": "a lab", "division": "closed", "platform": "two cores"}
    assert read_submission(lines_with(**given)) == Submission(org="a lab", division="closed", platform="two cores")
    for wrong in ({"division": "../../elsewhere"}, {"org": 1}, {"warmth": "a"}):
        with pytest.raises(DataError, match="not what a submission says"):
            read_submission(lines_with(**wrong))


def compared(record: Record, log: list[dict[str, Any]]) -> Verdict:
    data = "".join(f":::MLLOG {json.dumps(entry)}\n" for entry in log).encode()
    return compare(data, "result_0.txt", record.root.history(), record.last, GRAMMAR_LM, origin="test.example/log")


def test_a_log_that_the_record_does_not_say_fails(record: Record) -> None:
    written = as_written(record.log())
    closed = [entry | {"value": "closed"} if entry["value"] == "open" else entry for entry in written]
    assert compared(record, closed).outcome == "PASS", "its seed was drawn, and it keeps the contract"
    half = [entry | {"value": 24} if entry["key"] == "trained_samples" else entry for entry in written]
    found = compared(record, half)
    assert (found.outcome, found.lines) == (
        "FAIL",
        (f"line {len(written) - 1}: trained_samples: value: recorded 48, here 24",),
    )


def test_no_result_follows_from_events_that_contradict_one_another(record: Record, tmp_path: Path) -> None:
    """These have no identities that agree: enough to draw a log of, and not to hand one in."""
    (tmp_path / "result_0.txt").write_text("")
    found = judge_result(tmp_path / "result_0.txt", record.root, "second00", GRAMMAR_LM, [], record=False)
    assert found.outcome == "FAIL" and "contradict one another" in found.verdicts["result"].lines[0]
    with pytest.raises(Tampered, match="contradict one another"):
        check_agreed(record.root.history(), record.last)


def test_a_line_that_a_checker_takes_for_another_fails(record: Record) -> None:
    """What says where the code stood is not compared, and MLPerf's checker of reference points reads it like all else."""
    written = as_written(record.log())
    (place,) = [number for number, entry in enumerate(written) if entry["key"] == "gradient_accumulation_steps"]
    other = written[place] | {"metadata": {"file": "global_batch_size.py", "lineno": 7}}
    found = compared(record, [*written[:place], other, *written[place + 1 :]])
    assert (found.outcome, found.lines) == (
        "FAIL",
        (
            f"line {place + 1}: gradient_accumulation_steps: a checker takes it for global_batch_size, by what else it says",
        ),
    )
    log = "".join(f":::MLLOG {json.dumps(entry)}\n" for entry in written).replace(
        '"eval_accuracy"', '"eval\\u005faccuracy"'
    )
    hidden = compare(log.encode(), "x", record.root.history(), record.last, GRAMMAR_LM, origin="test.example/log")
    assert hidden.outcome == "FAIL" and "eval_accuracy: hides its key from a checker" in hidden.lines[0]


def test_a_seed_is_the_same_wherever_it_was_logged() -> None:
    def seeded(seed: object, line: int) -> list[ResultLine]:
        return said([{"key": "seed", "value": seed, "metadata": {"file": "a.py", "lineno": line}}])

    assert repeated_seeds({"a": seeded(7, 1), "b": seeded(8, 1)}) == []
    assert repeated_seeds({"a": seeded(7, 1), "b": seeded(7, 2)}) == ["seed 7 of b is that of a"]
    assert repeated_seeds({"a": seeded(7, 1), "b": seeded("7", 2), "c": seeded([], 1), "d": seeded([], 1)}) == [
        "seed 7 of b is that of a",
        "seed [] of d is that of c",
    ]


def test_a_division_whose_rules_the_run_broke_fails(own_keys: Path, tmp_path: Path) -> None:
    given = Record(tmp_path, seed=7)
    assert compared(given, as_written(given.log())).outcome == "PASS"
    claimed = [entry | {"value": "closed"} if entry["value"] == "open" else entry for entry in as_written(given.log())]
    found = compared(given, claimed)
    assert found.outcome == "FAIL" and "draws its seeds" in found.lines[0]


def test_without_the_checkers_the_cure_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marin.plugins.mlperf.checkers.find_spec", lambda _: None)
    with pytest.raises(MissingEvidence, match=r"--require-hashes -r docker/requirements-mlperf\.lock"):
        check_results([], GRAMMAR_LM)
