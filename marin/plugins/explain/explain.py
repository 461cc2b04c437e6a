"""``--explain``: one train step under two settings, taken apart until the first operation that differs is found.

Causes that are known without bits are named first: another recipe, other tokens, another program. Then two processes,
one per setting, execute the step from the same proven state: program by program, and in the first one that differs
operation by operation; where no operation differs alone, by bisection over the operations that are compiled together.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import msgspec

from ledger import Store
from marin.errors import MarinError, MissingEvidence, StepFailed, UsageError
from marin.history.run import Run
from marin.process.arithmetic import APPLIED
from marin.provenance.code import code_folder
from marin.record import outputs
from marin.verify.segments.compare import Divergence
from marin.verify.segments.explanation import Explanation, Record, Setting, first_difference, first_true
from marin.verify.segments.ordering import by_execution
from marin.verify.verdict import Report

FIRST_PROGRAMS = ("initial state", "gradient", "square", "update")
"""Programs that multiply; the others only move and add, and have no operations worth naming."""


class Process(AbstractContextManager["Process"]):
    """A :mod:`marin.plugins.explain.stepwise` under one setting."""

    def __init__(self, setting: Setting, run: Run) -> None:
        self.setting = setting
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JAX_", "XLA_")) and name != APPLIED
        }
        self._process = subprocess.Popen(
            [setting.python or sys.executable, "-m", "marin.plugins.explain.stepwise"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=kept | setting.environment(run.recipe.arithmetic) | {"PYTHONPATH": str(code_folder())},
        )

    def send(self, **question: Any) -> None:
        """Put a question; :meth:`receive` waits for the answer, so that two processes work at the same time."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(question) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # receive says why

    def receive(self) -> dict[str, Any]:
        """The answer.

        Raises:
            StepFailed: the process ended, or refused.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise StepFailed(
                "a setting can not be executed here",
                where=self.setting.name,
                expected="an answer",
                found=last[0][:300],
                cure="choose settings that this processor and compiler have",
            )
        reply: dict[str, Any] = msgspec.json.decode(line)
        if reply["error"]:
            raise StepFailed("the step was not executed", where=self.setting.name, found=reply["error"])
        return reply

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()


def explain_report(
    report: Report,
    run: Run,
    store: Store,
    divergence: Divergence | None,
    settings: Sequence[Setting],
    *,
    devices: int,
    remarks: Sequence[str],
    steps: tuple[int, int] | None,
) -> Report:
    """``report`` on ``run`` with an explanation of the first step that differs: between the recorded and the present setting
    (``devices``), or between two ``settings`` that are given (then also when nothing failed: in the segment of ``steps``, or the
    first). ``remarks``: how this environment differs from the recorded one."""
    if not settings and (divergence is None or divergence.step is None or not run.training):
        return report
    recorded = run.training[-1].body.devices if run.training else 1
    pair = list(settings) or [
        Setting(f"recorded (devices={recorded})", recorded),
        Setting(f"present (devices={devices})", devices),
    ]
    step = divergence.step if divergence is not None else None
    causes = [*remarks, *(line for line in report.verdicts["training"].lines if line.startswith("different program"))]
    if divergence is not None and "tokens (data)" in divergence.explanation:
        causes.append(f"data: {divergence.describe()}")
    try:
        explained = explain(run, store, step, pair, causes, steps or (run.segments[0].body.start, 0))
    except MarinError as error:
        explained = Explanation(
            step or 0, (pair[0].name, pair[1].name), "cause" if causes else "none", (*causes, f"not explained: {error}")
        )
    return replace(report, explanation=explained)


def explain(
    run: Run, store: Store, step: int | None, settings: Sequence[Setting], causes: Sequence[str], span: tuple[int, int]
) -> Explanation:
    """Take train step ``step`` apart under two ``settings``; None: the first step of ``span`` in which they differ.

    ``causes``: what is known to differ before any bits. They are told first, and do not stop the search.

    Raises:
        UsageError: not two settings, or no segment holds the step.
        MissingEvidence: the state that the segment starts from is not stored.
    """
    began = time.monotonic()
    if len(settings) != 2:
        raise UsageError(
            "two settings are compared",
            where="--setting",
            expected="two",
            found=str(len(settings)),
            cure="give --setting twice",
        )
    at = step if step is not None else span[0]
    segment = next((fact.body for fact in run.segments if fact.body.start <= at < fact.body.end), None)
    if segment is None:
        raise UsageError(
            "no segment holds this train step",
            where=f"run {run.run}",
            expected="a recorded train step",
            found=str(at),
            cure="see `marin show` for the segments",
        )
    names = (settings[0].name, settings[1].name)
    with ExitStack() as held:
        base = Path(held.enter_context(TemporaryDirectory(prefix="marin-explain-")))
        for name in ("tokens", "tokenizer"):
            outputs.checkout(store, run.output(name), base / name, kind=name)
        # A process for each setting: flags, devices and instruction sets are fixed when jax begins.
        checkpoint = _checkpoint(run, store, segment.start, segment.start_state, base)  # "" only at the very beginning
        pair = [held.enter_context(Process(setting, run)) for setting in settings]

        def ask(**question: Any) -> list[dict[str, Any]]:
            for process in pair:
                process.send(**question)
            return [process.receive() for process in pair]

        for process in pair:
            process.send(
                do="open",
                recipe=run.started.body.recipe,
                tokens=str(base / "tokens"),
                start=segment.start,
                tokenizer=str(base / "tokenizer"),
                checkpoint=checkpoint,
                state=segment.start_state,
                devices=process.setting.devices,
            )
        for process in pair:
            process.receive()
        # The record has a fingerprint for each train step: which setting still gives the recorded bits is known before
        # anything is taken apart.
        prints = [reply["fingerprints"] for reply in ask(do="fingerprints", end=segment.end)]
        lines = list(causes)
        for setting, found in zip(settings, prints, strict=True):
            wrong = next((i for i, (a, b) in enumerate(zip(found, segment.fingerprints, strict=True)) if a != b), None)
            lines.append(
                f"{setting.name}: "
                + (
                    "gives the recorded bits in this segment"
                    if wrong is None
                    else f"differs from the record at train step {segment.start + wrong}"
                )
            )
        differing = next((i for i, (a, b) in enumerate(zip(*prints, strict=True)) if a != b), None)
        if differing is None:
            lines.append("both settings give the same bits in this segment: what differs is not among them")
            return Explanation(at, names, "cause" if causes else "none", tuple(lines), seconds=time.monotonic() - began)
        at = segment.start + differing
        lines.append(f"the settings part at train step {at}")
        found = first_operation(at, names, ask, lines)
    return replace(found, seconds=time.monotonic() - began)


def first_operation(at: int, names: tuple[str, str], ask: Any, lines: list[str]) -> Explanation:
    """The first program, and in it the first operation, that makes other bits of equal inputs at train step ``at``, by what
    two processes answer to ``ask``. ``names``: how these are called; ``lines``: what is told of them already."""
    records = [_records(reply) for reply in ask(do="programs", step=at)]
    pair = first_difference(*records)
    if pair is None:
        return Explanation(at, names, "program", (*lines, "no program with equal inputs gives other outputs"))
    program = pair[0].name
    digests = _parted(*pair)
    lines.append(f"first program whose inputs agree and whose output does not: {program}")
    differing = [name for name, a, b in zip(pair[0].tensors, pair[0].outputs, pair[1].outputs, strict=False) if a != b]
    if differing:
        tensors = by_execution(name for name in differing if "/" in name) or differing
        lines.append(f"of what it makes {len(differing)} differ, first in order of execution: {tensors[0]}")
    if program.rstrip("0123456789 ") not in FIRST_PROGRAMS:
        return Explanation(at, names, "program", tuple(lines), program, digests=digests)
    operations = [_records(reply) for reply in ask(do="operations", program=program)]
    alone = first_difference(*operations)
    if alone is not None:
        one = alone[0]
        lines.append(f"first operation: {one.name} -> {one.shape} at {one.source}")
        lines += _judged(names, ask, program, one.name, alone)
        return Explanation(at, names, "operation", tuple(lines), program, one.name, one.source, _parted(*alone))
    lines.append(
        f"each of its {len(operations[0])} operations alone gives the same bits: the compiler combines them differently"
    )
    counts = [reply["count"] for reply in ask(do="count", program=program)]

    def together(count: int) -> list[Record]:
        return [_records(reply)[0] for reply in ask(do="prefix", program=program, count=count)]

    place = None
    if counts[0] == counts[1]:
        place = first_true(counts[0], lambda count: (pair := together(count))[0].outputs != pair[1].outputs)
    if place is None:
        return Explanation(at, names, "program", tuple(lines), program, digests=digests)
    one, other = together(place)
    lines.append(
        f"first operation that differs when all up to it are compiled as one: {one.name} -> {one.shape} at {one.source}"
    )
    lines += _judged(names, ask, program, one.name, (one, other))
    return Explanation(at, names, "fusion", tuple(lines), program, one.name, one.source, _parted(one, other))


def _judged(names: tuple[str, str], ask: Any, program: str, operation: str, found: tuple[Record, Record]) -> list[str]:
    """Which of the two settings gives what the operation's definition gives; nothing where there is no definition."""
    right = _records(ask(do="reference", program=program, operation=operation)[0])
    return [
        f"{name}: {'gives' if mine.outputs == right[0].outputs else 'does not give'} what docs/exact.md says of it"
        for name, mine in zip(names, found, strict=True)
        if right
    ]


def _parted(one: Record, other: Record) -> tuple[str, str]:
    return next(((a, b) for a, b in zip(one.outputs, other.outputs, strict=False) if a != b), ("", ""))


def _records(reply: dict[str, Any]) -> list[Record]:
    return msgspec.convert(reply["records"], list[Record])


def _checkpoint(run: Run, store: Store, start: int, state: str, base: Path) -> str:
    """The folder of the state before ``start``; "" for the recipe's own initial state."""
    if start == 0 and run.recipe.initial is not None:
        raise MissingEvidence(
            "the first segment begins with a model that was made elsewhere",
            where="--explain",
            expected="a step of another segment",
            found="train step 0",
            cure="choose a step of another segment",
        )
    if start == 0:
        return ""
    link = run.started.body.continues
    artifact = next(
        (fact.body.artifact for fact in run.checkpoints if fact.body.state == state),
        link.checkpoint if link is not None and link.state == state else None,
    )
    if artifact is None:
        raise MissingEvidence(
            "no training checkpoint is recorded",
            where=f"before train step {start}",
            expected=state,
            found="nothing",
            cure="choose a step of another segment",
        )
    store.checkout(artifact, base / "checkpoint")
    return str(base / "checkpoint")
