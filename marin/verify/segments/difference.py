"""The first difference of two runs, in the order of causes: recipe, code, environment, data, program, step, tensor.
Pure.

What two runs were told to do is compared before what they did, so that the first difference is the one to look at: a
changed learning rate explains other bits, other bits explain nothing. Everything compared is a record; nothing is
executed. What never changes a bit (processor, cores, host system, number of devices) is told, and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from marin.history.run import Run
from marin.recipe.schema import unplain
from marin.record.events import DATA_STEPS, TrainSegment
from marin.verify.segments.compare import differences
from marin.verify.segments.ordering import by_execution

Question = Literal["recipe", "code", "environment", "data", "program", "step", "tensor"]
QUESTIONS: tuple[Question, ...] = ("recipe", "code", "environment", "data", "program", "step", "tensor")


@dataclass(frozen=True)
class Difference:
    """One question answered. ``outcome``: ``unknown`` when the runs do not record enough to say. ``lines``: what
    differs, or why it is not known. ``step``: the first train step that differs."""

    question: Question
    outcome: Literal["equal", "different", "unknown"]
    lines: tuple[str, ...] = ()
    step: int | None = None


@dataclass(frozen=True)
class Comparison:
    """All answers, in order. ``notes``: differences that can not change a bit."""

    one: str
    other: str
    answers: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def first(self) -> Difference | None:
        """The first question with a difference, or None."""
        return next((answer for answer in self.answers if answer.outcome == "different"), None)

    def exit_code(self) -> int:
        """0: no difference. 1: there is one. 3: none was found, and not everything could be compared."""
        if self.first is not None:
            return 1
        return 3 if any(answer.outcome == "unknown" for answer in self.answers) else 0

    def as_json(self) -> dict[str, Any]:
        """The object that ``marin diff --json`` prints."""
        first = self.first
        return {
            "runs": [self.one, self.other],
            "equal": self.exit_code() == 0,
            "first_difference": None
            if first is None
            else {"in": first.question, "step": first.step, "lines": list(first.lines)},
            "answers": {a.question: {"outcome": a.outcome, "lines": list(a.lines)} for a in self.answers},
            "first_step": next((a.step for a in self.answers if a.question == "step"), None),
            "notes": list(self.notes),
        }


TraceNames = Callable[[Run], Sequence[str] | None]
"""The names of the tensors in a run's traces, in their order; None where they cannot be had here."""
Blob = Callable[[str], bytes | None]
"""The stored bytes of a digest, or None when they can not be had."""


def compare_runs(one: Run, other: Run, blob: Blob, names: TraceNames, *, whole: bool = False) -> Comparison:
    """Ask all questions. ``names``, which takes seconds, is asked only when a step differs, both traces are there, and
    nothing before the step explains it; with ``whole`` then too. Where it is not asked, tensors are counted."""
    causes = (_recipe(one, other), _code(one, other), _environment(one, other), _data(one, other), _program(one, other))
    asked = whole or all(answer.outcome != "different" for answer in causes)
    step = _step(one, other)
    tensor = _tensor(one, other, step, blob, names if asked else None)
    return Comparison(one.run, other.run, (*causes, step, tensor), tuple(_notes(one, other)))


def _answer(question: Question, lines: Sequence[str]) -> Difference:
    return Difference(question, "different" if lines else "equal", tuple(lines))


def _between(one: object, other: object, prefix: str) -> list[str]:
    """Like :func:`marin.verify.segments.compare.differences`, in the words of two runs."""
    return [
        line.replace(": recorded ", ": ", 1).replace(", here ", " against ", 1)
        for line in differences(one, other, prefix)
    ]


def _recipe(one: Run, other: Run) -> Difference:
    mine, theirs = one.started.body.recipe, other.started.body.recipe
    # Numbers as people write them, unless the records spell one number in two ways.
    return _answer("recipe", _between(unplain(mine), unplain(theirs), "") or _between(mine, theirs, ""))


def _code(one: Run, other: Run) -> Difference:
    mine, theirs = one.started.body.code, other.started.body.code
    lines = _between(mine.get("steps"), theirs.get("steps"), "step")
    if lines and mine.get("commit") != theirs.get("commit"):
        lines.append(f"commit: {mine.get('commit') or 'none'} against {theirs.get('commit') or 'none'}")
    return _answer("code", lines)


def _environment(one: Run, other: Run) -> Difference:
    mine, theirs = one.started.body.environment, other.started.body.environment
    parts = ("lock", "versions")
    lines = [line for part in parts for line in _between(mine.get(part), theirs.get(part), part)]
    return _answer("environment", lines + _between(_settings(mine), _settings(theirs), "settings"))


_FREE_FLAGS = ("--xla_force_host_platform_device_count", "--xla_cpu_collective")


def _settings(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Variables that touch arithmetic, without what says how many devices there are and how long they wait."""
    settings = dict(environment.get("settings") or {})
    if isinstance(flags := settings.get("XLA_FLAGS"), str):
        settings["XLA_FLAGS"] = " ".join(flag for flag in flags.split() if not flag.startswith(_FREE_FLAGS))
    return settings


def _data(one: Run, other: Run) -> Difference:
    lines = []
    for step in DATA_STEPS:
        mine, theirs = one.steps.get(step), other.steps.get(step)
        if mine is None or theirs is None:
            if mine is not theirs:
                return Difference("data", "unknown", (f"{step}: only one of the runs has an output",))
            continue
        if mine.output.digest != theirs.output.digest:
            lines.append(f"{step}: {mine.output.digest} against {theirs.output.digest}")
    return _answer("data", lines)


def _program(one: Run, other: Run) -> Difference:
    if not one.training or not other.training:
        return Difference(
            "program",
            "equal" if not (one.training or other.training) else "unknown",
            ("only one of the runs has trained",) if one.training or other.training else (),
        )
    return _answer("program", _between(one.training[-1].body.program, other.training[-1].body.program, ""))


@dataclass(frozen=True)
class _Record:
    """What is recorded of one train step, and where in which trace, which is of ``steps`` train steps."""

    batch: str
    fingerprint: str
    loss: str
    trace: str
    offset: int
    steps: int

    def of_tensors(self, trace: bytes) -> list[bytes]:
        """What the trace has of each tensor after this train step: eight bytes."""
        width = len(trace) // self.steps
        row = trace[width * self.offset :][:width]
        return [row[i : i + 8] for i in range(0, width, 8)]


def _records(run: Run) -> Iterator[tuple[int, _Record]]:
    for fact in run.segments:
        body: TrainSegment = fact.body
        for offset in range(min(body.end - body.start, len(body.losses), len(body.batches), len(body.fingerprints))):
            yield (
                body.start + offset,
                _Record(
                    body.batches[offset],
                    body.fingerprints[offset],
                    body.losses[offset],
                    body.trace,
                    offset,
                    body.end - body.start,
                ),
            )


def _loop_steps(run: Run) -> dict[int, tuple[str, str, str]]:
    """Batch, loss and state of the train steps of a loop; a state only where the loop told one."""
    found = {}
    for fact in run.loop:
        body = fact.body
        last = min(len(body.losses), len(body.batches)) - 1
        for offset, (batch, loss) in enumerate(zip(body.batches, body.losses, strict=False)):
            found[body.start + offset] = (str(batch), str(loss), str(body.state or "") if offset == last else "")
    return found


def _loop_step(one: Run, other: Run) -> Difference:
    mine, theirs = _loop_steps(one), _loop_steps(other)
    for step in sorted(mine.keys() & theirs.keys()):
        for what, x, y in zip(("batch", "loss", "state"), mine[step], theirs[step], strict=True):
            if x and y and x != y:
                return Difference("step", "different", (f"train step {step}: {what}: {x} against {y}",), step)
    if mine.keys() != theirs.keys():
        return Difference("step", "different", (f"{len(mine)} train steps against {len(theirs)}",), None)
    return Difference("step", "equal")


def _step(one: Run, other: Run) -> Difference:
    if one.loop or other.loop:
        return _loop_step(one, other)
    if one.segments and other.segments:
        a, b = one.segments[0].body, other.segments[0].body
        if a.start == b.start and a.start_state != b.start_state:
            return Difference(
                "step",
                "different",
                (f"before train step {a.start}: state {a.start_state} against {b.start_state}",),
                a.start,
            )
    mine, theirs = dict(_records(one)), dict(_records(other))
    for step in sorted(mine.keys() & theirs.keys()):
        left, right = mine[step], theirs[step]
        for what, x, y in (
            ("tokens", left.batch, right.batch),
            ("state, loss or gradient norm", left.fingerprint, right.fingerprint),
            ("recorded loss", left.loss, right.loss),
        ):
            if x != y:
                return Difference(
                    "step",
                    "different",
                    (
                        f"train step {step}: {what}: {x} against {y}",
                        f"loss {float.fromhex(left.loss):.9g} against {float.fromhex(right.loss):.9g}",
                    ),
                    step,
                )
    if mine.keys() != theirs.keys():
        step = min(mine.keys() ^ theirs.keys())
        having = one.run if step in mine else other.run
        return Difference("step", "different", (f"train step {step} is recorded by {having} only",), step)
    if one.segments and other.segments and one.segments[-1].body.end_state != other.segments[-1].body.end_state:
        at = one.segments[-1].body.end - 1
        return Difference("step", "different", ("the last states differ although every step is recorded alike",), at)
    return Difference("step", "equal")


def _tensor(one: Run, other: Run, step: Difference, blob: Blob, names: TraceNames | None) -> Difference:
    """``names`` None: they were not asked for."""
    if (one.loop or other.loop) and step.outcome == "different":
        return Difference(
            "tensor",
            "unknown",
            ("a loop's tensors are in the manifests of its states: `marin verify --by` names them",),
        )
    if step.step is None:
        return Difference("tensor", "equal")
    mine, theirs = dict(_records(one)).get(step.step), dict(_records(other)).get(step.step)
    if mine is None or theirs is None:
        return Difference("tensor", "unknown", ("the step is recorded by one run only",), step.step)
    traces = [trace for record in (mine, theirs) if (trace := blob(record.trace)) is not None]
    if len(traces) < 2:
        return Difference("tensor", "unknown", ("a trace of the tensors is not in the store",), step.step)
    left, right = mine.of_tensors(traces[0]), theirs.of_tensors(traces[1])
    known, others = (names(one), names(other)) if names is not None else (None, None)
    if len(left) != len(right) or known != others:
        return Difference("tensor", "different", ("the models have other tensors",), step.step)
    differing = [i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]
    if not differing:
        return Difference("tensor", "equal")
    if known is None:
        lacking = "--all names them, which takes jax" if names is None else "jax, which is not here, knows their names"
        line = f"after train step {step.step}: {len(differing)} of {len(left)} tensors ({lacking})"
        return Difference("tensor", "different", (line,), step.step)
    found = by_execution(name for i, name in enumerate(known) if i in differing)
    shown = [f"after train step {step.step}: {name}" for name in found[:8]]
    return Difference(
        "tensor", "different", (*shown, *([f"and {len(found) - 8} more"] if len(found) > 8 else [])), step.step
    )


def _notes(one: Run, other: Run) -> Iterator[str]:
    mine, theirs = one.started.body.environment, other.started.body.environment
    for part in ("processor", "cores", "system", "python"):
        a, b = (
            {key: value for key, value in (side.get(part) or {}).items() if key != "features"}
            for side in (mine, theirs)
        )
        yield from _between(a, b, part)
    if one.training and other.training:
        yield from _between(one.training[-1].body.devices, other.training[-1].body.devices, "devices")
    if _code(one, other).outcome == "equal":
        yield from _between(one.started.body.code.get("commit"), other.started.body.code.get("commit"), "commit")
